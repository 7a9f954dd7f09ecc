// Multiply-adds of AVX2 and FMA.
#include "mantissa/device/cpu/contraction/lanes_avx2.h"
#include "mantissa/device/cpu/modes/lanes_avx2.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct S32Lanes : Avx2IntegerSums {
    static constexpr int depth_of_word = 1;
    using Words = __m256i;
    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) { return broadcast_word(word); }
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm256_add_epi32(sums, _mm256_mullo_epi32(row, column));
    }
};

}  // namespace

double fma_loop_avx2(std::int64_t rounds) { return multiply_add_loop<Avx2Lanes, 12>(rounds, 1.0F); }
double sparse_loop_avx2(std::int64_t rounds) { return sparse_multiply_add_loop<Avx2Lanes, 3, 4>(rounds); }
double f64_loop_avx2(std::int64_t rounds) { return multiply_add_loop<Avx2F64Lanes, 12>(rounds, 1.0); }
// Sums and the rounding of one of them fill the 16 registers; instructions, not latency, bound it.
double f16_loop_avx2(std::int64_t rounds) { return multiply_add_loop<Avx2F16Lanes, 6>(rounds, 1.0F); }
double s32_loop_avx2(std::int64_t rounds) { return multiply_add_loop<S32Lanes, 12>(rounds, 1); }
double s8_loop_avx2(std::int64_t rounds) { return multiply_add_loop<Avx2S8Lanes, 10>(rounds, 0x01010101); }
double b1_loop_avx2(std::int64_t rounds) { return multiply_add_loop<Avx2B1Lanes, 8>(rounds, 1); }

void read_loop_avx2(const float* data, std::int64_t count, std::int64_t repeats) {
    read_floats<Avx2Lanes>(data, count, repeats);
}

}  // namespace mantissa::on_cpu
