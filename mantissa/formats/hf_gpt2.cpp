#include "mantissa/formats/hf_gpt2.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"

namespace mantissa {

namespace {

constexpr std::string_view prefix = "transformer.";

using Tensors = std::map<std::string, const TensorView*, std::less<>>;

/// The checkpoint's tensors by their names here, without prefix and without masks.
Tensors tensors_of(std::span<const TensorView> file, const std::string& source) {
    Tensors tensors;
    for (const TensorView& tensor : file) {
        std::string_view name = tensor.name;
        if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
        // Causal masks that old exports stored as if they were parameters (attn.c_attn.bias is none of them).
        if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) continue;
        if (!tensors.emplace(name, &tensor).second)
            throw UserError(
                fmt::format("{}: tensor \"{}\" is there with and without \"{}\"", source, name, prefix));
    }
    return tensors;
}

const TensorView& tensor_named(const Tensors& tensors, std::string_view name, const std::string& source) {
    const auto found = tensors.find(name);
    if (found == tensors.end())
        throw UserError(
            fmt::format("{}: tensor \"{}\" is missing; expected a GPT-2 checkpoint", source, name));
    return *found->second;
}

/// The layer of "h.12.ln_1.weight".
std::optional<std::int64_t> layer_of(std::string_view name) {
    std::int64_t layer = -1;
    if (!name.starts_with("h.")) return {};
    const char* last = name.data() + name.size();
    const auto [end, error] = std::from_chars(name.data() + 2, last, layer);
    if (error != std::errc{} || end == last || *end != '.' || layer < 0) return {};
    return layer;
}

std::vector<std::int64_t> shape_in_file(const MutableTensorView& parameter) {
    std::vector<std::int64_t> shape = parameter.shape;
    if (is_transposed_in_hf(parameter.name)) std::reverse(shape.begin(), shape.end());
    return shape;
}

bool converts(DType from, DType to) {
    return from == to || (to == DType::f32 && (from == DType::f16 || from == DType::bf16));
}

/// Elements of `from` (unaligned) as FP32; exact.
void widen(DType type, const std::byte* from, std::int64_t count, std::byte* to) {
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, from + 2 * i, 2);
        const float value = type == DType::bf16 ? to_f32(BF16{bits}) : to_f32(FP16{bits});
        std::memcpy(to + 4 * i, &value, 4);
    }
}

void copy_parameter(const TensorView& from, const MutableTensorView& to) {
    const std::int64_t count = element_count(to.shape);
    const std::byte* data = from.data;
    std::vector<std::byte> widened;
    if (from.dtype != to.dtype) {
        widened.resize(static_cast<std::size_t>(count) * size_of(to.dtype));
        widen(from.dtype, from.data, count, widened.data());
        data = widened.data();
    }
    if (is_transposed_in_hf(to.name)) {
        const auto rows = static_cast<std::size_t>(from.shape[0]),
                   columns = static_cast<std::size_t>(from.shape[1]);
        copy_transposed(
            {.rows = rows, .columns = columns, .element = size_of(to.dtype), .begin = 0, .end = columns},
            data, to.data);
    } else if (count > 0) {
        std::memcpy(to.data, data, byte_count(to.dtype, to.shape));
    }
}

/// The output matrix may be stored beside the embedding, but it must be the same: one parameter here.
void check_tied_head(const Tensors& tensors, const std::string& source) {
    const auto head = tensors.find("lm_head.weight");
    if (head == tensors.end()) return;
    const TensorView &a = *head->second, &b = tensor_named(tensors, "wte.weight", source);
    if (a.dtype != b.dtype || a.shape != b.shape ||
        std::memcmp(a.data, b.data, byte_count(a.dtype, a.shape)) != 0)
        throw UserError(source +
                        ": tensor \"lm_head.weight\" differs from \"wte.weight\"; only models whose head is "
                        "the embedding can be loaded");
}

}  // namespace

bool is_transposed_in_hf(std::string_view name) {
    return layer_of(name) &&
           (name.ends_with(".attn.c_attn.weight") || name.ends_with(".attn.c_proj.weight") ||
            name.ends_with(".mlp.c_fc.weight") || name.ends_with(".mlp.c_proj.weight"));
}

