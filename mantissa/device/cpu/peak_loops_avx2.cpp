// Multiply-adds of AVX2 and FMA.
#include "mantissa/device/cpu/contraction/lanes_avx2.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::cpu {

double fma_loop_avx2(std::int64_t rounds) { return multiply_add_loop<Avx2Lanes, 12>(rounds, 1.0F); }

}  // namespace mantissa::cpu
