#include "mantissa/train/adapter_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/formats/axis_order.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/train/state_tensors.h"

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view path_prefix = "base_model.model.";
constexpr std::string_view suffix_a = ".lora_A.weight", suffix_b = ".lora_B.weight",
                           suffix_magnitude = ".lora_magnitude_vector";

/// Members that describe how adapters were made or trained and change nothing that they compute. The tensors
/// alone tell the layers that have an adapter.
constexpr std::string_view keys_without_effect[] = {"auto_mapping",
                                                    "base_model_name_or_path",
                                                    "exclude_modules",
                                                    "fan_in_fan_out",
                                                    "inference_mode",
                                                    "layers_pattern",
                                                    "layers_to_transform",
                                                    "lora_dropout",
                                                    "megatron_core",
                                                    "peft_version",
                                                    "qalora_group_size",
                                                    "revision",
                                                    "runtime_config",
                                                    "target_modules",
                                                    "task_type",
                                                    "ensure_weight_tying",
                                                    "ephemeral_gpu_offload"};
constexpr std::string_view keys_read[] = {
    "peft_type",         "r",    "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern",
    "init_lora_weights", "bias", "use_dora"};

bool is_empty(const nlohmann::json& value) {
    return value.is_null() || value == false || value == "" ||
           ((value.is_object() || value.is_array()) && value.empty());
}

template <std::size_t count>
bool is_among(const std::string_view (&names)[count], const std::string& name) {
    return std::ranges::find(names, name) != std::end(names);
}

/// Axis order, in PEFT's files, of a part of a convolution's adapter that has four axes here.
AxisOrder order_in_file(std::string_view name, std::size_t axes) {
    if (axes != 4) return {};
    if (name.ends_with(suffix_magnitude)) return {.axes = {0, 3, 1, 2}};
    return {.axes = {3, 2, 0, 1}};
}

StoredWeight stored_part(const TensorSpec& part) {
    return {part.name, order_in_file(part.name, part.shape.size())};
}

/// The shape, in our axis order, of a part in a file.
std::vector<std::int64_t> shape_here(const TensorView& tensor) {
    const AxisOrder order = order_in_file(tensor.name, tensor.shape.size());
    std::vector<std::int64_t> shape = tensor.shape;
    for (std::size_t i = 0; i < order.axes.size(); ++i)
        shape[static_cast<std::size_t>(order.axes[i])] = tensor.shape[i];
    return shape;
}

/// Any floating-point tensor of a file as FP32, in our axis order.
std::vector<float> widened(const TensorView& tensor) {
    const AxisOrder order = order_in_file(tensor.name, tensor.shape.size());
    std::vector<std::byte> stored(tensor.data, tensor.data + byte_count(tensor.dtype, tensor.shape));
    if (!order.keeps()) {
        const OrderedTensor ordered = out_of_file(order, shape_here(tensor), size_of(tensor.dtype));
        copy_ordered(ordered, 0, ordered.rows(), tensor.data, stored.data());
    }
    std::vector<float> values(static_cast<std::size_t>(element_count(tensor.shape)));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] =
            static_cast<float>(load_as_f64(stored.data(), tensor.dtype, static_cast<std::int64_t>(i)));
    return values;
}

/// A weight with its adapter: W + s left right, with each output times a factor.
struct LowRankProduct {
    std::int64_t rank = 0, rows = 0, columns = 0;  // of the weight, as a matrix
    float scale = 1;
    /// [rows, r], [r, columns]: B and A; for filters, where outputs are the columns, A and B.
    std::vector<float> left, right;
    bool are_outputs_rows = true;
    std::vector<float> factors = {};  // [outputs]; none: all are 1

    using Read = FunctionRef<void(std::int64_t first, std::span<float> values)>;

    LowRankProduct(const Adapter& adapter, const Shape& weight, std::vector<float> a, std::vector<float> b)
        : rank(adapter.rank),
          rows(weight.elements() / weight[-1]),
          columns(weight[-1]),
          scale(static_cast<float>(adapter.scale)),
          left(std::move(a)),
          right(std::move(b)),
          are_outputs_rows(weight.rank() == 2) {
        if (are_outputs_rows) std::swap(left, right);
    }

