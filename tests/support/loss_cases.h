// Cases of losses whose targets are parts of classes.
#pragma once

#include "tests/support/op_case.h"

namespace mantissa::testing {

std::vector<OpCase> soft_loss_cases();

}  // namespace mantissa::testing
