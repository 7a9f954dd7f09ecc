#include "mantissa/data/own_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <utility>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/batch.h"
#include "mantissa/data/permutation.h"
#include "mantissa/formats/npy.h"
#include "mantissa/numerics/scalar.h"

namespace mantissa::inline v0 {

Examples::Examples(const nn::Model& model, const Batch& all, const BatchOptions& options)
    : options_(options) {
    check(options.batch > 0 && options.accumulate > 0, "batches have positive sizes");
    per_step_ = static_cast<std::uint64_t>(options.batch * options.accumulate);
    count_ = static_cast<std::uint64_t>(examples_in(all, model));
    require_fit(all, model, static_cast<std::int64_t>(count_));
    const std::uint64_t needed = options.order == BatchOrder::random ? 1 : per_step_;
    if (count_ < needed)
        throw UserError(fmt::format("model {}: {}, but a step takes {}; give more, or lower the batch",
                                    model.name, count_text(count_, "example"), per_step_));
    for (std::size_t i = 0; i < model.inputs.size(); ++i) {
        const std::span<const std::byte> bytes = all.values()[i].bytes;
        inputs_.emplace_back(bytes.begin(), bytes.end());
        is_whole_.push_back(model.inputs[i].batch_axis == nn::BatchAxis::none);
    }
    reading_ = ReadingOrder({.examples = count_,
                             .per_step = per_step_,
                             .in_whole_steps = options.order == BatchOrder::sequential,
                             .epoch = fmt::format("{} examples {}", count_, order_text(options))});
}

std::uint64_t Examples::steps_per_epoch() const { return std::max<std::uint64_t>(1, count_ / per_step_); }

std::uint64_t Examples::index_of(std::uint64_t step, std::uint64_t within) const {
    const std::uint64_t number = reading_.number_of(step, within);
    if (options_.order == BatchOrder::sequential) return number % reading_.per_epoch();
    return shuffled(number % count_, count_, {.seed = options_.seed, .epoch = number / count_});
}

void Examples::fill(std::uint64_t step, std::int64_t micro_batch,
                    std::span<const std::span<std::byte>> inputs) const {
    check(inputs.size() == inputs_.size(), "a batch has as many inputs as the model");
    const auto B = static_cast<std::uint64_t>(options_.batch);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (is_whole_[i]) {
            check(inputs[i].size() == inputs_[i].size(), "an input without a batch axis is given whole");
            std::ranges::copy(inputs_[i], inputs[i].begin());
            continue;
        }
        const std::size_t size = inputs_[i].size() / count_;
        check(inputs[i].size() == size * B, "inputs are [B, ...]");
        for (std::uint64_t row = 0; row < B; ++row) {
            const std::uint64_t from = index_of(step, static_cast<std::uint64_t>(micro_batch) * B + row);
            std::copy_n(inputs_[i].begin() + static_cast<std::ptrdiff_t>(from * size), size,
                        inputs[i].begin() + static_cast<std::ptrdiff_t>(row * size));
        }
    }
}

std::string Examples::description() const {
    std::string text = fmt::format("{} examples{}, checksums", count_,
                                   options_.order == BatchOrder::random ? " in random order" : "");
    for (const std::vector<std::byte>& input : inputs_) text += " " + checksum_text(checksum_of(input));
    return text;
}

namespace {

DType dtype_in(const NpyArray& array, const std::string& source) {
    if (array.kind == 'f' && array.item_size == 4) return DType::f32;
    if (array.kind == 'f' && array.item_size == 8) return DType::f64;
    if (array.kind == 'i' && array.item_size == 4) return DType::i32;
    if (array.kind == 'i' && array.item_size == 8) return DType::i64;
    if (array.kind == 'u' && array.item_size == 1) return DType::u8;
    throw UserError(
        fmt::format("{}: holds numbers of type {}{}; expected f4, f8, i4, i8 or u1: save it with another, as "
                    "x.astype(numpy.float32)",
                    source, array.kind, array.item_size));
}

/// Converts a value, rounding to floating types; false if an integer type cannot hold it.
template <class Number, class Stored>
bool convert(Stored value, Number& converted) {
    if constexpr (std::floating_point<Number>) {
        converted = static_cast<Number>(value);
        return std::isfinite(converted) || !std::isfinite(static_cast<double>(value));
    } else if constexpr (std::floating_point<Stored>) {
        if (!(value == std::trunc(value) && std::abs(value) < Stored{0x1p63})) return false;
        return convert(static_cast<std::int64_t>(value), converted);
    } else {
        converted = static_cast<Number>(value);
        return std::in_range<Number>(value);
    }
}

}  // namespace

NpyFile::NpyFile(const std::filesystem::path& file) : path_(file) {
    const MappedFile mapped(file);
    const NpyArray array = parse_npy(mapped.bytes(), file.string());
    dtype_ = dtype_in(array, file.string());
    if (array.fortran_order && array.shape.size() > 1)
        throw UserError(fmt::format(
            "{}: is in Fortran's order, the first axis innermost; save it as numpy.ascontiguousarray(x)",
            file.string()));
    shape_.assign(array.shape.begin(), array.shape.end());
    bytes_.assign(array.data.begin(), array.data.end());
}

nn::InputSpec NpyFile::input(std::string name) const {
    if (shape_.empty()) throw UserError(path_.string() + ": holds one number; expected an array of examples");
    return {std::move(name), dtype_, Shape(std::vector(shape_.begin() + 1, shape_.end()))};
}

template <class Number>
std::vector<Number> NpyFile::numbers() const {
    std::vector<Number> converted(bytes_.size() / size_of(dtype_));
    with_type(dtype_, [&](auto stored) {
        for (std::size_t i = 0; i < converted.size(); ++i) {
            std::memcpy(&stored, bytes_.data() + i * sizeof stored, sizeof stored);
            const auto value = +number(stored);
            if (!convert(value, converted[i]))
                throw UserError(fmt::format("{}: element {} is {}, which {} cannot hold", path_.string(), i,
                                            value, name_of(dtype_of<Number>())));
        }
    });
    return converted;
}

template std::vector<float> NpyFile::numbers() const;
template std::vector<double> NpyFile::numbers() const;
template std::vector<std::int32_t> NpyFile::numbers() const;
template std::vector<std::int64_t> NpyFile::numbers() const;
template std::vector<std::uint8_t> NpyFile::numbers() const;

}  // namespace mantissa
