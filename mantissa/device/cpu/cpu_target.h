// The facts of this CPU at a level of instruction sets, from which all decisions above this room follow.
// Makes no kernel and runs none, so that tests can ask for the facts of CPUs that are not there.
#pragma once

#include "mantissa/device/cpu/isa.h"
#include "mantissa/graph/target.h"
#include "mantissa/ranks/ranks.h"

namespace mantissa::inline v0::on_cpu {

/// By best_isa(), core_rates() and cache_sizes().
Target cpu_target(Isa isa, int threads);

/// Rank 0's level, since units differ in their bits; `mine` without ranks. A rank that lacks that level keeps
/// its own, and is refused when ranks compare their settings (require_alike). All ranks call it.
Isa level_of_all(Isa mine, Ranks* ranks);

}  // namespace mantissa::on_cpu
