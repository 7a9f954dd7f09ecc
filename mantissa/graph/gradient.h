// Reverse-mode differentiation of a graph by itself, and of composites' definitions.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

/// Appends the gradient of sum_i <outputs[i], cotangents[i]> by each of `wrt` and returns it; an empty tensor
/// where the outputs do not depend on it. Each is the whole gradient: along every path, also through others
/// of `wrt`. A value that stands twice in `wrt` gets it twice. Contributions are added in the order of the
/// uses, met going backwards. New nodes keep the scope of the node that they differentiate, under
/// Stage::backward.
std::vector<Tensor> backpropagate(Graph& graph, std::span<const Tensor> outputs,
                                  std::span<const Tensor> cotangents, std::span<const Tensor> wrt);

/// A composite's definition, differentiated: how gradient composites are defined.
struct DefinitionGradient {
    std::string_view op;
    std::vector<Tensor> inputs;
    std::vector<Tensor> cotangents;  ///< one per output; empty where there is none
    /// Outputs of the forward operation that were kept: (index, value). The gradient reads these instead of
    /// computing them again.
    std::vector<std::pair<int, Tensor>> saved;
};

/// The gradients by every input, empty where there is none: by each operand of this operation alone, though
/// operands may be one value or depend on each other.
std::vector<Tensor> differentiate_definition(const DefinitionGradient& gradient, Graph& graph,
                                             const Attributes& attributes);

}  // namespace mantissa
