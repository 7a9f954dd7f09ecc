// Sizes in whole units. Not for instruction-set files, whose copies of it the linker could mix up.
#pragma once

#include <cstdint>

namespace mantissa {

/// The least multiple of `unit` that `size` fits into.
constexpr std::int64_t rounded_up(std::int64_t size, std::int64_t unit) {
    return (size + unit - 1) / unit * unit;
}

}  // namespace mantissa
