// Operations that importers put together (mantissa/graph/tensor.h), beside those that models write: the
// submodule `operations`.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/engine.h"
#include "mantissa/graph/attributes.h"
#include "mantissa/graph/scan.h"
#include "python/bindings/bindings.h"

namespace mantissa::python {

namespace {

using Extents = std::vector<std::int64_t>;
using Tensors = std::vector<Tensor>;
using Pair = std::array<std::int64_t, 2>;

/// A tensor that may be left out.
Tensor or_empty(const std::optional<Tensor>& x) { return x ? *x : Tensor{}; }

template <class Enum>
Enum one_of(const char* what, const std::string& word,
            std::initializer_list<std::pair<const char*, Enum>> choices) {
    std::string known;
    for (const auto& [name, value] : choices) {
        if (word == name) return value;
        known += (known.empty() ? "" : ", ") + std::string(name);
    }
    throw UserError(std::string(what) + ": there is no '" + word + "'; there are " + known);
}

/// A tensor of these bytes, in the graph of x: row-major elements of the type.
Tensor literal_of(Tensor x, const nb::bytes& bytes, const std::string& dtype, Extents shape) {
    std::vector<std::byte> elements(bytes.size());
    if (bytes.size() > 0) std::memcpy(elements.data(), bytes.data(), bytes.size());
    return literal(x.graph(), SharedData(dtype_named(dtype), std::move(elements)), Shape(std::move(shape)));
}

void bind_sources(nb::module_& module) {
    module.def(
        "constant",
        [](Tensor x, double value, const std::string& dtype, Extents shape) {
            return constant(x.graph(), value, dtype_named(dtype), Shape(std::move(shape)));
        },
        nb::arg("x"), nb::arg("value"), nb::arg("dtype") = "f32", nb::arg("shape") = Extents{},
        "A tensor of equal values in the graph of x");
    module.def("literal", &literal_of, nb::arg("x"), nb::arg("bytes"), nb::arg("dtype"), nb::arg("shape"),
               "A tensor of these elements in the graph of x, row-major");
    module.def(
        "iota",
        [](Tensor x, Extents shape, int axis, const std::string& dtype) {
            return iota(x.graph(), Shape(std::move(shape)), axis, dtype_named(dtype));
        },
        nb::arg("x"), nb::arg("shape"), nb::arg("axis"), nb::arg("dtype") = "i32");
    module.def(
        "random_uniform",
        [](Extents shape) {
            const nn::Mode& mode = mode_of_trace();
            const std::int64_t operation = mode.next_random_operation();
            return random_uniform(mode.random().seed, mode.random().step, operation, Shape(std::move(shape)));
        },
        nb::arg("shape"), "Uniform in [0, 1), other numbers in every step; while training alone");
    module.def(
        "is_training", [] { return mode_of_trace().is_training(); },
        "Whether what is traced is a training step");
}

using Unary = Tensor (*)(Tensor, Where);
using Binary = Tensor (*)(Tensor, Tensor, Where);

constexpr std::pair<const char*, Unary> unaries[] = {
    {"rsqrt", ops::rsqrt}, {"floor", ops::floor},         {"ceil", ops::ceil},
    {"round", ops::round}, {"trunc", ops::trunc},         {"sign", ops::sign},
    {"log1p", ops::log1p}, {"expm1", ops::expm1},         {"atan", ops::atan},
    {"erfc", ops::erfc},   {"is_finite", ops::is_finite}, {"logical_not", ops::logical_not}};

constexpr std::pair<const char*, Binary> binaries[] = {
    {"power", ops::pow},         {"remainder", ops::remainder},     {"floor_divide", ops::floor_divide},
    {"copysign", ops::copysign}, {"logical_and", ops::logical_and}, {"logical_or", ops::logical_or}};

void bind_elements(nb::module_& module) {
    for (const auto& [name, function] : unaries)
        module.def(
            name, [function = function](Tensor x) { return function(x, Where::current()); }, nb::arg("x"));
    for (const auto& [name, function] : binaries)
        module.def(
            name, [function = function](Tensor a, Tensor b) { return function(a, b, Where::current()); },
            nb::arg("a"), nb::arg("b"));
    for (const char* const name : {"bit_and", "bit_or", "bit_xor"})
        module.def(
            name,
            [name](Tensor a, Tensor b) {
                return call1(name, {a, b});
            },
            nb::arg("a"), nb::arg("b"), "Of i32, bit by bit");
    module.def(
        "clamp", [](Tensor x, double least, double most) { return clamp(x, least, most); }, nb::arg("x"),
        nb::arg("least"), nb::arg("most"));
    module.def(
        "erf_gelu", [](Tensor x) { return call1("erf_gelu", {x}); }, nb::arg("x"));
    module.def(
        "elu", [](Tensor x, double alpha) { return elu(x, alpha); }, nb::arg("x"), nb::arg("alpha") = 1.0);
    module.def(
        "dropout",
        [](Tensor x, double rate) {
            const nn::Mode& mode = mode_of_trace();
            const std::int64_t operation = mode.next_random_operation();
            return dropout(x, mode.random(), rate, operation);
        },
        nb::arg("x"), nb::arg("rate"), "While training alone");
}

void bind_axes(nb::module_& module) {
    module.def(
        "broadcast_to", [](Tensor x, Extents shape) { return broadcast_to(x, Shape(std::move(shape))); },
        nb::arg("x"), nb::arg("shape"));
    module.def(
        "strided_slice",
        [](Tensor x, int axis, std::int64_t start, std::int64_t stop, std::int64_t step) {
            return slice(x, axis, start, stop, step);
        },
        nb::arg("x"), nb::arg("axis"), nb::arg("start"), nb::arg("stop"), nb::arg("step"));
    module.def(
        "roll", [](Tensor x, int axis, std::int64_t shift) { return roll(x, axis, shift); }, nb::arg("x"),
        nb::arg("axis"), nb::arg("shift"));
    module.def(
        "pad_edges",
        [](Tensor x, int axis, std::int64_t before, std::int64_t after, const std::string& edges) {
            return pad(x, axis, before, after,
                       one_of<Edges>("edges", edges,
                                     {{"replicated", Edges::replicated}, {"reflected", Edges::reflected}}));
        },
        nb::arg("x"), nb::arg("axis"), nb::arg("before"), nb::arg("after"), nb::arg("edges"));
    module.def(
        "cumsum", [](Tensor x, int axis) { return cumsum(x, axis); }, nb::arg("x"), nb::arg("axis"));
    module.def(
        "gather", [](Tensor x, int axis, Tensor index) { return gather(x, axis, index); }, nb::arg("x"),
        nb::arg("axis"), nb::arg("index"));
    module.def(
        "take", [](Tensor x, int axis, Tensor index) { return take(x, axis, index); }, nb::arg("x"),
        nb::arg("axis"), nb::arg("index"));
    module.def(
        "scatter_add",
        [](Tensor x, int axis, Tensor index, Tensor parts) { return scatter_add(x, axis, index, parts); },
        nb::arg("x"), nb::arg("axis"), nb::arg("index"), nb::arg("parts"));
    const auto order_of = [](bool descending) { return descending ? Order::descending : Order::ascending; };
    module.def(
        "argsort",
        [order_of](Tensor x, int axis, bool descending) { return argsort(x, axis, order_of(descending)); },
        nb::arg("x"), nb::arg("axis"), nb::arg("descending"));
    module.def(
        "sort",
        [order_of](Tensor x, int axis, bool descending) {
            const Sorted sorted = sort(x, axis, order_of(descending));
            return Tensors{sorted.values, sorted.indices};
        },
        nb::arg("x"), nb::arg("axis"), nb::arg("descending"), "Values and indices");
    module.def(
        "top_k",
        [](Tensor x, std::int64_t count, int axis) {
            const Sorted best = top_k(x, count, axis);
            return Tensors{best.values, best.indices};
        },
        nb::arg("x"), nb::arg("count"), nb::arg("axis"), "Values and indices");
}

/// Windows over images ("2d") or volumes ("3d"), whose options have so many axes.
template <std::size_t axes, class ConvOptions, class PoolOptions>
void bind_windows(nb::module_& module, const std::string& kind, auto conv, auto conv_transpose, auto max_pool,
                  auto average_pool, auto adaptive_average_pool) {
    using Axes = std::array<std::int64_t, axes>;
    using Edges = std::array<std::int64_t, 2 * axes>;
    const auto conv_options = [](Axes stride, Edges padding, Axes dilation, std::int64_t groups,
                                 std::optional<Tensor> bias) {
        ConvOptions options;
        options.stride = stride;
        options.padding = padding;
        options.dilation = dilation;
        options.groups = groups;
        options.bias = bias;
        return options;
    };
    const auto pool_options = [](Axes window, Axes stride, Edges padding, bool ceil_mode) {
        PoolOptions options{.window = window, .stride = stride};
        options.padding = padding;
        options.ceil_mode = ceil_mode;
        return options;
    };
    module.def(("conv" + kind).c_str(),
               [=](Tensor x, Tensor filter, Axes stride, Edges padding, Axes dilation, std::int64_t groups,
                   std::optional<Tensor> bias) {
                   return conv(x, filter, conv_options(stride, padding, dilation, groups, bias));
               },
               nb::arg("x"), nb::arg("filter"), nb::arg("stride"), nb::arg("padding"), nb::arg("dilation"),
               nb::arg("groups"), nb::arg("bias") = nb::none(),
               "x [N, axes.., C] under filters [window.., C / groups, K]");
    module.def(
        ("conv_transpose" + kind).c_str(),
        [=](Tensor x, Tensor filter, Axes stride, Edges padding, Axes dilation, std::int64_t groups,
            Axes more, std::optional<Tensor> bias) {
            return conv_transpose(x, filter, conv_options(stride, padding, dilation, groups, bias), more);
        },
        nb::arg("x"), nb::arg("filter"), nb::arg("stride"), nb::arg("padding"), nb::arg("dilation"),
        nb::arg("groups"), nb::arg("more"), nb::arg("bias") = nb::none(),
        "The gradient of the input to a convolution by these filters, with `more` places behind each axis");
    module.def(("max_pool" + kind).c_str(),
               [=](Tensor x, Axes window, Axes stride, Edges padding, bool ceil_mode) {
                   return max_pool(x, pool_options(window, stride, padding, ceil_mode));
               },
               nb::arg("x"), nb::arg("window"), nb::arg("stride"), nb::arg("padding"), nb::arg("ceil_mode"));
    module.def(("average_pool" + kind).c_str(),
               [=](Tensor x, Axes window, Axes stride, Edges padding, bool ceil_mode, bool count_padding) {
                   PoolOptions options = pool_options(window, stride, padding, ceil_mode);
                   options.count_padding = count_padding;
                   return average_pool(x, options);
               },
               nb::arg("x"), nb::arg("window"), nb::arg("stride"), nb::arg("padding"), nb::arg("ceil_mode"),
               nb::arg("count_padding"));
    module.def(("adaptive_average_pool" + kind).c_str(),
               [=](Tensor x, Axes extents) { return adaptive_average_pool(x, extents); }, nb::arg("x"),
               nb::arg("extents"));
}

/// A function whose last argument says where it was called, as the functions of Python have it.
#define MANTISSA_CALLED_HERE(function) [](const auto&... given) { return function(given...); }

void bind_images(nb::module_& module) {
    bind_windows<2, Conv2dOptions, Pool2dOptions>(
        module, "2d", MANTISSA_CALLED_HERE(conv2d), MANTISSA_CALLED_HERE(conv_transpose2d),
        MANTISSA_CALLED_HERE(max_pool2d), MANTISSA_CALLED_HERE(average_pool2d),
        MANTISSA_CALLED_HERE(adaptive_average_pool2d));
    bind_windows<3, Conv3dOptions, Pool3dOptions>(
        module, "3d", MANTISSA_CALLED_HERE(conv3d), MANTISSA_CALLED_HERE(conv_transpose3d),
        MANTISSA_CALLED_HERE(max_pool3d), MANTISSA_CALLED_HERE(average_pool3d),
        MANTISSA_CALLED_HERE(adaptive_average_pool3d));
    const auto sampling_of = [](const std::string& word) {
        return one_of<Sampling>("sampling", word,
                                {{"bilinear", Sampling::bilinear}, {"nearest", Sampling::nearest}});
    };
    module.def(
        "resize",
        [sampling_of](Tensor x, Pair extents, const std::string& sampling, bool align_corners) {
            return resize(x, extents, {.sampling = sampling_of(sampling), .align_corners = align_corners});
        },
        nb::arg("x"), nb::arg("extents"), nb::arg("sampling"), nb::arg("align_corners"));
    module.def(
        "grid_sample",
        [sampling_of](Tensor x, Tensor grid, const std::string& sampling, const std::string& outside,
                      bool align_corners) {
            return grid_sample(
                x, grid,
                {.sampling = sampling_of(sampling),
                 .outside = one_of<Outside>("outside", outside,
                                            {{"zeros", Outside::zeros}, {"border", Outside::border}}),
                 .align_corners = align_corners});
        },
        nb::arg("x"), nb::arg("grid"), nb::arg("sampling"), nb::arg("outside"), nb::arg("align_corners"));
}

void bind_norms(nb::module_& module) {
    module.def(
        "layer_norm",
        [](Tensor x, Tensor gamma, Tensor beta, double epsilon) {
            return layer_norm(x, gamma, beta, epsilon);
        },
        nb::arg("x"), nb::arg("gamma"), nb::arg("beta"), nb::arg("epsilon"));
    module.def(
        "rotary", [](Tensor x, Tensor cosine, Tensor sine) { return rotary(x, cosine, sine); }, nb::arg("x"),
        nb::arg("cosine"), nb::arg("sine"),
        "Rotary positions: turns pairs i and i + D/2 of heads [B, T, H, D] by angles [T, D/2]");
    module.def(
        "softmax_or_zero",
        [](Tensor x) {
            return call1("softmax", {x}, {{"zero_rows", true}});
        },
        nb::arg("x"), "Over the last axis; zeros where a row is -infinity only");
    module.def(
        "rms_norm", [](Tensor x, Tensor gamma, double epsilon) { return rms_norm(x, gamma, epsilon); },
        nb::arg("x"), nb::arg("gamma"), nb::arg("epsilon"));
    module.def(
        "batch_norm",
        [](Tensor x, Tensor gamma, Tensor beta, double epsilon) {
            const BatchNormed normed = batch_norm(x, gamma, beta, epsilon);
            return Tensors{normed.y, normed.mean, normed.variance};
        },
        nb::arg("x"), nb::arg("gamma"), nb::arg("beta"), nb::arg("epsilon"),
        "The result, mean and biased variance of each channel");
    module.def(
        "normalize",
        [](Tensor x, Tensor gamma, Tensor beta, Tensor mean, Tensor variance, double epsilon) {
            return normalize(x, gamma, beta, {.mean = mean, .variance = variance}, epsilon);
        },
        nb::arg("x"), nb::arg("gamma"), nb::arg("beta"), nb::arg("mean"), nb::arg("variance"),
        nb::arg("epsilon"));
    module.def(
        "group_norm",
        [](Tensor x, std::int64_t groups, Tensor gamma, Tensor beta, double epsilon) {
            return group_norm(x, groups, gamma, beta, epsilon);
        },
        nb::arg("x"), nb::arg("groups"), nb::arg("gamma"), nb::arg("beta"), nb::arg("epsilon"));
    module.def(
        "weight_norm",
        [](Tensor direction, Tensor length, int axis) { return weight_norm(direction, length, axis); },
        nb::arg("direction"), nb::arg("length"), nb::arg("axis"));
}

void bind_products(nb::module_& module) {
    module.def(
        "matmul",
        [](Tensor a, Tensor b, bool transpose_a, bool transpose_b, std::optional<Tensor> bias) {
            return matmul(a, b, {.transpose_a = transpose_a, .transpose_b = transpose_b, .bias = bias});
        },
        nb::arg("a"), nb::arg("b"), nb::arg("transpose_a") = false, nb::arg("transpose_b") = false,
        nb::arg("bias") = nb::none());
    module.def(
        "attention",
        [](Tensor q, Tensor k, Tensor v, bool causal, double scale) {
            return attention(q, k, v, {.causal = causal, .corner = AttentionCorner::first, .scale = scale});
        },
        nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("causal"), nb::arg("scale"),
        "Causal: the first query sees the first key");
    module.def(
        "embedding_bag",
        [](Tensor table, Tensor ids, const std::string& bag, std::optional<Tensor> weights,
           std::optional<std::int64_t> ignore_id) {
            return embedding_bag(
                table, ids,
                {.bag = one_of<Bag>("bag", bag, {{"sum", Bag::sum}, {"mean", Bag::mean}, {"max", Bag::max}}),
                 .weights = or_empty(weights),
                 .ignore_id = ignore_id});
        },
        nb::arg("table"), nb::arg("ids"), nb::arg("bag"), nb::arg("weights") = nb::none(),
        nb::arg("ignore_id") = nb::none());
    module.def(
        "grouped_matmul",
        [](Tensor x, Tensor w, Tensor counts, bool transposed) {
            return grouped_matmul(x, w, counts,
                                  transposed ? GroupedWeights::transposed : GroupedWeights::as_multiplied);
        },
        nb::arg("x"), nb::arg("w"), nb::arg("counts"), nb::arg("transposed") = false);
    module.def(
        "cross_entropy",
        [](Tensor logits, Tensor targets, std::optional<Tensor> class_weights, double label_smoothing,
           std::optional<std::int64_t> ignore_index, const std::string& reduction) {
            return cross_entropy(
                logits, targets,
                {.class_weights = or_empty(class_weights),
                 .label_smoothing = label_smoothing,
                 .ignore_index = ignore_index,
                 .reduction = one_of<Reduction>(
                     "reduction", reduction,
                     {{"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}})});
        },
        nb::arg("logits"), nb::arg("targets"), nb::arg("class_weights") = nb::none(),
        nb::arg("label_smoothing") = 0.0, nb::arg("ignore_index") = nb::none(),
        nb::arg("reduction") = "mean");
}

/// A loop over time whose body is a function of Python: of lists of states, parts and what is whole, it
/// gives a pair of lists, states and outputs.
nb::tuple scan_of(const Tensors& states, const Tensors& sequences, const Tensors& whole,
                  const nb::callable& body, bool backward) {
    const ScanBody record = [&](std::span<const Tensor> now, std::span<const Tensor> parts,
                                std::span<const Tensor> all) -> ScanStep {
        const auto list = [](std::span<const Tensor> tensors) {
            return nb::cast(Tensors(tensors.begin(), tensors.end()));
        };
        const auto made = nb::cast<nb::tuple>(body(list(now), list(parts), list(all)));
        return {.states = nb::cast<Tensors>(made[0]), .outputs = nb::cast<Tensors>(made[1])};
    };
    const Scanned scanned =
        scan(states, sequences, whole, record, backward ? Steps::backward : Steps::forward);
    return nb::make_tuple(scanned.states, scanned.outputs);
}

}  // namespace

void bind_operations(nb::module_& module) {
    nb::module_ operations = module.def_submodule("operations", "Operations that importers put together");
    bind_sources(operations);
    bind_elements(operations);
    bind_axes(operations);
    bind_images(operations);
    bind_norms(operations);
    bind_products(operations);
    operations.def("scan", &scan_of, nb::arg("states"), nb::arg("sequences"), nb::arg("whole"),
                   nb::arg("body"), nb::arg("backward") = false);
}

}  // namespace mantissa::python