    /// Scales every output to this norm; `read` gives elements of the weight.
    void set_magnitudes(std::span<const float> magnitudes, Read read) {
        std::vector<double> squares(magnitudes.size());
        std::vector<float> row(static_cast<std::size_t>(columns));
        for (std::int64_t i = 0; i < rows; ++i) {
            read(i * columns, row);
            apply_to(i * columns, row);
            for (std::size_t j = 0; j < row.size(); ++j) {
                const double x = static_cast<double>(row[j]);
                squares[are_outputs_rows ? static_cast<std::size_t>(i) : j] += x * x;
            }
        }
        factors.resize(squares.size());
        for (std::size_t i = 0; i < squares.size(); ++i)
            factors[i] = squares[i] == 0 ? 0 : magnitudes[i] / static_cast<float>(std::sqrt(squares[i]));
    }

    /// Changes elements [first, first + size) of the flat weight.
    void apply_to(std::int64_t first, std::span<float> values) const {
        const std::int64_t end = first + std::ssize(values);
        for (std::int64_t row = first / columns; row * columns < end; ++row) {
            const std::int64_t from = std::max(first, row * columns), to = std::min(end, (row + 1) * columns);
            for (std::int64_t k = 0; k < rank; ++k) {
                const float factor = scale * left[static_cast<std::size_t>(row * rank + k)];
                const float* const of_right = right.data() + k * columns;
                for (std::int64_t i = from; i < to; ++i)
                    values[static_cast<std::size_t>(i - first)] += factor * of_right[i - row * columns];
            }
            for (std::int64_t i = from; i < to && !factors.empty(); ++i)
                values[static_cast<std::size_t>(i - first)] *=
                    factors[static_cast<std::size_t>(are_outputs_rows ? row : i - row * columns)];
        }
    }
};

bool is_key_of(std::string_view key, const std::string& path) {
    if (key.starts_with('^')) return path == key.substr(1);
    return path == key ||
           (path.size() > key.size() && path.ends_with(key) && path[path.size() - key.size() - 1] == '.');
}

}  // namespace

bool holds_adapters_alone(const fs::path& directory) {
    return fs::exists(directory / adapter_config_name) && !fs::exists(directory / "model.safetensors") &&
           !fs::exists(directory / "model.safetensors.index.json");
}

namespace {

fs::path with_adapters_in(const fs::path& directory) {
    for (const char* name : {adapter_config_name, adapter_model_name})
        if (!fs::exists(directory / name))
            throw UserError(fmt::format("{}: {} is missing; expected a folder of adapters as PEFT writes it",
                                        directory.string(), name));
    return directory;
}

}  // namespace

AdapterFolder::AdapterFolder(const fs::path& directory, const WeightFiles& files)
    : directory_(with_adapters_in(directory)), file_(directory_ / adapter_model_name) {
    read_parts(files);
    read_config();
}

void AdapterFolder::refuse(const char* file, const std::string& what) const {
    throw UserError(fmt::format("{}: {}", (directory_ / file).string(), what));
}

void AdapterFolder::read_parts(const WeightFiles& files) {
    std::map<std::string, Part> by_layer;
    for (const TensorView& tensor : file_.views()) {
        std::string_view path = tensor.name;
        if (path.starts_with(path_prefix)) path.remove_prefix(path_prefix.size());
        const std::pair<std::string_view, TensorView Part::*> kinds[] = {
            {suffix_a, &Part::a}, {suffix_b, &Part::b}, {suffix_magnitude, &Part::magnitude}};
        const auto kind =
            std::ranges::find_if(kinds, [&](const auto& each) { return path.ends_with(each.first); });
        if (kind == std::end(kinds))
            refuse(adapter_model_name,
                   fmt::format("tensor \"{}\" is no part of an adapter of a linear layer or a convolution, "
                               "the only kinds that are read",
                               tensor.name));
        if (!is_floating(tensor.dtype))
            refuse(adapter_model_name, fmt::format("\"{}\" is {}, expected a floating tensor", tensor.name,
                                                   name_of(tensor.dtype)));
        path.remove_suffix(kind->first.size());
        if (path.starts_with(files.prefix)) path.remove_prefix(files.prefix.size());
        Part& part = by_layer[std::string(path)];
        part.layer = path;
        part.path = files.prefix + part.layer;
        part.*kind->second = tensor;
    }
    for (auto& [layer, part] : by_layer) {
        require_shapes(part);
        parts_.push_back(std::move(part));
    }
    if (parts_.empty()) refuse(adapter_model_name, "holds no adapter");
}

