// The inner loops of peaks.h, with the instructions that they are made of, level by level: nothing but
// independent multiply-adds in registers, or nothing but reading. Plain data, since sources compiled for one
// instruction set include it.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::on_cpu {

/// Each does `rounds` rounds and returns the operations done.
using PeakLoop = double (*)(std::int64_t rounds);
/// Reads `count` floats, a multiple of 128, `repeats` times.
using ReadLoop = void (*)(const float* data, std::int64_t count, std::int64_t repeats);

/// A step adds products into one register of sums.
struct FormatUnit {
    PeakLoop loop = nullptr;  ///< null: there is none
    double operations = 0;    ///< of a step
    int instructions = 1;     ///< of a step
    const char* name = "";
};

struct FormatUnits {
    FormatUnit f64, f32, s32, s8, b1;
    FormatUnit f16 = {};         ///< summed in FP16
    FormatUnit bf16 = {};        ///< without widening
    FormatUnit f16_as_f32 = {};  ///< every sum rounded to FP16
    PeakLoop sparse = nullptr;   ///< of FP32 with a 2:4 sparse first operand: zeros are skipped, and counted
    ReadLoop read = nullptr;
};

/// FP32 and FP64; numbers of 32 bits, multiplied and added apart; bytes, summed in 32 bits; bits, whose
/// differences are counted. Generic FP32 and FP64 are multiplied and added apart, too.
FormatUnits peak_units_generic();
FormatUnits peak_units_avx2();
FormatUnits peak_units_avx512();  ///< with AVX2's bytes and bits
// Those of some CPUs. Loops of tiles configure the tiles of the calling thread, and release them.
FormatUnit f16_unit_avx512_fp16();
FormatUnit s8_unit_avx512_vnni();
FormatUnit b1_unit_avx512_vpopcntdq();
FormatUnit bf16_unit_avx512_bf16();
FormatUnit bf16_unit_amx();
FormatUnit s8_unit_amx();

}  // namespace mantissa::on_cpu
