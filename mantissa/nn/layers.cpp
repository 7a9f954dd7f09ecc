#include "mantissa/nn/layers.h"

namespace mantissa::inline v0::nn {

namespace {
constexpr Initializer zeros{.kind = Initializer::Kind::constant, .mean = 0};
constexpr Initializer ones{.kind = Initializer::Kind::constant, .mean = 1};
}  // namespace

Tensor parameter(Graph& graph, std::string_view name, Shape shape, const Initializer& initializer) {
    const std::string& scope = graph.origin.scope;
    const std::string full = scope.empty() ? std::string(name) : scope + "." + std::string(name);
    return {graph, graph.add_state({.kind = State::Kind::parameter,
                                    .name = full,
                                    .type = {DType::f32, std::move(shape)},
                                    .initializer = initializer})};
}

Tensor linear(Tensor x, std::string_view name, const LinearOptions& options, Tensor::Where at) {
    Graph& graph = x.graph();
    const OriginScope scope(graph, name);
    const std::int64_t inputs = x.dim(-1);
    const Tensor weight = parameter(
        graph, "weight", {options.outputs, inputs},
        {.kind = Initializer::Kind::normal, .mean = 0, .standard_deviation = options.standard_deviation});
    MatmulOptions matmul_options{.transpose_b = true};
    if (options.bias) matmul_options.bias = parameter(graph, "bias", {options.outputs}, zeros);
    const Tensor rows = reshape(x, {-1, inputs}, at);  // [rows, C]
    Shape shape = x.shape();
    shape[-1] = options.outputs;
    return reshape(matmul(rows, weight, matmul_options, at), shape, at);
}

Tensor layer_norm(Tensor x, std::string_view name, const LayerNormOptions& options, Tensor::Where at) {
    Graph& graph = x.graph();
    const OriginScope scope(graph, name);
    const Tensor weight = parameter(graph, "weight", {x.dim(-1)}, ones);
    const Tensor bias = options.bias ? parameter(graph, "bias", {x.dim(-1)}, zeros)
                                     : constant(graph, 0.0, DType::f32, {x.dim(-1)});
    return mantissa::layer_norm(x, weight, bias, options.epsilon, at);
}

Tensor dropout(Tensor x, double rate, const Mode& mode, Tensor::Where at) {
    if (!mode.is_training()) return x;
    const std::int64_t operation = mode.next_random_operation();
    return rate == 0 ? x : mantissa::dropout(x, mode.random(), rate, operation, at);
}

}  // namespace mantissa::nn
