// Walks over rows of weights as the products take them: one by one, or in pairs. Included after the level's
// Operands; see body_products.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/attention/body_movement.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// f(row, Count<rows there>): words of rows, the last perhaps one row short.
template <class F>
MANTISSA_LANES void for_words(std::int64_t rows, F f) {
    std::int64_t r = 0;
    for (; r + Operands::word <= rows; r += Operands::word) f(r, Count<Operands::word>{});
    if (r < rows) f(r, Count<1>{});
}

}  // namespace
}  // namespace mantissa::on_cpu