std::vector<Gpt2Parameter> gpt2_parameters(const Gpt2Sizes& sizes) {
    const std::int64_t C = sizes.channels;
    std::vector<Gpt2Parameter> list = {{"wte.weight", {sizes.vocabulary, C}},
                                       {"wpe.weight", {sizes.context, C}}};
    const auto add = [&](const std::string& name, std::vector<std::int64_t> weight) {
        const std::int64_t out = weight[0];
        list.push_back({name + ".weight", std::move(weight)});
        list.push_back({name + ".bias", {out}});
    };
    for (std::int64_t i = 0; i < sizes.layers; ++i) {
        const std::string layer = fmt::format("h.{}.", i);
        add(layer + "ln_1", {C});
        add(layer + "attn.c_attn", {3 * C, C});
        add(layer + "attn.c_proj", {C, C});
        add(layer + "ln_2", {C});
        add(layer + "mlp.c_fc", {4 * C, C});
        add(layer + "mlp.c_proj", {C, 4 * C});
    }
    add("ln_f", {C});
    return list;
}

Gpt2Sizes gpt2_sizes_of(std::span<const TensorView> file, const std::string& source) {
    const Tensors tensors = tensors_of(file, source);
    const TensorView& tokens = tensor_named(tensors, "wte.weight", source);
    const TensorView& positions = tensor_named(tensors, "wpe.weight", source);
    if (tokens.shape.size() != 2 || positions.shape.size() != 2 || tokens.shape[1] != positions.shape[1])
        throw UserError(
            fmt::format("{}: \"wte.weight\" {} and \"wpe.weight\" {}: expected [vocabulary, channels] and "
                        "[context, channels]",
                        source, shape_text(tokens.shape), shape_text(positions.shape)));
    // Counted by name, never taken from a number in one: "h.999999999.ln_1.weight" must not cost memory.
    std::int64_t layers = 0;
    while (tensors.contains(fmt::format("h.{}.ln_1.weight", layers))) ++layers;
    return {.layers = layers,
            .channels = tokens.shape[1],
            .context = positions.shape[0],
            .vocabulary = tokens.shape[0]};
}

void import_hf_gpt2(std::span<const TensorView> file, std::span<const MutableTensorView> parameters,
                    const std::string& source) {
    Tensors tensors = tensors_of(file, source);
    check_tied_head(tensors, source);
    tensors.erase("lm_head.weight");
    for (const MutableTensorView& parameter : parameters) {
        const TensorView& tensor = tensor_named(tensors, parameter.name, source);
        const std::vector<std::int64_t> expected = shape_in_file(parameter);
        if (tensor.shape != expected)
            throw UserError(fmt::format("{}: tensor \"{}\" has shape {}, expected {}", source, tensor.name,
                                        shape_text(tensor.shape), shape_text(expected)));
        if (!converts(tensor.dtype, parameter.dtype))
            throw UserError(fmt::format("{}: tensor \"{}\" is {}, which cannot become {} without loss",
                                        source, tensor.name, name_of(tensor.dtype),
                                        name_of(parameter.dtype)));
    }
    Tensors unknown = tensors;
    for (const MutableTensorView& parameter : parameters) unknown.erase(parameter.name);
    if (!unknown.empty())
        throw UserError(fmt::format(
            "{}: tensor \"{}\"{} no parameter of this model", source, unknown.begin()->second->name,
            unknown.size() == 1 ? " is" : fmt::format(" and {} more are", unknown.size() - 1)));
    for (const MutableTensorView& parameter : parameters)
        copy_parameter(*tensors.find(parameter.name)->second, parameter);
}

std::vector<TensorToWrite> export_hf_gpt2(std::span<const TensorView> parameters) {
    std::vector<TensorToWrite> list;
    for (const TensorView& parameter : parameters)
        list.push_back(
            {parameter, is_transposed_in_hf(parameter.name) ? Orientation::transposed : Orientation::as_is});
    return list;
}

std::string hf_gpt2_config(const Gpt2Sizes& sizes, std::int64_t heads, std::int64_t end_of_text) {
    const nlohmann::ordered_json config = {{"architectures", {"GPT2LMHeadModel"}},
                                           {"model_type", "gpt2"},
                                           {"vocab_size", sizes.vocabulary},
                                           {"n_positions", sizes.context},
                                           {"n_embd", sizes.channels},
                                           {"n_layer", sizes.layers},
                                           {"n_head", heads},
                                           {"activation_function", "gelu_new"},  // the tanh form
                                           {"layer_norm_epsilon", 1e-5},
                                           {"bos_token_id", end_of_text},
                                           {"eos_token_id", end_of_text},
                                           {"tie_word_embeddings", true},
                                           {"torch_dtype", "float32"}};
    return config.dump(2) + "\n";
}

}  // namespace mantissa
