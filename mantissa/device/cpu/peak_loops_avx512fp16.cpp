// Multiply-adds of FP16 numbers, for the row of `peaks`; no training step uses them.
#include "mantissa/device/cpu/modes/lanes_avx512.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// FP16 by multiply-adds of FP16, which round once: the twin of GenericF16Lanes. They keep subnormals,
/// whatever the control register says.
struct Avx512F16NativeLanes {
    static constexpr int width = 32, depth_of_word = 1;
    using Sums = __m512h;
    using Words = __m512h;

    MANTISSA_MODE_LANES Sums zero() { return _mm512_setzero_ph(); }
    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) {
        std::int16_t bits;
        __builtin_memcpy(&bits, word, sizeof bits);
        return _mm512_castsi512_ph(_mm512_set1_epi16(bits));
    }
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_fmadd_ph(row, column, sums);
    }
    MANTISSA_MODE_LANES void hide(Sums& a) { asm volatile("" : "+v"(a)); }
};

}  // namespace

double f16_loop_avx512_fp16(std::int64_t rounds) {
    constexpr std::uint16_t f16_one = 0x3c00;
    return multiply_add_loop<Avx512F16NativeLanes, 16>(rounds, f16_one);
}

}  // namespace mantissa::on_cpu
