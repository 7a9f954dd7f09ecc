// The inner loops of peaks.h, one for each level and format: nothing but independent multiply-adds in
// registers, or nothing but reading.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::on_cpu {

/// Each does `rounds` rounds and returns the operations done.
using PeakLoop = double (*)(std::int64_t rounds);

double fma_loop_generic(std::int64_t rounds);
double fma_loop_avx2(std::int64_t rounds);
double fma_loop_avx512(std::int64_t rounds);
/// FP32 with a 2:4 sparse first operand: zeros are skipped, and counted.
double sparse_loop_generic(std::int64_t rounds);
double sparse_loop_avx2(std::int64_t rounds);
double sparse_loop_avx512(std::int64_t rounds);
/// FP64.
double f64_loop_generic(std::int64_t rounds);
double f64_loop_avx2(std::int64_t rounds);
double f64_loop_avx512(std::int64_t rounds);
/// FP16, summed in FP16.
double f16_loop_avx512_fp16(std::int64_t rounds);
/// As FP32, each sum rounded to FP16.
double f16_loop_generic(std::int64_t rounds);
double f16_loop_avx2(std::int64_t rounds);
double f16_loop_avx512(std::int64_t rounds);
/// Numbers of 32 bits, multiplied and added apart.
double s32_loop_generic(std::int64_t rounds);
double s32_loop_avx2(std::int64_t rounds);
double s32_loop_avx512(std::int64_t rounds);
/// Bytes, summed in 32 bits.
double s8_loop_generic(std::int64_t rounds);
double s8_loop_avx2(std::int64_t rounds);
double s8_loop_avx512_vnni(std::int64_t rounds);
/// Bits: differences are counted.
double b1_loop_generic(std::int64_t rounds);
double b1_loop_avx2(std::int64_t rounds);
double b1_loop_avx512_vpopcntdq(std::int64_t rounds);
/// Dot products of BF16 pairs.
double dot_loop_avx512_bf16(std::int64_t rounds);
/// Configure the tiles of the calling thread and release them. BF16 products, and bytes.
double tile_loop_amx(std::int64_t rounds);
double s8_tile_loop_amx(std::int64_t rounds);

/// Read `count` floats, a multiple of 128, `repeats` times.
using ReadLoop = void (*)(const float* data, std::int64_t count, std::int64_t repeats);

void read_loop_generic(const float* data, std::int64_t count, std::int64_t repeats);
void read_loop_avx2(const float* data, std::int64_t count, std::int64_t repeats);
void read_loop_avx512(const float* data, std::int64_t count, std::int64_t repeats);

}  // namespace mantissa::on_cpu
