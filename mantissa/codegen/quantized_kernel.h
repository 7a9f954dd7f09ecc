// Weights in eight and four bits, and their products with rows that are quantised when they come, as kernels
// of a GPU: plain data. docs/ir.md defines quantising; sizes are part of a kernel.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/base/whole_units.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::codegen {

/// Bytes that four products of one instruction (dp4a) take.
constexpr std::int64_t numbers_of_word = 4;

/// Rows of bytes: a row of x shares a scale, or `weights_of_group` neighbours of it do. Parameters: x [rows,
/// depth], numbers s8 [rows, pitch], scales f32 [rows], or [rows, groups]. In groups, the last filled up with
/// zeros, the even of eight neighbours come before the odd, as four bits come out of bytes.
struct QuantizeKernel {
    DType from = DType::f32;  ///< f32, bf16 or f16
    std::int64_t rows = 0, depth = 0;
    bool by_groups = false;
    std::int64_t pitch = 0;  ///< at least `depth`, zeros behind it; with groups their whole length

    std::int64_t groups() const { return by_groups ? ceil_div(depth, weights_of_group) : 1; }
};

/// Weights in four bits (numerics/weight_groups.h), a thread a group. Parameters: w [rows, depth], numbers s4
/// [rows, depth], scales bf16 [rows, groups].
struct WeightGroupsKernel {
    DType from = DType::f32;
    std::int64_t rows = 0;
    std::int64_t depth = 0;  ///< even

    std::int64_t groups() const { return ceil_div(depth, weights_of_group); }
};

/// y = x w^T. A warp has some rows of x and some of w, and reads the bytes of w in place, once for up to
/// eight rows of x. Parameters: x and its scales from QuantizeKernel; w s8 [columns, depth] and scales f32
/// [columns], or s4 and bf16 [columns, groups]; a bias f32 [columns]; y f32 [rows, leading].
struct QuantizedRowsKernel {
    bool four_bits = false;
    std::int64_t rows = 0, columns = 0, depth = 0;
    std::int64_t pitch = 0;    ///< bytes of a row of x: a multiple of the bytes read at a time
    std::int64_t leading = 0;  ///< elements from one row of y to the next
    bool bias = false;

    std::int64_t groups() const { return ceil_div(depth, weights_of_group); }
    std::int64_t bytes_of_row() const { return four_bits ? depth / 2 : depth; }
    /// Bytes of w that a lane takes at a time: of four bits a group.
    std::int64_t bytes_at_once() const;
    /// Whether these bytes are read in one piece; else byte by byte.
    bool is_aligned() const { return bytes_of_row() % bytes_at_once() == 0; }
    std::int64_t rows_of_warp() const;
    std::int64_t columns_of_warp() const;
    std::int64_t warps() const;
};

/// y = sums times both scales, plus a bias, a thread an element; y may lie where the sums do. Parameters:
/// sums i32 [rows, columns], scales of x f32 [rows] and of w f32 [columns], a bias f32 [columns], y f32
/// [rows, leading].
struct ScaledSumsKernel {
    std::int64_t rows = 0, columns = 0, leading = 0;
    bool bias = false;
};

std::string text_of(const QuantizeKernel& kernel);
std::string text_of(const WeightGroupsKernel& kernel);
std::string text_of(const QuantizedRowsKernel& kernel);
std::string text_of(const ScaledSumsKernel& kernel);

}  // namespace mantissa::codegen
