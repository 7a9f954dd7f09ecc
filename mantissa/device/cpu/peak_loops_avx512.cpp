// Multiply-adds of AVX-512.
#include <immintrin.h>

#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::cpu {

double fma_loop_avx512(std::int64_t rounds) {
    // 16 sums in flight: more than latency times units, 4 or 5 times 2. They tend to 1, so no value is
    // subnormal.
    constexpr int sums_in_flight = 16;
    __m512 sums[sums_in_flight];
#pragma GCC unroll 16
    for (int i = 0; i < sums_in_flight; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
    const __m512 factor = _mm512_set1_ps(0.75F), term = _mm512_set1_ps(0.25F);
    for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
        for (int i = 0; i < sums_in_flight; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
    }
    // What nobody reads the compiler would leave out.
#pragma GCC unroll 16
    for (int i = 0; i < sums_in_flight; ++i) asm volatile("" ::"v"(sums[i]));
    return static_cast<double>(rounds) * sums_in_flight * 16 * 2;
}

}  // namespace mantissa::cpu
