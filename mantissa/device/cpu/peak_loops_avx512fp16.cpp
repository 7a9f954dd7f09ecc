// Multiply-adds of FP16 numbers, for the row of `peaks`; no training step uses them.
#include "mantissa/device/cpu/intrinsics.h"
#include "mantissa/device/cpu/peak_body.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// FP16 by multiply-adds of FP16, which round once. They keep subnormals, whatever the control register says.
struct Avx512F16NativeLanes : VectorLanes<_Float16, 64> {
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_fmadd_ph(row, column, sums);
    }
};

}  // namespace

FormatUnit f16_unit_avx512_fp16() {
    return unit_of<Avx512F16NativeLanes, 16, 0x3c00>(1, "FMA of FP16, 512 bits");
}

}  // namespace mantissa::on_cpu
