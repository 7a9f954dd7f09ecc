// The lowest level of instruction sets at which tests run kernels.
#pragma once

#include <cstdlib>

#include "mantissa/device/cpu/isa.h"

namespace mantissa::testing {

/// Tests on emulated tiles (tests/emulated_tiles/) skip lower levels, at which the program's tests ran
/// already.
inline on_cpu::Isa lowest_level() {
    return std::getenv("MANTISSA_TEST_TILES") ? on_cpu::Isa::amx : on_cpu::Isa::generic;
}

}  // namespace mantissa::testing
