#include "mantissa/formats/weight_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

using Tensors = std::map<std::string, const TensorView*, std::less<>>;

/// A file, read by the rules of its family.
class WeightReader {
  public:
    WeightReader(std::span<const TensorView> file, const WeightFiles& rules, const std::string& source)
        : rules_(rules), source_(source) {
        for (const TensorView& tensor : file) {
            std::string_view name = tensor.name;
            if (name.starts_with(rules.prefix)) name.remove_prefix(rules.prefix.size());
            if (rules.ignored && rules.ignored(name)) continue;
            if (!tensors_.emplace(name, &tensor).second)
                throw UserError(fmt::format("{}: tensor \"{}\" is there with and without \"{}\"", source,
                                            name, rules.prefix));
        }
    }

    void check_tied() {
        for (const auto& [name, original] : rules_.tied) {
            const auto found = tensors_.find(name), first = tensors_.find(original);
            if (found == tensors_.end() || first == tensors_.end()) continue;
            const TensorView &a = *found->second, &b = *first->second;
            if (a.dtype != b.dtype || a.shape != b.shape ||
                std::memcmp(a.data, b.data, byte_count(a.dtype, a.shape)) != 0)
                throw UserError(fmt::format(
                    "{}: tensor \"{}\" differs from \"{}\"; only models where they are one can be "
                    "loaded",
                    source_, name, original));
            tensors_.erase(found);
        }
    }

    /// Adds the parameter's faults to `unfit`; true: there are none.
    bool fits(const TensorSpec& parameter, UnfitWeights& unfit) const;

    std::vector<std::string> unknown(std::span<const TensorSpec> parameters) const {
        Tensors others = tensors_;
        for (const TensorSpec& parameter : parameters) others.erase(stored(parameter).name);
        std::vector<std::string> names;
        for (const auto& [_, tensor] : others) names.push_back(tensor->name);
        return names;
    }

    [[noreturn]] void refuse(const UnfitWeights& unfit) const;

    /// Its value, in the file or in `scratch`.
    std::span<const std::byte> value_of(const TensorSpec& parameter, std::vector<std::byte>& scratch) const;

  private:
    StoredWeight stored(const TensorSpec& parameter) const {
        return rules_.stored ? rules_.stored(parameter) : StoredWeight{parameter.name, {}};
    }

    const WeightFiles& rules_;
    const std::string& source_;
    Tensors tensors_;  ///< by name without the prefix
};

bool is_short(DType type) { return type == DType::f16 || type == DType::bf16; }

/// Whether a type converts: to FP32 exactly, to 16 bits with rounding.
bool converts(DType from, DType to) {
    const bool is_weight = from == DType::f32 || is_short(from);
    return from == to || (is_weight && (to == DType::f32 || is_short(to)));
}

template <class Bits>
Bits bits_at(const std::byte* from, std::int64_t index) {
    Bits bits;
    std::memcpy(&bits, from + sizeof bits * static_cast<std::size_t>(index), sizeof bits);
    return bits;
}

/// Converts elements of `from` (unaligned) to another format.
void convert(DType type, const std::byte* from, std::int64_t count, DType wanted, std::byte* to) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float value = type == DType::f32    ? bits_at<float>(from, i)
                            : type == DType::bf16 ? to_f32(BF16{bits_at<std::uint16_t>(from, i)})
                                                  : to_f32(FP16{bits_at<std::uint16_t>(from, i)});
        if (wanted == DType::f32) {
            std::memcpy(to + 4 * i, &value, 4);
            continue;
        }
        const std::uint16_t bits = wanted == DType::bf16 ? to_bf16(value).bits : to_fp16(value).bits;
        std::memcpy(to + 2 * i, &bits, 2);
    }
}

bool WeightReader::fits(const TensorSpec& parameter, UnfitWeights& unfit) const {
    const StoredWeight in_file = stored(parameter);
    const auto found = tensors_.find(in_file.name);
    if (found == tensors_.end()) {
        unfit.missing.push_back(in_file.name);
        return false;
    }
    const TensorView& tensor = *found->second;
    const std::vector<std::int64_t> expected = shape_in_file(in_file.order, parameter.shape);
    if (tensor.shape != expected)
        unfit.unlike.push_back(fmt::format("\"{}\" has shape {}, expected {}", tensor.name,
                                           shape_text(tensor.shape), shape_text(expected)));
    else if (!converts(tensor.dtype, parameter.dtype))
        unfit.unlike.push_back(fmt::format("\"{}\" is {}, which cannot become {} without loss; save it as {}",
                                           tensor.name, name_of(tensor.dtype), name_of(parameter.dtype),
                                           name_of(parameter.dtype)));
    else
        return true;
    return false;
}

