// The instructions that multiply and add in each number format, level by level.
#pragma once

#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

/// A step adds products into one register of sums.
struct FormatUnit {
    PeakLoop loop = nullptr;  ///< null: there is none
    double operations = 0;    ///< of a step
    int instructions = 1;     ///< of a step
    const char* name = "";
};

struct FormatUnits {
    FormatUnit f64, f32, f16, s32, s8, b1;
    FormatUnit bf16 = {};        ///< without widening
    FormatUnit f16_as_f32 = {};  ///< every sum rounded to FP16
    PeakLoop sparse = nullptr;   ///< of FP32 that skips zeros
    ReadLoop read = nullptr;
};

/// Those of a level on this CPU.
FormatUnits format_units(Isa isa);

}  // namespace mantissa::on_cpu
