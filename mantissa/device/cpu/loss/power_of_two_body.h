// 2^y for the fused linear cross-entropy, where no instruction scales by powers of two. A level's source
// includes its lanes before this file. In an anonymous namespace, so that each level keeps its own copy.
#pragma once

#include "mantissa/numerics/exp2_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// A power that is too small for a normal number is taken for 2^-126, which is nothing beside any sum.
MANTISSA_LONG_LANES Lanes::Float power_of_two(Lanes::Float y) {
    constexpr Lanes operations{};
    return elementary::exp2_inside(operations, Lanes::maximum(Lanes::constant(elementary::exp2_least), y));
}

}  // namespace
}  // namespace mantissa::on_cpu