void WeightReader::refuse(const UnfitWeights& unfit) const {
    if (unfit.count() > 1)
        throw UserError(fmt::format("{}: {} tensors do not fit: {}; expected {}", source_, unfit.count(),
                                    unfit.text(), rules_.kind));
    if (!unfit.missing.empty())
        throw UserError(
            fmt::format("{}: tensor \"{}\" is missing; expected {}", source_, unfit.missing[0], rules_.kind));
    if (!unfit.unknown.empty())
        throw UserError(
            fmt::format("{}: tensor \"{}\" is no parameter of this model", source_, unfit.unknown[0]));
    throw UserError(fmt::format("{}: tensor {}", source_, unfit.unlike[0]));
}

std::span<const std::byte> WeightReader::value_of(const TensorSpec& parameter,
                                                  std::vector<std::byte>& scratch) const {
    const StoredWeight in_file = stored(parameter);
    const TensorView& from = *tensors_.find(in_file.name)->second;
    const std::int64_t count = element_count(parameter.shape);
    std::span<const std::byte> value(from.data, byte_count(from.dtype, from.shape));
    if (from.dtype != parameter.dtype) {
        std::vector<std::byte> converted(static_cast<std::size_t>(count) * size_of(parameter.dtype));
        convert(from.dtype, from.data, count, parameter.dtype, converted.data());
        scratch.swap(converted);
        value = scratch;
    }
    if (!in_file.order.keeps()) {
        const OrderedTensor ordered = out_of_file(in_file.order, parameter.shape, size_of(parameter.dtype));
        std::vector<std::byte> turned(value.size());
        copy_ordered(ordered, 0, ordered.rows(), value.data(), turned.data());
        scratch.swap(turned);
        value = scratch;
    }
    return value;
}

}  // namespace

std::string UnfitWeights::text() const {
    static constexpr std::size_t max_named = 3;
    std::vector<std::string> parts;
    const auto first_of = [](const std::vector<std::string>& all) {
        return std::span(all).first(std::min(max_named, all.size()));
    };
    const auto more = [](const std::vector<std::string>& all) {
        return all.size() > max_named ? fmt::format("and {} more", all.size() - max_named) : std::string();
    };
    const auto add = [&](const char* what, const std::vector<std::string>& names) {
        if (!names.empty())
            parts.push_back(fmt::format("{} \"{}\"{}{}", what, fmt::join(first_of(names), "\", \""),
                                        names.size() > max_named ? " " : "", more(names)));
    };
    add("missing", missing);
    add("unknown", unknown);
    const auto shown = first_of(unlike);
    parts.insert(parts.end(), shown.begin(), shown.end());
    if (unlike.size() > max_named) parts.push_back(more(unlike));
    return fmt::format("{}", fmt::join(parts, "; "));
}

UnfitWeights read_weights(std::span<const TensorView> file, std::span<const TensorSpec> parameters,
                          const WeightFiles& rules, const std::string& source, TakeWeight take, Match match) {
    WeightReader reader(file, rules, source);
    reader.check_tied();
    UnfitWeights unfit{.missing = {}, .unknown = reader.unknown(parameters), .unlike = {}};
    std::vector<const TensorSpec*> fitting;
    for (const TensorSpec& parameter : parameters)
        if (reader.fits(parameter, unfit)) fitting.push_back(&parameter);
    if (match == Match::strict && unfit.count() > 0) reader.refuse(unfit);
    std::vector<std::byte> scratch;
    for (const TensorSpec* parameter : fitting) take(*parameter, reader.value_of(*parameter, scratch));
    return unfit;
}

std::vector<TensorToWrite> stored_weights(std::vector<TensorToWrite> parameters, const WeightFiles& rules) {
    if (!rules.stored) return parameters;
    for (TensorToWrite& parameter : parameters) {
        const TensorView& tensor = parameter.tensor;
        StoredWeight stored = rules.stored({tensor.name, tensor.dtype, tensor.shape});
        parameter.tensor.name = std::move(stored.name);
        parameter.order = std::move(stored.order);
    }
    return parameters;
}

}  // namespace mantissa
