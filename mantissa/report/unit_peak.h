// The peak that a kernel is measured against: that of the unit it runs on.
#pragma once

#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

/// The BF16 unit's where the machine has one and the kernel runs on it, as TF32 by three products of BF16
/// does; else FP32's.
inline double unit_peak(const Arithmetic& arithmetic, const Peaks& peaks, const Target& target) {
    const bool on_unit = !target.bf16_unit.empty() && arithmetic.unit == target.bf16_unit;
    return on_unit && peaks.bf16_matrix > 0 ? peaks.bf16_matrix : peaks.f32_fma;
}

}  // namespace mantissa