void AdapterFolder::require_shapes(const Part& part) const {
    const auto require = [&](bool holds, const std::string& what) {
        if (!holds) refuse(adapter_model_name, fmt::format("\"{}\"{}", part.layer, what));
    };
    const std::vector<std::int64_t>&a = part.a.shape, &b = part.b.shape, &magnitude = part.magnitude.shape;
    require(part.a.data || part.b.data, " has lora_magnitude_vector alone");
    require(part.a.data && part.b.data, fmt::format(" has no lora_{}", part.a.data ? 'B' : 'A'));
    const bool is_convolution = a.size() == 4;
    require((is_convolution || a.size() == 2) && b.size() == a.size() &&
                (!is_convolution || (b[2] == 1 && b[3] == 1)),
            fmt::format(": lora_A is {} and lora_B {}, expected matrices, or filters and filters of 1 x 1",
                        shape_text(a), shape_text(b)));
    require(a[0] == b[1] && a[0] >= 1,
            fmt::format(": lora_A is {} and lora_B {}, whose ranks differ", shape_text(a), shape_text(b)));
    const std::vector<std::int64_t> of_outputs =
        is_convolution ? std::vector<std::int64_t>{1, b[0], 1, 1} : std::vector{b[0]};
    require(!part.magnitude.data || magnitude == of_outputs,
            fmt::format(": lora_magnitude_vector is {}, expected {}", shape_text(magnitude),
                        shape_text(of_outputs)));
}

std::vector<std::pair<std::string, const TensorView*>> AdapterFolder::Part::tensors() const {
    std::vector<std::pair<std::string, const TensorView*>> all{{layer + std::string(suffix_a), &a},
                                                               {layer + std::string(suffix_b), &b}};
    if (magnitude.data) all.emplace_back(layer + std::string(suffix_magnitude), &magnitude);
    return all;
}

void AdapterFolder::read_config() {
    const std::string source = (directory_ / adapter_config_name).string();
    const nlohmann::json config = parse_strict_json(MappedFile(source).text(), source);
    if (!config.is_object()) refuse(adapter_config_name, "expected an object");
    const auto value = [&](const char* name, const nlohmann::json& absent) {
        const auto found = config.find(name);
        return found == config.end() || found->is_null() ? absent : *found;
    };
    if (value("peft_type", "LORA") != "LORA")
        refuse(adapter_config_name,
               fmt::format("peft_type is {}, only \"LORA\" is read", config["peft_type"].dump()));
    if (value("bias", "none") != "none")
        refuse(
            adapter_config_name,
            fmt::format("bias is {}: it trains the model's biases, too, which is not read; only \"none\" is",
                        config["bias"].dump()));
    const nlohmann::json begun = value("init_lora_weights", true);
    if (!begun.is_boolean() && begun != "gaussian" && begun != "orthogonal")
        refuse(adapter_config_name,
               fmt::format(
                   "init_lora_weights is {}, which may change the model's own weights; save the adapters "
                   "as PEFT converts them to plain LoRA",
                   begun.dump()));
    for (const auto& [key, given] : config.items())
        if (!is_among(keys_read, key) && !is_among(keys_without_effect, key) && !is_empty(given))
            refuse(adapter_config_name, fmt::format("{} is {}, which is not read", key, given.dump()));
    const auto number = [&](const nlohmann::json& of, std::string_view name) {
        if (!of.is_number() || !(of.get<double>() > 0))
            refuse(adapter_config_name, fmt::format("{} is {}, expected a number above 0", name, of.dump()));
        return of.get<double>();
    };
    const auto patterns = [&](const char* name) {
        nlohmann::json all = value(name, nlohmann::json::object());
        if (!all.is_object()) refuse(adapter_config_name, fmt::format("{} is no object", name));
        for (const auto& [key, of] : all.items())
            if (key.find_first_of("*+?[](){}|\\$") != key.npos)
                refuse(adapter_config_name,
                       fmt::format("{} has the expression \"{}\"; only names of layers are read", name, key));
        return all;
    };
    const auto own = [](const nlohmann::json& all, const std::string& layer) {
        for (const auto& [key, of] : all.items())
            if (is_key_of(key, layer)) return std::optional<nlohmann::json>(of);
        return std::optional<nlohmann::json>();
    };
    const nlohmann::json ranks = patterns("rank_pattern"), alphas = patterns("alpha_pattern");
    options_.rank = static_cast<std::int64_t>(number(value("r", 8), "r"));
    options_.alpha = number(value("lora_alpha", 8), "lora_alpha");
    options_.rank_stabilized = value("use_rslora", false) == true;
    options_.magnitudes = value("use_dora", false) == true;
    options_.source = this->source();
    for (const Part& part : parts_) {
        if (options_.magnitudes != (part.magnitude.data != nullptr))
            refuse(adapter_config_name,
                   fmt::format("use_dora is {}, but \"{}\" has {}lora_magnitude_vector in {}",
                               options_.magnitudes, part.layer, options_.magnitudes ? "no " : "a ",
                               adapter_model_name));
        options_.layers.push_back(part.layer);
        const std::optional<nlohmann::json> rank = own(ranks, part.path), alpha = own(alphas, part.path);
        const double expected = rank ? number(*rank, "rank_pattern") : static_cast<double>(options_.rank);
        if (expected != static_cast<double>(part.a.shape[0]))
            refuse(adapter_config_name, fmt::format("the rank of \"{}\" is {}, but its lora_A is {}",
                                                    part.layer, expected, shape_text(part.a.shape)));
        if (rank || alpha)
            options_.others.push_back({.pattern = part.layer,
                                       .rank = part.a.shape[0],
                                       .alpha = alpha ? number(*alpha, "alpha_pattern") : *options_.alpha});
    }
}

