// Multiplications and additions of SSE, the level every x86-64 CPU has.
#include "mantissa/device/cpu/contraction/lanes_generic.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::cpu {

double fma_loop_generic(std::int64_t rounds) { return multiply_add_loop<GenericLanes, 12>(rounds, 1.0F); }

}  // namespace mantissa::cpu
