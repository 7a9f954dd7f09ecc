// Multiply-adds of SSE, the level every x86-64 CPU has.
#include "mantissa/device/cpu/contraction/lanes_generic.h"
#include "mantissa/device/cpu/peak_body.h"
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

FormatUnits peak_units_generic() {
    // The compiler makes about so many SSE2 instructions of whole numbers and of FP16, not one or two.
    return {.f64 = unit_of<VectorLanes<double, 16>, 12, f64_one>(2, "mulpd and addpd"),
            .f32 = unit_of<GenericLanes, 12, f32_one>(2, "mulps and addps"),
            .s32 = unit_of<VectorLanes<std::uint32_t, 16>, 12, 1>(7, "pmuludq, shuffles and paddd"),
            .s8 = unit_of<GenericS8Lanes, 8, s8_ones, 4>(40, "SSE2 without dot products"),
            .b1 = unit_of<GenericB1Lanes, 8, 1>(18, "SSE2 without counts of ones"),
            .f16_as_f32 = unit_of<GenericF16Lanes, 4, f32_one>(150, "SSE2, each sum rounded to FP16"),
            .sparse = sparse_multiply_add_loop<GenericLanes, 3, 4>,
            .read = read_floats<GenericLanes>};
}

}  // namespace mantissa::on_cpu