void AdapterFolder::load(StateBlock& state) const {
    for (const Part& part : parts_)
        for (const auto& [name, tensor] : part.tensors()) {
            if (!state.has(name))
                refuse(adapter_model_name, fmt::format("there is no adapter of \"{}\" here", part.layer));
            const std::vector<std::int64_t>& own = state.type(name).shape.extents();
            if (own != shape_here(*tensor))
                refuse(adapter_model_name,
                       fmt::format("\"{}\" is {}, the model's is {}", tensor->name, shape_text(tensor->shape),
                                   shape_text(shape_in_file(order_in_file(name, own.size()), own))));
        }
    for (const Part& part : parts_)
        for (const auto& [name, tensor] : part.tensors()) {
            const std::vector<float> values = widened(*tensor);
            state.write(name, std::as_bytes(std::span(values)));
        }
}

void AdapterFolder::merge(StateBlock& weights) const {
    for (const Part& part : parts_) {
        const std::string name = part.layer + ".weight";
        std::vector<std::int64_t> expected = shape_here(part.a);  // with the rank in place of outputs
        expected[expected.size() == 4 ? 3 : 0] = part.b.shape[0];
        if (!weights.has(name))
            refuse(adapter_model_name,
                   fmt::format("it is of another model: this one has no layer \"{}\"", part.layer));
        if (weights.type(name).shape.extents() != expected)
            refuse(
                adapter_model_name,
                fmt::format("it is of another model: \"{}\" adapts a weight {}, this one's is {}", part.layer,
                            shape_text(expected), shape_text(weights.type(name).shape.extents())));
    }
    for (const Part& part : parts_) {
        const std::string name = part.layer + ".weight";
        std::vector<float> merged = weights.read_f32(name);
        const Adapter adapter = nn::adapter_of(options_, part.layer);
        LowRankProduct product(adapter, weights.type(name).shape, widened(part.a), widened(part.b));
        if (adapter.magnitude)
            product.set_magnitudes(widened(part.magnitude), [&](std::int64_t first, std::span<float> values) {
                std::ranges::copy(std::span(merged).subspan(static_cast<std::size_t>(first), values.size()),
                                  values.begin());
            });
        product.apply_to(0, merged);
        weights.write(name, std::as_bytes(std::span(merged)));
    }
}

