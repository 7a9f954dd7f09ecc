// The levels of instruction sets at which tests run kernels.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "mantissa/device/cpu/isa.h"
#include "tests/support/lowest_level.h"

namespace mantissa::on_cpu {

/// The levels this CPU can run.
inline std::vector<Isa> testable_levels() {
    std::vector<Isa> levels;
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx})
        if (isa >= testing::lowest_level() && isa <= best_isa()) levels.push_back(isa);
    return levels;
}

/// Calls `check` at each of them, whose name stands with what fails there.
template <class Check>
void at_every_level(Check check) {
    for (const Isa isa : testable_levels()) {
        SCOPED_TRACE(name_of(isa));
        check(isa);
    }
}

}  // namespace mantissa::on_cpu
