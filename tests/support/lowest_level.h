// The lowest level of instruction sets at which tests run kernels.
#pragma once

#include <cstdlib>

#include "mantissa/device/cpu/isa.h"

namespace mantissa::testing {

/// The program's tests ran at the levels below before they run on tiles that are lent
/// (tests/emulated_tiles/).
inline on_cpu::Isa lowest_level() {
    return std::getenv("MANTISSA_TEST_TILES") ? on_cpu::Isa::amx : on_cpu::Isa::generic;
}

}  // namespace mantissa::testing
