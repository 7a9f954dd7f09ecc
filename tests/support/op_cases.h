// One case or more for every operation: operands and how to call it. Gradients and kernels are tested over
// this list, and a test fails if an operation of the table is missing in op_cases.cpp.
#pragma once

#include "tests/support/op_case.h"

namespace mantissa::testing {

std::vector<OpCase> op_cases();

}  // namespace mantissa::testing
