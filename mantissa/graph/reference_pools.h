// The pools, in FP64: entries of the reference evaluator, in a file of their own.
#pragma once

#include <span>
#include <vector>

#include "mantissa/graph/reference.h"

namespace mantissa::inline v0::reference {

using Inputs = std::span<const ReferenceTensor* const>;

/// The maxima, and which element of its window each was, counted in row-major order.
std::vector<std::vector<double>> max_pool2d(const Node&, Inputs);
std::vector<std::vector<double>> max_pool2d_grad(const Node&, Inputs);
/// With windows or adaptive.
std::vector<std::vector<double>> average_pool2d(const Node&, Inputs);
std::vector<std::vector<double>> average_pool2d_grad(const Node&, Inputs);

}  // namespace mantissa::reference
