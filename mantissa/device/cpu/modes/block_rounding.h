// Numbers rounded to the values of a format below sixteen bits that share scales, stored in BF16, which holds
// them exactly: the rules of mantissa/numerics/short_formats.h for a whole tensor, to the bit at
// every level.
#pragma once

#include <cstdint>

#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0::on_cpu {

/// Columns that one block of Philox a lane serves.
constexpr std::int64_t strip_columns = 64;

/// x [outer, depth, inner] -> y, in blocks along the depth. Plain data: files of one instruction set include
/// it.
struct BlockRounding {
    enum class Scale : std::uint8_t { up, floor, tensor, two_level };

    std::int64_t outer = 1, depth = 1, inner = 1;
    std::int64_t strip = 0;   ///< columns of a strip: a multiple of `strip_columns`, or all
    std::int64_t block = 32;  ///< numbers along the depth that share a scale; the last block may be shorter
    bool square = false;      ///< as many numbers of a row share it, too
    bool hadamard = false;    ///< whole blocks are turned before they are rounded
    bool random = false;      ///< rounding is stochastic, by the bits of Philox
    Scale rule = Scale::up;
    // The element's format.
    float max = 0;           ///< its largest value
    float min_normal = 0;    ///< a power of two
    std::int32_t magic = 0;  ///< 1.5 x 2^(23 - fraction bits) over 1, as bits: a binade so far up rounds
    std::int32_t max_exponent = 0, fraction_bits = 0;
    float tensor_scale = 1;  ///< by the rules tensor and two_level: the factor of x
    std::uint32_t key[2] = {}, step = 0, operation = 0;  ///< of random bits
    const float* wide = nullptr;                         ///< x in FP32
    const BF16* x = nullptr;                             ///< or in BF16
    BF16* y = nullptr;
};

/// Strips [first, last): a strip is a row of blocks, one block deep, cut into parts where blocks are columns;
/// or a whole line where it lies along the depth.
using RoundStrips = void (*)(const BlockRounding&, std::int64_t first, std::int64_t last);
/// The largest magnitude of strips as bits, of which those of infinities and NaN are the largest.
using LargestOfStrips = std::int32_t (*)(const BlockRounding&, std::int64_t first, std::int64_t last);

#define MANTISSA_DECLARE(level)                                                             \
    void round_strips_##level(const BlockRounding&, std::int64_t first, std::int64_t last); \
    std::int32_t largest_of_strips_##level(const BlockRounding&, std::int64_t, std::int64_t);
MANTISSA_DECLARE(generic)
MANTISSA_DECLARE(avx2)
MANTISSA_DECLARE(avx512)
MANTISSA_DECLARE(avx512bf16)
#undef MANTISSA_DECLARE

}  // namespace mantissa::on_cpu
