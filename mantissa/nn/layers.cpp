#include "mantissa/nn/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::nn {

namespace {
constexpr Initializer zeros{.kind = Initializer::Kind::constant, .mean = 0};
constexpr Initializer ones{.kind = Initializer::Kind::constant, .mean = 1};

std::string in_scope(const Graph& graph, std::string_view name) {
    const std::string& scope = graph.origin.scope;
    return scope.empty() ? std::string(name) : scope + "." + std::string(name);
}

/// Gives nodes and states recorded while it lives the layer's name and the line that called it.
class LayerScope {
  public:
    LayerScope(Tensor x, std::string_view name, Where at)
        : scope_(graph_of(x, name, at), name), line_(x.graph(), at) {}

  private:
    static Graph& graph_of(Tensor x, std::string_view name, Where at) {
        if (!x) refuse(name, {.scope = {}, .line = at}, "the layer is given an empty Tensor");
        return x.graph();
    }

    OriginScope scope_;
    LineScope line_;
};

/// The layer's input channels, after checks of its input and, if given, its outputs.
std::int64_t channels_of(std::string_view layer, Tensor x, std::int64_t outputs = 1) {
    const Origin& origin = x.graph().origin;
    if (x.rank() == 0) refuse(layer, origin, "expected [..., C], got " + x.type().text());
    if (outputs < 1)
        refuse(layer, origin, fmt::format("outputs must be 1 or more, got {}; set them", outputs));
    return x.dim(-1);
}

}  // namespace

Scope::Scope(Graph& graph, std::string_view name) : scope_(new OriginScope(graph, name)) {}
Scope::Scope(Tensor in_graph_of, std::string_view name) : Scope(in_graph_of.graph(), name) {}
Scope::~Scope() = default;

