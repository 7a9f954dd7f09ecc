// Numbers rounded to the values of a format below sixteen bits in blocks that share a scale, stored in BF16,
// which holds them exactly: round_block (numerics/short_formats.h) for a whole tensor, to the bit at every
// level.
#pragma once

#include <cstdint>

#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0::on_cpu {

/// x [outer, depth, inner] -> y, in blocks along the depth. Plain data: files of one instruction set include
/// it.
struct BlockRounding {
    std::int64_t outer = 1, depth = 1, inner = 1;
    std::int64_t block = 32;  ///< numbers along the depth that share a scale; the last block may be shorter
    // The element's format.
    float max = 0;         ///< its largest value
    float min_normal = 0;  ///< a power of two
    float to_grid = 0;     ///< 1.5 x 2^(23 - fraction bits): what rounds a number when it is added
    std::int32_t max_exponent = 0;
    bool floor = false;           ///< the rule of scales; else up
    const float* wide = nullptr;  ///< x in FP32
    const BF16* x = nullptr;      ///< or in BF16
    BF16* y = nullptr;
};

/// Strips [first, last): a strip is a row of blocks, one block deep, or a whole line where it lies along the
/// depth.
using RoundStrips = void (*)(const BlockRounding&, std::int64_t first, std::int64_t last);
void round_strips_generic(const BlockRounding&, std::int64_t first, std::int64_t last);
void round_strips_avx2(const BlockRounding&, std::int64_t first, std::int64_t last);
void round_strips_avx512(const BlockRounding&, std::int64_t first, std::int64_t last);
void round_strips_avx512bf16(const BlockRounding&, std::int64_t first, std::int64_t last);

}  // namespace mantissa::on_cpu
