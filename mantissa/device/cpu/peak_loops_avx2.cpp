// Multiply-adds of AVX2 and FMA.
#include "mantissa/device/cpu/contraction/lanes_avx2.h"
#include "mantissa/device/cpu/peak_body.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct Avx2F64Lanes : VectorLanes<double, 32> {
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm256_fmadd_pd(row, column, sums);
    }
};

struct Avx2F16Lanes : OddLanes<32> {
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        return _mm256_cvtph_ps(_mm256_cvtps_ph(odd_sum(row, column, sums), nearest));
    }
};

/// Ones are counted by looking up each half of a byte.
struct Avx2B1Lanes : VectorLanes<std::uint32_t, 32, 32> {
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        const auto bits = reinterpret_cast<__m256i>(row ^ column);
        const __m256i half = _mm256_set1_epi8(0x0f);
        const __m256i ones_of =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
        const __m256i low = _mm256_shuffle_epi8(ones_of, _mm256_and_si256(bits, half));
        const __m256i high = _mm256_shuffle_epi8(ones_of, _mm256_and_si256(_mm256_srli_epi16(bits, 4), half));
        const __m256i of_bytes = _mm256_add_epi8(low, high);
        const __m256i of_pairs = _mm256_maddubs_epi16(of_bytes, _mm256_set1_epi8(1));
        return sums + reinterpret_cast<Sums>(_mm256_madd_epi16(of_pairs, _mm256_set1_epi16(1)));
    }
};

}  // namespace

FormatUnits peak_units_avx2() {
    return {.f64 = unit_of<Avx2F64Lanes, 12, f64_one>(1, "FMA, 256 bits"),
            .f32 = unit_of<Avx2Lanes, 12, f32_one>(1, "FMA, 256 bits"),
            .s32 = unit_of<VectorLanes<std::uint32_t, 32>, 12, 1>(2, "vpmulld and vpaddd, 256 bits"),
            .s8 = unit_of<Avx2S8Lanes, 10, s8_ones, 4>(4, "vpmaddwd and vpaddd of each half, 256 bits"),
            .b1 = unit_of<Avx2B1Lanes, 8, 1>(10, "vpxor, vpshufb and sums, 256 bits"),
            // Sums and the registers that round one of them fill all 16; instructions, not latency,
            // bound it.
            .f16_as_f32 = unit_of<Avx2F16Lanes, 6, f32_one>(18, "FP32, each sum rounded to FP16, 256 bits"),
            .sparse = sparse_multiply_add_loop<Avx2Lanes, 3, 4>,
            .read = read_floats<Avx2Lanes>};
}

}  // namespace mantissa::on_cpu
