// A block of a contraction on kernels that interleave: sums in L1 and L2, each tile of them finished while
// the products of the next are formed.
#include <immintrin.h>

#include <algorithm>
#include <cstddef>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/matrix_run.h"

namespace mantissa::inline v0::on_cpu {

namespace {

void ask_for(const float* sums, std::int64_t ld, std::int64_t rows, std::int64_t cols) {
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < cols; column += 16)
            _mm_prefetch(sums + row * ld + column, _MM_HINT_T1);
}

const std::byte* behind_elements(const void* data, DType type, std::int64_t count) {
    return static_cast<const std::byte*>(data) + count * (type == DType::f32 ? 4 : 2);
}

}  // namespace

void SumsBehind::finish_rows(std::int64_t most) {
    const std::int64_t count = std::min(most, rows);
    if (count == 0) return;
    block.rows = count;
    if (addend) {
        EpilogueBlock sum{.sums = block.sums, .ld = block.ld, .rows = count, .cols = block.cols};
        sum.residual = addend;
        sum.residual_ld = addend_ld;
        sum.out = block.sums;
        kernel(sum);
        addend += count * addend_ld;
    }
    if (finish)
        finish(block.sums, block.ld, row0, col0, count, block.cols, finish_args);
    else
        kernel(block);
    block.sums += count * block.ld;
    block.out = const_cast<std::byte*>(behind_elements(block.out, block.out_dtype, count * block.out_ld));
    if (block.residual)
        block.residual = behind_elements(block.residual, block.residual_dtype, count * block.residual_ld);
    row0 += count;
    rows -= count;
}

void MatrixRun::leave(SumsBehind& behind, const Sums& sums, bool first, bool last, std::int64_t row,
                      std::int64_t column) const {
    float* const there = sums.each_tile ? nullptr : sums.first + row * sums.leading + column;
    behind.kernel = kernels_.finish;
    behind.finish = nullptr;
    behind.addend = !first || p_.store == Store::accumulate ? there : nullptr;
    behind.addend_ld = sums.leading;
    if (!last || !c_.finish) {
        behind.block = {.out = there, .out_ld = sums.leading, .streaming = c_.prepared.streaming};
    } else if (c_.standard) {
        behind.block = standard_block(*c_.standard, behind.row0, behind.col0);
    } else {
        behind.finish = c_.finish;
        behind.finish_args = c_.finish_args;
    }
}

void MatrixRun::multiply_interleaved(std::int64_t chunk, std::int64_t inner, std::int64_t block,
                                     PanelRange columns, std::byte* worker_memory, SumsBehind& behind) const {
    const PanelRange depth = depth_of(chunk, inner), rows = rows_of(block);
    const std::int64_t line_bytes = kernels_.line_bytes(depth.size);
    const std::int64_t height = kernels_.height, width = kernels_.width;
    const std::byte* const panels_a = panels_of_a(chunk, inner, rows, worker_memory);
    const std::byte* const panels_b = panels_of_b(chunk, inner) + columns.begin * line_bytes;
    const Sums sums = sums_of(chunk, rows, columns, worker_memory);
    const bool first = depth_index(chunk, inner) == 0;
    const bool last = depth_index(chunk, inner) + 1 == blocking_.depth_chunks;
    const bool foresees = blocking_.entry_per_thread && blocking_.a_groups == 0;
    const std::int64_t row0 = entry_ * p_.m + rows.begin, col0 = columns_of(chunk).begin + columns.begin;
    float* const tiles = reinterpret_cast<float*>(worker_memory + layout_.begin_of_tiles());
    const std::int64_t all_tiles = ceil_div(rows.size, height) * ceil_div(columns.size, width);
    const std::int64_t lines_ahead = std::max<std::int64_t>(4, width * height / rows.size);
    std::int64_t index = 0;
    Tile tile{.depth = kernels_.panel_depth(depth.size),
              .ldc = width,
              .lines_ahead = lines_ahead,
              .behind = &behind,
              .resident_depth = kernels_.resident_depth};
    for (std::int64_t j = 0; j < columns.size; j += width) {
        tile.b = panels_b + j * line_bytes;
        // The next panel of b comes from L3 or memory: some lines of it with each tile of this one.
        const std::byte* const next = panels_b + (j + width) * line_bytes;
        for (std::int64_t i = 0; i < rows.size; i += height, ++index) {
            if (foresees) prefetch_next_rows(chunk, block, index, all_tiles);
            tile.a = panels_a + i * line_bytes;
            tile.ahead = next + std::min(i / height * lines_ahead, width) * line_bytes;
            tile.c = tiles + index % 2 * height * width;
            kernels_.multiply(tile);
            behind.row0 = row0 + i;
            behind.col0 = col0 + j;
            behind.rows = std::min(height, rows.size - i);
            leave(behind, sums, first, last, i, j);
            behind.block.sums = tile.c;
            behind.block.ld = width;
            behind.block.cols = std::min(width, columns.size - j);
            if (behind.addend) ask_for(behind.addend, behind.addend_ld, behind.rows, behind.block.cols);
        }
    }
}

}  // namespace mantissa::on_cpu
