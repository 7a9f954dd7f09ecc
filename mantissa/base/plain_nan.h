// NaN as it is printed: x86 makes a NaN with a sign of infinity - infinity, and formatting would show it.
#pragma once

#include <cmath>
#include <concepts>
#include <limits>

namespace mantissa::inline v0 {

/// The number; a NaN without its sign, so that it reads "nan" and never "-nan".
template <std::floating_point Number>
Number plain_nan(Number number) {
    return std::isnan(number) ? std::numeric_limits<Number>::quiet_NaN() : number;
}

}  // namespace mantissa
