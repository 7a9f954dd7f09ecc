// Attributes of a cross-entropy. `ignore_negative`: rows whose target is below 0 count for nothing. `rows`:
// it gives the loss of each row, not their mean, and its log-sum-exp has a gradient, too.
#pragma once

#include "mantissa/graph/attributes.h"

namespace mantissa::inline v0 {

inline bool ignores_negative(const Attributes& attributes) {
    return attributes.has("ignore_negative") && attributes.flag("ignore_negative");
}

inline bool gives_rows(const Attributes& attributes) {
    return attributes.has("rows") && attributes.flag("rows");
}

}  // namespace mantissa