std::string adapter_config(std::span<const State> states, const nn::Model& model,
                           const nn::LoraOptions& options, const std::string& base) {
    const WeightFiles& files = nn::files_of(model);
    std::set<std::string> ends;  // last parts of the names of layers with adapters
    std::vector<std::string> layers;
    nlohmann::ordered_json ranks = nlohmann::ordered_json::object(), alphas = ranks;
    bool is_transposed = false;
    const auto number = [](double of) {
        return of == std::floor(of) ? nlohmann::ordered_json(static_cast<std::int64_t>(of))
                                    : nlohmann::ordered_json(of);
    };
    const auto alpha_of = [](const std::optional<double>& alpha, std::int64_t rank) {
        return alpha.value_or(static_cast<double>(rank));
    };
    for (const State& state : states) {
        if (!state.name.ends_with(suffix_a) || !is_of_adapter(state)) continue;
        const std::string layer = layer_of_weight(state.adapts);
        layers.push_back(files.prefix + layer);
        ends.insert(layer.substr(layer.rfind('.') + 1));
        if (files.stored) is_transposed = !files.stored({state.adapts, DType::f32, {}}).order.keeps();
        const Adapter adapter = nn::adapter_of(options, layer);
        const auto rank = static_cast<double>(adapter.rank);
        const double alpha = adapter.scale * (options.rank_stabilized ? std::sqrt(rank) : rank);
        if (adapter.rank != options.rank) ranks[layers.back()] = adapter.rank;
        if (std::abs(alpha - alpha_of(options.alpha, options.rank)) > 1e-9 * alpha)
            alphas[layers.back()] = number(std::round(alpha * 1e9) / 1e9);
    }
    // Short names where they name no other layer, as PEFT and others write them.
    const bool are_all = std::ranges::none_of(states, [&](const State& state) {
        if (!is_own_weight(state) || state.type.shape.rank() < 2 || !state.name.ends_with(".weight"))
            return false;
        const std::string layer = layer_of_weight(state.name);
        return ends.contains(layer.substr(layer.rfind('.') + 1)) &&
               std::ranges::find(layers, files.prefix + layer) == layers.end();
    });
    nlohmann::ordered_json config = {
        {"peft_type", "LORA"},
        {"task_type",
         model.unit == "tokens" ? nlohmann::ordered_json("CAUSAL_LM") : nlohmann::ordered_json(nullptr)},
        {"base_model_name_or_path",
         base.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(base)},
        {"r", options.rank},
        {"lora_alpha", number(alpha_of(options.alpha, options.rank))},
        {"lora_dropout", options.dropout},
        {"target_modules", are_all ? std::vector<std::string>(ends.begin(), ends.end()) : layers},
        {"rank_pattern", ranks},
        {"alpha_pattern", alphas},
        {"use_rslora", options.rank_stabilized},
        {"use_dora", options.magnitudes},
        {"fan_in_fan_out", is_transposed},
        {"bias", "none"},
        {"modules_to_save", nullptr},
        {"init_lora_weights", true},
        {"inference_mode", true}};
    return config.dump(2) + "\n";
}

WeightFiles adapter_files(const WeightFiles& model) {
    return {.kind = "adapters of this model",
            .prefix = std::string(path_prefix) + model.prefix,
            .stored = stored_part};
}

std::vector<TensorToWrite> stored_adapters(std::vector<TensorToWrite> parts, const WeightFiles& model) {
    const WeightFiles files = adapter_files(model);
    parts = stored_weights(std::move(parts), files);
    for (TensorToWrite& part : parts) part.tensor.name = files.prefix + part.tensor.name;
    return parts;
}

namespace {}  // namespace

std::vector<TensorToWrite> merged_weights(const StateBlock& state, const nn::LoraOptions& options) {
    std::vector<TensorToWrite> weights;
    for (const State& own : state.states()) {
        if (!is_own_weight(own)) continue;
        TensorToWrite& weight = weights.emplace_back();
        weight.tensor = {own.name, DType::f32, own.type.shape.extents()};
        std::shared_ptr<LowRankProduct> product;
        const auto layer = own.name.ends_with(".weight") ? layer_of_weight(own.name) : std::string();
        if (const std::string a = layer + std::string(suffix_a); !layer.empty() && state.has(a)) {
            const Adapter adapter = nn::adapter_of(options, layer);
            product = std::make_shared<LowRankProduct>(adapter, own.type.shape, state.read_f32(a),
                                                       state.read_f32(layer + std::string(suffix_b)));
            if (adapter.magnitude)
                product->set_magnitudes(state.read_f32(layer + std::string(suffix_magnitude)),
                                        [&](std::int64_t first, std::span<float> values) {
                                            state.read_numbers(own.name, first, values);
                                        });
        }
        weight.read = [&state, name = own.name, product](std::uint64_t begin, std::span<std::byte> to) {
            check(begin % sizeof(float) == 0 && to.size() % sizeof(float) == 0, "whole numbers are read");
            const auto first = static_cast<std::int64_t>(begin / sizeof(float));
            std::vector<float> values(to.size() / sizeof(float));
            state.read_numbers(name, first, values);
            if (product) product->apply_to(first, values);
            std::memcpy(to.data(), values.data(), to.size());
        };
    }
    return weights;
}

}  // namespace mantissa
