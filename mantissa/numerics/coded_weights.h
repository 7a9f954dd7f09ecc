// Matrices of fixed weights as codes and scales. A code of half a byte or of a byte stands for a number; that
// number times the scale of its block is the weight. Products widen the codes when they read them.
//
//   nf4   quantiles of the normal distribution times the largest magnitude of a block, over all rows; the
//         blocks' scales in eight bits (Dettmers et al., "QLoRA", NeurIPS 2023): 4.13 bits a weight
//   int4  groups of neighbours of a row share a scale, which least squares choose: 4.5 bits
//   int8  -127 ... 127 times a scale a row: 8 bits
//
// Numbers of FP8, for units that multiply them, are codes without scales: e4m3, e5m2. Only such a product
// reads them, along either axis: the transpose's codes lie behind the matrix's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/numerics/dtype.h"
#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0 {

constexpr std::int64_t weights_of_group = 32;

/// Number i stands for numbers[i] * scale; the scale may be negative.
struct WeightGroup {
    std::array<std::int8_t, weights_of_group> numbers = {};  ///< in -8 ... 7; 0 behind the last weight
    BF16 scale = {};
};

/// At most 32 weights. Of some scales under which the weight of the largest absolute value becomes a number
/// between -7 and -9, each is replaced by that of least squares for its numbers; the one with the smallest
/// sum of squared errors is rounded to BF16, and weights go to the nearest multiples of it. A group of zeros
/// has scale 0; if a weight is not finite, the scale is NaN.
WeightGroup group_of(std::span<const float> weights);

inline constexpr std::int64_t nf4_block = 64;         ///< weights with one scale, row-major
inline constexpr std::int64_t nf4_scale_block = 256;  ///< scales with one range

/// The numbers of the 16 codes, from -1 to 1.
inline constexpr std::array<float, 16> nf4_numbers = {-1.0f,
                                                      -0.6961928009986877f,
                                                      -0.5250730514526367f,
                                                      -0.39491748809814453f,
                                                      -0.28444138169288635f,
                                                      -0.18477343022823334f,
                                                      -0.09105003625154495f,
                                                      0.0f,
                                                      0.07958029955625534f,
                                                      0.16093020141124725f,
                                                      0.24611230194568634f,
                                                      0.33791524171829224f,
                                                      0.44070982933044434f,
                                                      0.5626170039176941f,
                                                      0.7229568362236023f,
                                                      1.0f};

/// The numbers of the 256 codes of a scale: seven decades with twice as many in each, evenly spaced.
const std::array<float, 256>& nf4_scale_numbers();

/// How many scales and ranges so many weights have. Behind the ranges stands the mean of all scales.
constexpr std::int64_t nf4_scales(std::int64_t weights) { return (weights + nf4_block - 1) / nf4_block; }
constexpr std::int64_t nf4_ranges(std::int64_t weights) {
    return (nf4_scales(weights) + nf4_scale_block - 1) / nf4_scale_block + 1;
}

struct Nf4Weights {
    std::vector<std::uint8_t> codes;   ///< two in a byte, the first in its lower half
    std::vector<std::uint8_t> scales;  ///< of blocks: codes of nf4_scale_numbers
    std::vector<float> ranges;         ///< of blocks of scales, and the mean
};

/// A weight goes to the nearest number times its block's largest magnitude; of two as near, to the lower one.
/// A block that has a number that is not finite is not a number, whole.
Nf4Weights nf4_of(std::span<const float> weights);

constexpr bool has_codes(Layout layout) { return layout >= Layout::nf4; }
/// Products of FP8 take extents that are multiples of this: 16 bytes.
constexpr std::int64_t fp8_extent_multiple = 16;
constexpr bool is_fp8(Layout layout) { return layout >= Layout::e4m3; }
/// "nf4", "half_bytes".
std::string_view name_of(Layout layout);
/// The layout of that name.
Layout layout_named(std::string_view name);

struct CodedMatrix {
    Layout layout = Layout::nf4;
    std::int64_t rows = 0, columns = 0;  ///< of int4, columns are even
};

/// Bytes of the codes, then of the data that their scales follow from.
std::int64_t coded_bytes(const CodedMatrix& matrix);

/// Writes the codes and scales of the weights, row after row, to coded_bytes() bytes that are aligned to 4. A
/// weight that is not finite makes NaN of its block.
void write_codes(const CodedMatrix& matrix, std::span<const float> weights, std::byte* to);
/// The FP32 products of numbers and scales that these bytes hold, from element `first` on.
void read_codes(const CodedMatrix& matrix, const std::byte* from, std::int64_t first, std::span<float> to);

/// Addresses within a coded matrix, as plain data: files of one instruction set include it.
struct CodedSource {
    Layout layout = Layout::nf4;
    std::int64_t columns = 0;
    const std::uint8_t* codes = nullptr;
    const float* numbers = nullptr;  ///< of the 16 codes of half a byte
    const void* scales = nullptr;    ///< nf4: codes of `scale_numbers`; int4: BF16; int8: FP32
    // nf4 alone has these:
    const float* scale_numbers = nullptr;
    const float* ranges = nullptr;
    float mean = 0;
};
CodedSource source_of(const CodedMatrix& matrix, const void* bytes);

/// Some of a matrix's elements as a row-major matrix in FP32 or, rounded to the nearest, BF16.
struct WidenedPart {
    CodedSource from;
    std::int64_t row = 0, column = 0, rows = 0, columns = 0;
    DType dtype = DType::f32;
    void* to = nullptr;
    std::int64_t stride = 0;  ///< from row to row, in elements
};
using WidenCodes = void (*)(const WidenedPart& part);

}  // namespace mantissa
