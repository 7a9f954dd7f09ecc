// Recurrent layers. One matmul before the loop multiplies all inputs; each step multiplies only its state.
#include <fmt/format.h>

#include <cmath>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/scan.h"
#include "mantissa/nn/layers.h"

namespace mantissa::inline v0::nn {

namespace {

using States = std::span<const Tensor>;

/// The parameters of a layer; its product with a state has `gates` parts.
struct RecurrentLayer {
    Tensor of_input, of_state;            // [gates H, C], [gates H, H]
    Tensor bias_of_input, bias_of_state;  // [gates H]; empty: none

    RecurrentLayer(Graph& graph, std::int64_t layer, std::int64_t gates, std::int64_t inputs,
                   const RecurrentOptions& options) {
        const std::int64_t H = options.hidden;
        const Initializer uniform{
            .kind = Initializer::Kind::uniform, .mean = 0, .limit = 1 / std::sqrt(static_cast<double>(H))};
        const auto add = [&](const char* what, Shape shape) {
            return parameter(graph, fmt::format("{}_l{}", what, layer), std::move(shape), uniform);
        };
        of_input = add("weight_ih", {gates * H, inputs});
        of_state = add("weight_hh", {gates * H, H});
        if (!options.bias) return;
        bias_of_input = add("bias_ih", {gates * H});
        bias_of_state = add("bias_hh", {gates * H});
    }
};

/// x [T, B, C] times the input weights, with a bias: [T, B, gates H], in FP32 under every policy, as the loop
/// reads it.
Tensor products_of_inputs(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    std::vector<Tensor> operands{reshape(x, {x.dim(0) * x.dim(1), x.dim(2)}), weight};
    if (bias) operands.push_back(bias);
    const Attributes attributes{{"output", DType::f32}, {"transpose_a", false}, {"transpose_b", true}};
    const Tensor all = call(x.graph(), "matmul", operands, attributes)[0];
    return reshape(all, {x.dim(0), x.dim(1), weight.dim(0)});
}

/// The layer's output: all states but the first.
Tensor after_each_step(const Tensor& states) { return slice(states, 0, 1, states.dim(0)); }

Tensor zero_state(const Tensor& x, std::int64_t hidden) {
    return broadcast_to(constant(x.graph(), 0.0), {x.dim(1), hidden});
}

Tensor lstm_layer(const Tensor& x, const RecurrentLayer& of, std::int64_t hidden) {
    const Tensor bias = of.bias_of_input ? of.bias_of_input + of.bias_of_state : Tensor{};
    const Tensor products = products_of_inputs(x, of.of_input, bias);
    const Tensor zero = zero_state(x, hidden);
    const auto step = [](States states, States parts, States whole) -> ScanStep {
        const Tensor sums = parts[0] + matmul(states[0], whole[0], {.transpose_b = true});
        const std::vector<Tensor> gates = split(sums, 1, 4);
        const Tensor c = sigmoid(gates[1]) * states[1] + sigmoid(gates[0]) * tanh(gates[2]);
        // The sums are kept for the gradient, which would otherwise multiply again.
        return {.states = {sigmoid(gates[3]) * tanh(c), c}, .outputs = {sums}};
    };
    const Scanned all = scan(std::vector{zero, zero}, {&products, 1}, {&of.of_state, 1}, step);
    return after_each_step(all.states[0]);
}

Tensor gru_layer(const Tensor& x, const RecurrentLayer& of, std::int64_t hidden) {
    const Tensor products = products_of_inputs(x, of.of_input, of.bias_of_input);
    const Tensor zero = zero_state(x, hidden);
    const auto step = [](States states, States parts, States whole) -> ScanStep {
        const Tensor h = states[0];
        MatmulOptions options{.transpose_b = true};
        if (whole.size() > 1) options.bias = whole[1];
        const std::vector<Tensor> of_input = split(parts[0], 1, 3);
        const std::vector<Tensor> of_state = split(matmul(h, whole[0], options), 1, 3);
        const Tensor of_reset = of_input[0] + of_state[0], of_update = of_input[1] + of_state[1];
        const Tensor reset = sigmoid(of_reset), update = sigmoid(of_update);
        const Tensor fresh = tanh(of_input[2] + reset * of_state[2]);
        // The outputs are kept for the gradient, which would otherwise multiply again.
        return {.states = {fresh + update * (h - fresh)},
                .outputs = {of_reset, of_update, of_state[2], fresh}};
    };
    std::vector<Tensor> whole{of.of_state};
    if (of.bias_of_state) whole.push_back(of.bias_of_state);
    return after_each_step(scan({&zero, 1}, {&products, 1}, whole, step).states[0]);
}

/// Applies a layer with the time axis first, as the loop reads it.
Tensor recurrent(std::string_view layer, Tensor x, std::string_view name, const RecurrentOptions& options,
                 std::int64_t gates, Tensor (*apply)(const Tensor&, const RecurrentLayer&, std::int64_t)) {
    Graph& graph = x.graph();
    const OriginScope scope(graph, name);
    if (x.rank() != 3)
        refuse(layer, graph.origin, fmt::format("expected [B, T, C], got {}", x.type().text()));
    if (options.hidden < 1 || options.layers < 1)
        refuse(layer, graph.origin,
               fmt::format("hidden and layers must be 1 or more, got {} and {}; set them", options.hidden,
                           options.layers));
    Tensor y = transpose(x, {1, 0, 2});
    for (std::int64_t i = 0; i < options.layers; ++i) {
        const RecurrentLayer parameters(graph, i, gates, y.dim(2), options);
        y = apply(y, parameters, options.hidden);
    }
    return transpose(y, {1, 0, 2});
}

}  // namespace

Tensor lstm(Tensor x, std::string_view name, const RecurrentOptions& options, Where at) {
    const LineScope line(x.graph(at), at);
    return recurrent("lstm", x, name, options, 4, lstm_layer);
}

Tensor gru(Tensor x, std::string_view name, const RecurrentOptions& options, Where at) {
    const LineScope line(x.graph(at), at);
    return recurrent("gru", x, name, options, 3, gru_layer);
}

}  // namespace mantissa::nn
