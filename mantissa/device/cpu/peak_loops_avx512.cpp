// Multiply-adds of AVX-512.
#include "mantissa/device/cpu/contraction/lanes_avx512.h"
#include "mantissa/device/cpu/modes/lanes_avx512.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct S32Lanes : Avx512IntegerLanes {
    static constexpr int depth_of_word = 1;
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_add_epi32(sums, _mm512_mullo_epi32(row, column));
    }
};

}  // namespace

double fma_loop_avx512(std::int64_t rounds) { return multiply_add_loop<Avx512Lanes, 16>(rounds, 1.0F); }
double sparse_loop_avx512(std::int64_t rounds) { return sparse_multiply_add_loop<Avx512Lanes, 4, 6>(rounds); }
double f64_loop_avx512(std::int64_t rounds) { return multiply_add_loop<Avx512F64Lanes, 16>(rounds, 1.0); }
double f16_loop_avx512(std::int64_t rounds) { return multiply_add_loop<Avx512F16Lanes, 16>(rounds, 1.0F); }
double s32_loop_avx512(std::int64_t rounds) { return multiply_add_loop<S32Lanes, 16>(rounds, 1); }

void read_loop_avx512(const float* data, std::int64_t count, std::int64_t repeats) {
    read_floats<Avx512Lanes>(data, count, repeats);
}

}  // namespace mantissa::on_cpu
