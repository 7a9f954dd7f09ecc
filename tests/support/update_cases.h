// Cases of what ends a step: sums over gradients, the finite test, optimizers and what ranks exchange.
#pragma once

#include "tests/support/op_case.h"

namespace mantissa::testing {

std::vector<OpCase> update_cases();

}  // namespace mantissa::testing
