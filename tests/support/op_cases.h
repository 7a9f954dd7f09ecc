// One case or more for every operation: operands and how to call it. Gradients and kernels are tested over
// this list, and a test fails if an operation of the table is missing there.
#pragma once

#include <vector>

#include "tests/support/op_case.h"

namespace mantissa::testing {

std::vector<OpCase> op_cases();

}  // namespace mantissa::testing
