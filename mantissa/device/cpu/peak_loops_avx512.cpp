// Multiply-adds of AVX-512.
#include "mantissa/device/cpu/contraction/lanes_avx512.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::cpu {

double fma_loop_avx512(std::int64_t rounds) { return multiply_add_loop<Avx512Lanes, 16>(rounds, 1.0F); }

}  // namespace mantissa::cpu
