// Multiply-adds of SSE, the level every x86-64 CPU has.
#include "mantissa/device/cpu/contraction/lanes_generic.h"
#include "mantissa/device/cpu/modes/lanes_generic.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct S32Lanes : GenericModeLanes<std::uint32_t, GenericIntegers> {
    static constexpr int depth_of_word = 1;
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) { return sums + row * column; }
};

}  // namespace

double fma_loop_generic(std::int64_t rounds) { return multiply_add_loop<GenericLanes, 12>(rounds, 1.0F); }
double sparse_loop_generic(std::int64_t rounds) {
    return sparse_multiply_add_loop<GenericLanes, 3, 4>(rounds);
}
double f64_loop_generic(std::int64_t rounds) { return multiply_add_loop<GenericF64Lanes, 12>(rounds, 1.0); }
double f16_loop_generic(std::int64_t rounds) { return multiply_add_loop<GenericF16Lanes, 4>(rounds, 1.0F); }
double s32_loop_generic(std::int64_t rounds) { return multiply_add_loop<S32Lanes, 12>(rounds, 1); }
double s8_loop_generic(std::int64_t rounds) {
    return multiply_add_loop<GenericS8Lanes, 8>(rounds, 0x01010101);
}
double b1_loop_generic(std::int64_t rounds) { return multiply_add_loop<GenericB1Lanes, 8>(rounds, 1); }

void read_loop_generic(const float* data, std::int64_t count, std::int64_t repeats) {
    read_floats<GenericLanes>(data, count, repeats);
}

}  // namespace mantissa::on_cpu
