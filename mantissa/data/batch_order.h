// The order of examples in words.
#pragma once

#include <string>

#include "mantissa/data/batch.h"

namespace mantissa::inline v0 {

/// "in their order", "in the random order of seed 7".
std::string order_text(const BatchOptions& options);

}  // namespace mantissa
