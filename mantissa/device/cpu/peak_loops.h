// The inner loops of peaks.h, one for each level: nothing but independent multiply-adds in registers.
#pragma once

#include <cstdint>

namespace mantissa::cpu {

/// Each does `rounds` rounds and returns the FLOPs done.
using PeakLoop = double (*)(std::int64_t rounds);

double fma_loop_generic(std::int64_t rounds);
double fma_loop_avx2(std::int64_t rounds);
double fma_loop_avx512(std::int64_t rounds);
/// Dot products of BF16 pairs.
double dot_loop_avx512_bf16(std::int64_t rounds);
/// Configures the tiles of the calling thread and releases them.
double tile_loop_amx(std::int64_t rounds);

}  // namespace mantissa::cpu
