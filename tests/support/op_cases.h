// At least one case for every operation: operands and a call. Gradients and kernels are tested over this
// list; a test fails if an operation of the table is missing.
#pragma once

#include <vector>

#include "tests/support/op_case.h"

namespace mantissa::testing {

std::vector<OpCase> op_cases();

}  // namespace mantissa::testing
