#include "mantissa/passes/differentiate.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/gradient.h"

namespace mantissa::inline v0 {

std::vector<ParameterGradient> differentiate(Graph& graph, Tensor loss, Tensor seed) {
    if (loss.shape().rank() != 0 || !is_floating(loss.dtype()))
        throw UserError(fmt::format("a loss must be a floating-point scalar, got {}", loss.type().text()));
    std::vector<ParameterGradient> gradients;
    std::vector<Tensor> parameters;
    for (std::size_t i = 0; i < graph.states().size(); ++i) {
        const State& state = graph.states()[i];
        if (state.kind != State::Kind::parameter || state.frozen) continue;
        gradients.push_back({static_cast<int>(i), {}});
        parameters.emplace_back(graph, Value{state.node, 0});
    }
    const OriginScope backward(graph, Origin{.scope = "", .stage = Stage::backward});
    if (!seed) seed = constant(graph, 1.0, loss.dtype());
    const std::vector<Tensor> found = backpropagate(graph, {&loss, 1}, {&seed, 1}, parameters);
    for (std::size_t i = 0; i < found.size(); ++i)
        gradients[i].gradient =
            found[i] ? found[i] : constant(graph, 0.0, parameters[i].dtype(), parameters[i].shape());
    return gradients;
}

}  // namespace mantissa
