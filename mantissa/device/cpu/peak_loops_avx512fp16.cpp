// Multiply-adds of FP16 numbers, for the row of `peaks`; no training step uses them.
#include "mantissa/device/cpu/intrinsics.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// FP16 by multiply-adds of FP16, which round once. They keep subnormals, whatever the control register says.
struct Avx512F16NativeLanes : VectorLanes<_Float16, 64> {
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_fmadd_ph(row, column, sums);
    }
};

}  // namespace

double f16_loop_avx512_fp16(std::int64_t rounds) {
    constexpr std::uint16_t f16_one = 0x3c00;
    return multiply_add_loop<Avx512F16NativeLanes, 16>(rounds, f16_one);
}

}  // namespace mantissa::on_cpu
