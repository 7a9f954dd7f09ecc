// What the attribute `ignore_negative` of a cross-entropy says: rows whose target is below 0 count for
// nothing.
#pragma once

#include "mantissa/graph/attributes.h"

namespace mantissa::inline v0 {

inline bool ignores_negative(const Attributes& attributes) {
    return attributes.has("ignore_negative") && attributes.flag("ignore_negative");
}

}  // namespace mantissa
