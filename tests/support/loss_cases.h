// Cases of losses with targets that are probabilities of classes.
#pragma once

#include "tests/support/op_case.h"

namespace mantissa::testing {

std::vector<OpCase> soft_loss_cases();

}  // namespace mantissa::testing
