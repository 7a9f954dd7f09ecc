// Multiply-adds of SSE, the level every x86-64 CPU has.
#include "mantissa/device/cpu/contraction/lanes_generic.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct GenericF16Lanes : OddLanes<16> {
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        Sums sum = odd_sum(row, column, sums);
        for (int i = 0; i < width; ++i) sum[i] = to_f32(to_fp16(sum[i]));
        return sum;
    }
};

struct GenericB1Lanes : VectorLanes<std::uint32_t, 16, 32> {
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        Words x = row ^ column;
        x -= (x >> 1) & 0x55555555u;  // counts of 2 bits, of 4, of 8, and their sum
        x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
        x = (x + (x >> 4)) & 0x0f0f0f0fu;
        x += x >> 8;
        x += x >> 16;
        return sums + (x & 0x3fu);
    }
};

}  // namespace

double fma_loop_generic(std::int64_t rounds) { return multiply_add_loop<GenericLanes, 12>(rounds, 1.0F); }
double sparse_loop_generic(std::int64_t rounds) {
    return sparse_multiply_add_loop<GenericLanes, 3, 4>(rounds);
}
double f64_loop_generic(std::int64_t rounds) {
    return multiply_add_loop<VectorLanes<double, 16>, 12>(rounds, 1.0);
}
double f16_loop_generic(std::int64_t rounds) { return multiply_add_loop<GenericF16Lanes, 4>(rounds, 1.0F); }
double s32_loop_generic(std::int64_t rounds) {
    return multiply_add_loop<VectorLanes<std::uint32_t, 16>, 12>(rounds, 1);
}
double s8_loop_generic(std::int64_t rounds) {
    return 4 * multiply_add_loop<GenericS8Lanes, 8>(rounds, 0x01010101);
}
double b1_loop_generic(std::int64_t rounds) { return multiply_add_loop<GenericB1Lanes, 8>(rounds, 1); }

void read_loop_generic(const float* data, std::int64_t count, std::int64_t repeats) {
    read_floats<GenericLanes>(data, count, repeats);
}

}  // namespace mantissa::on_cpu
