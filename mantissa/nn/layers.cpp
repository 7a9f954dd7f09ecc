#include "mantissa/nn/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::nn {

namespace {
constexpr Initializer zeros{.kind = Initializer::Kind::constant, .mean = 0};
constexpr Initializer ones{.kind = Initializer::Kind::constant, .mean = 1};

std::string in_scope(const Graph& graph, std::string_view name) {
    const std::string& scope = graph.origin.scope;
    return scope.empty() ? std::string(name) : scope + "." + std::string(name);
}

}  // namespace

Tensor parameter(Graph& graph, std::string_view name, Shape shape, const Initializer& initializer) {
    return {graph, graph.add_state({.kind = State::Kind::parameter,
                                    .name = in_scope(graph, name),
                                    .type = {DType::f32, std::move(shape)},
                                    .initializer = initializer})};
}

Initializer glorot_uniform(std::int64_t inputs, std::int64_t outputs) {
    return {.kind = Initializer::Kind::uniform,
            .mean = 0,
            .limit = std::sqrt(6.0 / static_cast<double>(inputs + outputs))};
}

Tensor linear(Tensor x, std::string_view name, const LinearOptions& options, Tensor::Where at) {
    Graph& graph = x.graph();
    const OriginScope scope(graph, name);
    const std::int64_t inputs = x.dim(-1);
    const Tensor weight = parameter(
        graph, "weight", {options.outputs, inputs},
        options.weight.value_or(Initializer{
            .kind = Initializer::Kind::normal, .mean = 0, .standard_deviation = options.standard_deviation}));
    MatmulOptions matmul_options{.transpose_b = true};
    if (options.bias) matmul_options.bias = parameter(graph, "bias", {options.outputs}, zeros);
    const Tensor rows = reshape(x, {-1, inputs}, at);  // [rows, C]
    Shape shape = x.shape();
    shape[-1] = options.outputs;
    return reshape(matmul(rows, weight, matmul_options, at), shape, at);
}

Tensor conv2d(Tensor x, std::string_view name, const Conv2dLayerOptions& options, Tensor::Where at) {
    Graph& graph = x.graph();
    const OriginScope scope(graph, name);
    const auto [rows, columns] = options.window;
    const std::int64_t pixels = rows * columns, channels = x.dim(-1), pad = options.padding;
    const Tensor filter = parameter(graph, "weight", {rows, columns, channels, options.outputs},
                                    glorot_uniform(pixels * channels, pixels * options.outputs));
    Conv2dOptions convolution{.stride = options.stride, .padding = {pad, pad, pad, pad}};
    if (options.bias) convolution.bias = parameter(graph, "bias", {options.outputs}, zeros);
    return mantissa::conv2d(x, filter, convolution, at);
}

Tensor layer_norm(Tensor x, std::string_view name, const LayerNormOptions& options, Tensor::Where at) {
    Graph& graph = x.graph();
    const OriginScope scope(graph, name);
    const Tensor weight = parameter(graph, "weight", {x.dim(-1)}, ones);
    const Tensor bias = options.bias ? parameter(graph, "bias", {x.dim(-1)}, zeros)
                                     : constant(graph, 0.0, DType::f32, {x.dim(-1)});
    return mantissa::layer_norm(x, weight, bias, options.epsilon, at);
}

Tensor rms_norm(Tensor x, std::string_view name, double epsilon, Tensor::Where at) {
    Graph& graph = x.graph();
    const OriginScope scope(graph, name);
    return mantissa::rms_norm(x, parameter(graph, "weight", {x.dim(-1)}, ones), epsilon, at);
}

KeptKeys::KeptKeys(Tensor positions, std::int64_t context, DType dtype)
    : positions_(positions),
      starts_(reshape(slice(positions, 1, 0, 1), {positions.dim(0)})),
      context_(context),
      dtype_(dtype) {}

Tensor KeptKeys::attention(Tensor q, Tensor k, Tensor v, double scale, std::int64_t window) const {
    const std::vector operands{cast(q, dtype_), with_kept("k", cast(k, dtype_)),
                               with_kept("v", cast(v, dtype_)), positions_};
    Attributes attributes{{"scale", scale}};
    if (window > 0 && window < context_) attributes = attributes.with("window", window);
    return cast(call(q.graph(), "kept_attention", operands, attributes)[0], q.dtype());
}

Tensor KeptKeys::with_kept(std::string_view name, Tensor part) const {
    Graph& graph = part.graph();
    const std::string state = fmt::format("cache.{}.{}", graph.origin.scope, name);
    Type type = part.type();
    type.shape[2] = context_;
    const Tensor before(
        graph, graph.add_state({.kind = State::Kind::cache, .name = state, .type = type, .initializer = {}}));
    const Tensor all = write_slice(before, part, starts_, 2);
    graph.add_update(graph.find_state(state), all.value());
    return all;
}

namespace {

/// A state that follows the batches, in the graph's scope.
Tensor running_statistic(Graph& graph, std::string_view name, std::int64_t channels,
                         const Initializer& initializer) {
    return {graph, graph.add_state({.kind = State::Kind::running,
                                    .name = in_scope(graph, name),
                                    .type = {DType::f32, {channels}},
                                    .initializer = initializer})};
}

/// At the end of a step the state follows the statistic of its batch, if the step is a good one: see
/// train/running_statistics.h.
void follow(Tensor running, Tensor statistic, double momentum) {
    Graph& graph = running.graph();
    const OriginScope update(graph, Origin{.scope = graph.origin.scope, .stage = Stage::update});
    const Tensor blended = call1("running_average", {running, statistic}, {{"momentum", momentum}});
    graph.add_update(graph.state_of(running.value().node), blended.value());
}

}  // namespace

Tensor batch_norm(Graph& graph, Tensor x, const Mode& mode, const BatchNormOptions& options,
                  Tensor::Where at) {
    const std::int64_t channels = x.dim(-1);
    const Tensor weight = parameter(graph, "weight", {channels}, ones);
    const Tensor bias = parameter(graph, "bias", {channels}, zeros);
    const Tensor mean = running_statistic(graph, "running_mean", channels, zeros);
    const Tensor variance = running_statistic(graph, "running_var", channels, ones);
    if (!mode.is_training())
        return normalize(x, weight, bias, {.mean = mean, .variance = variance}, options.epsilon, at);
    const BatchNormed normed = mantissa::batch_norm(x, weight, bias, options.epsilon, at);
    const std::int64_t elements = x.shape().elements() / std::max<std::int64_t>(channels, 1);
    if (options.unbiased && elements < 2)
        throw UserError(fmt::format(
            "batch_norm in {}: an unbiased variance needs two elements a channel or more, got {}; train on "
            "more, or set BatchNormOptions::unbiased to false",
            graph.origin.scope, x.type().text()));
    const double count = static_cast<double>(elements);
    follow(mean, normed.mean, options.momentum);
    follow(variance, options.unbiased ? normed.variance * (count / (count - 1)) : normed.variance,
           options.momentum);
    return normed.y;
}

Tensor dropout(Tensor x, double rate, const Mode& mode, Tensor::Where at) {
    if (!mode.is_training()) return x;
    const std::int64_t operation = mode.next_random_operation();
    return rate == 0 ? x : mantissa::dropout(x, mode.random(), rate, operation, at);
}

}  // namespace mantissa::nn