Tensor parameter(Graph& graph, std::string_view name, Shape shape, const Initializer& initializer, Where at) {
    const LineScope line(graph, at);
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

Tensor linear(Tensor x, std::string_view name, const LinearOptions& options, Where at) {
    const LayerScope scope(x, name, at);
    Graph& graph = x.graph();
    const std::int64_t inputs = channels_of("linear", x, options.outputs);
    const Tensor weight = parameter(
        graph, "weight", {options.outputs, inputs},
        options.weight.value_or(Initializer{
            .kind = Initializer::Kind::normal, .mean = 0, .standard_deviation = options.standard_deviation}));
    MatmulOptions matmul_options{.transpose_b = true};
    if (options.bias) matmul_options.bias = parameter(graph, "bias", {options.outputs}, zeros);
    Shape shape = x.shape();
    shape[-1] = 1;
    const Tensor rows = reshape(x, {shape.elements(), inputs});  // [rows, C]
    shape[-1] = options.outputs;
    return reshape(matmul(rows, weight, matmul_options), shape);
}

Tensor conv2d(Tensor x, std::string_view name, const Conv2dLayerOptions& options, Where at) {
    const LayerScope scope(x, name, at);
    Graph& graph = x.graph();
    const auto [rows, columns] = options.window;
    const std::int64_t pixels = rows * columns, pad = options.padding, groups = options.groups;
    const std::int64_t channels = channels_of("conv2d", x, options.outputs) / groups;
    const Tensor filter = parameter(graph, "weight", {rows, columns, channels, options.outputs},
                                    glorot_uniform(pixels * channels, pixels * options.outputs / groups));
    Conv2dOptions convolution{.stride = options.stride,
                              .padding = {pad, pad, pad, pad},
                              .dilation = {options.dilation, options.dilation},
                              .groups = groups};
    if (options.bias) convolution.bias = parameter(graph, "bias", {options.outputs}, zeros);
    return ops::conv2d(x, filter, convolution);
}

Tensor layer_norm(Tensor x, std::string_view name, const LayerNormOptions& options, Where at) {
    const LayerScope scope(x, name, at);
    Graph& graph = x.graph();
    const std::int64_t channels = channels_of("layer_norm", x);
    const Tensor weight = parameter(graph, "weight", {channels}, ones);
    const Tensor bias = options.bias ? parameter(graph, "bias", {channels}, zeros)
                                     : constant(graph, 0.0, DType::f32, {channels});
    return ops::layer_norm(x, weight, bias, options.epsilon);
}

Tensor rms_norm(Tensor x, std::string_view name, double epsilon, Where at) {
    const LayerScope scope(x, name, at);
    const Tensor weight = parameter(x.graph(), "weight", {channels_of("rms_norm", x)}, ones);
    return ops::rms_norm(x, weight, epsilon);
}

KeyCache::KeyCache(Tensor positions, std::int64_t context, DType dtype)
    : positions_(positions),
      starts_(reshape(slice(positions, 1, 0, 1), {positions.dim(0)})),
      context_(context),
      dtype_(dtype) {}

Tensor KeyCache::attention(Tensor q, Tensor k, Tensor v, double scale,
                           const CachedAttentionOptions& options) const {
    const std::vector operands{cast(q, dtype_), with_kept("k", cast(k, dtype_)),
                               with_kept("v", cast(v, dtype_)), positions_};
    Attributes attributes{{"scale", scale}};
    if (options.window > 0 && options.window < context_)
        attributes = attributes.with("window", options.window);
    if (options.cap > 0) attributes = attributes.with("cap", options.cap);
    return cast(call(q.graph(), "cached_attention", operands, attributes)[0], q.dtype());
}

Tensor KeyCache::with_kept(std::string_view name, Tensor part) const {
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

bool is_frozen(Tensor state) {
    const Graph& graph = state.graph();
    return graph.state(graph.state_of(state.value().node)).frozen;
}

/// A state that follows the batches, in the graph's scope.
Tensor running_statistic(Graph& graph, std::string_view name, std::int64_t channels,
                         const Initializer& initializer) {
    return {graph, graph.add_state({.kind = State::Kind::running,
                                    .name = in_scope(graph, name),
                                    .type = {DType::f32, {channels}},
                                    .initializer = initializer})};
}

/// Updates the state by the statistic of its batch at the end of a step, if the step is applied: see
/// train/running_statistics.h.
void follow(Tensor running, Tensor statistic, double momentum) {
    if (is_frozen(running)) return;
    Graph& graph = running.graph();
    const OriginScope update(
        graph, Origin{.scope = graph.origin.scope, .stage = Stage::update, .line = graph.origin.line});
    const Tensor blended = call1("running_average", {running, statistic}, {{"momentum", momentum}});
    graph.add_update(graph.state_of(running.value().node), blended.value());
}

}  // namespace

Tensor batch_norm(Tensor x, std::string_view name, const Mode& mode, const BatchNormOptions& options,
                  Where at) {
    const LayerScope scope(x, name, at);
    Graph& graph = x.graph();
    const std::int64_t channels = channels_of("batch_norm", x);
    const Tensor weight = parameter(graph, "weight", {channels}, ones);
    const Tensor bias = parameter(graph, "bias", {channels}, zeros);
    const Tensor mean = running_statistic(graph, "running_mean", channels, zeros);
    const Tensor variance = running_statistic(graph, "running_var", channels, ones);
    if (!mode.is_training() || (is_frozen(mean) && is_frozen(variance)))
        return normalize(x, weight, bias, {.mean = mean, .variance = variance}, options.epsilon);
    const BatchNormed normed = ops::batch_norm(x, weight, bias, options.epsilon);
    const std::int64_t elements = x.shape().elements() / std::max<std::int64_t>(channels, 1);
    if (options.unbiased && elements < 2)
        refuse("batch_norm", graph.origin,
               fmt::format(
                   "an unbiased variance needs two elements a channel or more, got {}; train on more, or "
                   "set BatchNormOptions::unbiased to false",
                   x.type().text()));
    const double count = static_cast<double>(elements);
    follow(mean, normed.mean, options.momentum);
    follow(variance, options.unbiased ? normed.variance * (count / (count - 1)) : normed.variance,
           options.momentum);
    return normed.y;
}

Tensor dropout(Tensor x, double rate, const Mode& mode, Where at) {
    if (!mode.is_training()) return x;
    const std::int64_t operation = mode.next_random_operation();
    return rate == 0 ? x : ops::dropout(x, mode.random(), rate, operation, at);
}

}  // namespace mantissa::nn
