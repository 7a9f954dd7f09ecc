// The peak that a kernel is measured against: that of the unit it runs on, which is the last word of its
// name.
#pragma once

#include <string>

#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

/// The BF16 unit's where the machine has one and the kernel names it, as "gemm tf32*tf32+f32 amx, three
/// products of bf16" does; else FP32's.
inline double unit_peak(const std::string& kernel, const Peaks& peaks, const Target& target) {
    const bool on_unit = !target.bf16_unit.empty() && kernel.find(target.bf16_unit) != std::string::npos;
    return on_unit && peaks.bf16_matrix > 0 ? peaks.bf16_matrix : peaks.f32_fma;
}

}  // namespace mantissa
