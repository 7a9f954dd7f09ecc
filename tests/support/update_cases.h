// Cases of the end of a step: sums over gradients, the finite test, optimizers and exchanges of ranks.
#pragma once

#include "tests/support/op_case.h"

namespace mantissa::testing {

std::vector<OpCase> update_cases();

}  // namespace mantissa::testing
