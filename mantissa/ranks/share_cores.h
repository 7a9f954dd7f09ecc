// Cores that ranks of one host share: each rank keeps to its own.
#pragma once

#include <vector>

#include "mantissa/ranks/ranks.h"

namespace mantissa::inline v0 {

/// Cores that this process may use, by its affinity mask.
std::vector<int> usable_cores();

/// Threads for this rank where none were asked for (0): its threads from now on keep to their cores. Returns
/// `asked` where the launcher gave each rank cores of its own, or OMP_NUM_THREADS sets the number; 0 then
/// means as many as possible. All ranks call it.
int share_cores(Ranks& ranks, int asked);

}  // namespace mantissa
