// One case or more for every operation: operands and how to call it. Gradients and kernels are tested over
// this list, and a test fails if an operation of the table is missing in op_cases.cpp.
#pragma once

#include <string>
#include <vector>

#include "mantissa/graph/tensor.h"
#include "tests/support/op_case.h"

namespace mantissa::testing {

std::vector<OpCase> op_cases();

/// The three products of one convolution, of images [N, H, W, C] and a filter [R, S, C / groups, K].
std::vector<OpCase> cases_of_convolution(const std::string& name, const Shape& images, const Shape& filter,
                                         const Conv2dOptions& options);

}  // namespace mantissa::testing
