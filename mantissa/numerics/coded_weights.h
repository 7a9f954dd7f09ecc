// Matrices of fixed weights as codes and scales. A code of half a byte or of a byte stands for a number; that
// number times the scale of its block is the weight. Products widen the codes when they read them.
//
//   nf4   mantissa/numerics/nf4.h, over all rows: 4.13 bits a weight
//   int4  groups of a row by mantissa/numerics/weight_groups.h: 4.5 bits
//   int8  -127 ... 127 times a scale a row: 8 bits
//
// Numbers of FP8, for units that multiply them, are codes without scales: e4m3, e5m2. Only such a product
// reads them, along either axis: the transpose's codes lie behind the matrix's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0 {

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
