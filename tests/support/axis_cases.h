// Cases of functions along an axis that are made of other operations, each under its main operation.
#pragma once

#include "tests/support/op_case.h"

namespace mantissa::testing {

std::vector<OpCase> axis_cases();

}  // namespace mantissa::testing
