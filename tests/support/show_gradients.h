// An update that changes nothing: the loss and every gradient become results, for tests of a training step.
#pragma once

#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/differentiate.h"

namespace mantissa::testing {

inline void show_gradients(Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
    graph.add_result("loss", loss.value());
    for (const ParameterGradient& parameter : gradients)
        graph.add_result(graph.states()[static_cast<std::size_t>(parameter.state)].name,
                         parameter.gradient.value());
}

}  // namespace mantissa::testing
