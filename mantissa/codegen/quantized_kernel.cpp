#include "mantissa/codegen/quantized_kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::codegen {

namespace {

/// As much as one instruction loads.
constexpr std::int64_t max_bytes_at_once = 16;
constexpr std::int64_t max_rows_of_warp = 8;
/// A lane with several columns has more bytes on their way, and x is read once for all of them. But all
/// multiprocessors should have warps: an H100 has 132 of them, so eight warps for each.
constexpr std::int64_t max_columns_of_warp = 4, min_warps = 1024;
/// Sums that a lane keeps. Of four bits the numbers are taken apart, and each sum has scales: 32 spilled.
constexpr std::int64_t max_sums = 32, max_sums_of_groups = 16;

const char* with_bias(bool bias) { return bias ? ", with a bias" : ""; }

}  // namespace

std::int64_t QuantizedRowsKernel::bytes_at_once() const {
    if (four_bits || bytes_of_row() % max_bytes_at_once == 0) return max_bytes_at_once;
    return numbers_of_word;
}

std::int64_t QuantizedRowsKernel::rows_of_warp() const { return std::min(rows, max_rows_of_warp); }

std::int64_t QuantizedRowsKernel::columns_of_warp() const {
    if (!is_aligned()) return 1;
    const std::int64_t chunks = ceil_div(rows, rows_of_warp());
    for (std::int64_t many = max_columns_of_warp; many > 1; many /= 2)
        if (many <= columns && columns * chunks / many >= min_warps &&
            many * rows_of_warp() <= (four_bits ? max_sums_of_groups : max_sums))
            return many;
    return 1;
}

std::int64_t QuantizedRowsKernel::warps() const {
    return ceil_div(rows, rows_of_warp()) * ceil_div(columns, columns_of_warp());
}

std::string text_of(const QuantizeKernel& kernel) {
    return fmt::format("{} rows of {} {} as bytes, {} apart, a scale {}", kernel.rows, kernel.depth,
                       name_of(kernel.from), kernel.pitch, kernel.by_groups ? "a group" : "a row");
}

std::string text_of(const WeightGroupsKernel& kernel) {
    return fmt::format("{} rows of {} {} in four bits", kernel.rows, kernel.depth, name_of(kernel.from));
}

std::string text_of(const QuantizedRowsKernel& kernel) {
    return fmt::format("{} rows of {} bytes, {} apart, times {} rows in {} bits to {}{}", kernel.rows,
                       kernel.depth, kernel.pitch, kernel.columns, kernel.four_bits ? 4 : 8, kernel.leading,
                       with_bias(kernel.bias));
}

std::string text_of(const ScaledSumsKernel& kernel) {
    return fmt::format("{} rows of {} sums scaled to {}{}", kernel.rows, kernel.columns, kernel.leading,
                       with_bias(kernel.bias));
}

}  // namespace mantissa::codegen
