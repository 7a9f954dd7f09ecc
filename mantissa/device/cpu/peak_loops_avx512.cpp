// Multiply-adds of AVX-512.
#include "mantissa/device/cpu/contraction/lanes_avx512.h"
#include "mantissa/device/cpu/intrinsics.h"
#include "mantissa/device/cpu/peak_body.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct Avx512F64Lanes : VectorLanes<double, 64> {
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_fmadd_pd(row, column, sums);
    }
};

/// As OddLanes, but of the sum rounded down and rounded up, one is odd. Masks of all lanes, since GCC 12
/// warns of the undefined operand inside the intrinsics without one.
struct Avx512F16Lanes : VectorLanes<float, 64> {
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        const __m512 down =
            _mm512_fmadd_round_ps(row, column, sums, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        const __m512 up = _mm512_fmadd_round_ps(row, column, sums, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
        const __mmask16 odd = _mm512_test_epi32_mask(_mm512_castps_si512(down), _mm512_set1_epi32(1));
        return _mm512_maskz_cvtph_ps(0xffff,
                                     _mm512_maskz_cvtps_ph(0xffff, _mm512_mask_mov_ps(up, odd, down),
                                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
};

}  // namespace

FormatUnits peak_units_avx512() {
    const FormatUnits avx2 = peak_units_avx2();
    return {.f64 = unit_of<Avx512F64Lanes, 16, f64_one>(1, "FMA, 512 bits"),
            .f32 = unit_of<Avx512Lanes, 16, f32_one>(1, "FMA, 512 bits"),
            .s32 = unit_of<VectorLanes<std::uint32_t, 64>, 16, 1>(2, "vpmulld and vpaddd, 512 bits"),
            .s8 = avx2.s8,
            .b1 = avx2.b1,
            .f16_as_f32 = unit_of<Avx512F16Lanes, 16, f32_one>(6, "FP32, each sum rounded to FP16, 512 bits"),
            .sparse = sparse_multiply_add_loop<Avx512Lanes, 4, 6>,
            .read = read_floats<Avx512Lanes>};
}

}  // namespace mantissa::on_cpu
