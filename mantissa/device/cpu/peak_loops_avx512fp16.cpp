// Multiply-adds of FP16 numbers. Compiled everywhere, but so far never run: the machine it was written on has
// none.
#include <immintrin.h>

#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::cpu {

namespace {

struct F16Lanes {
    static constexpr int width = 32, depth_of_word = 1;
    using Sums = __m512h;

    static Sums zero() { return _mm512_setzero_ph(); }
    static Sums broadcast(const std::byte* word) {
        std::int16_t bits;
        __builtin_memcpy(&bits, word, sizeof bits);
        return _mm512_castsi512_ph(_mm512_set1_epi16(bits));
    }
    static Sums multiply_add(Sums row, Sums column, Sums sums) { return _mm512_fmadd_ph(row, column, sums); }
    static void hide(Sums& a) { asm volatile("" : "+v"(a)); }
};

}  // namespace

double f16_loop_avx512_fp16(std::int64_t rounds) {
    constexpr std::uint16_t f16_one = 0x3c00;
    return multiply_add_loop<F16Lanes, 16>(rounds, f16_one);
}

}  // namespace mantissa::cpu
