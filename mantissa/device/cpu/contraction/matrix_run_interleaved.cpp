// A block of a contraction on kernels that interleave: sums in L1 and L2, each tile of them finished while
// the products of the next are formed.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/matrix_run.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t max_panels_at_once = 16;

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
    if (!finish || block.addend) kernel(block);
    if (finish) finish(block.sums, block.ld, row0, col0, count, block.cols, finish_args);
    block.sums += count * block.ld;
    block.out = const_cast<std::byte*>(behind_elements(block.out, block.out_dtype, count * block.out_ld));
    if (block.addend) block.addend += count * block.addend_ld;
    row0 += count;
    rows -= count;
}

/// Says how the tiles of a block are finished in one chunk of the depth.
class MatrixRun::TilesBehind {
  public:
    /// `block_sums`: where the block's sums stay from chunk to chunk, tile after tile.
    TilesBehind(const MatrixRun& run, std::int64_t chunk, std::int64_t inner, const Sums& sums,
                float* block_sums)
        : run_(run),
          sums_(sums),
          block_sums_(block_sums),
          begins_(inner == 0),
          first_(run.depth_index(chunk, inner) == 0),
          last_(run.depth_index(chunk, inner) + 1 == run.blocking_.depth_chunks),
          ends_(last_ || inner + 1 == run.blocking_.depths_inside) {}

    /// Leaves the tile of this index, at a row and a column of the block, to be finished: its products are
    /// there.
    void leave(SumsBehind& behind, std::int64_t index, std::int64_t row, std::int64_t column) const {
        const ContractionKernels& kernels = run_.kernels_;
        const MatrixCall& call = run_.c_;
        float* const there = sums_.each_tile ? nullptr : sums_.first + row * sums_.leading + column;
        float* const here = block_sums_ + index * kernels.height * kernels.width;
        float* const tile = behind.block.sums;
        const std::int64_t cols = behind.block.cols;
        behind.kernel = kernels.finish;
        behind.finish = nullptr;
        if (!ends_) {
            behind.block = {.out = here, .out_ld = kernels.width};
        } else if (!last_ || !call.finish) {
            behind.block = {.out = there, .out_ld = sums_.leading, .streaming = call.prepared.streaming};
        } else if (call.standard) {
            behind.block = standard_block(*call.standard, behind.row0, behind.col0);
        } else {
            behind.block = {.out = tile, .out_ld = kernels.width};
            behind.finish = call.finish;
            behind.finish_args = call.finish_args;
        }
        behind.block.sums = tile;
        behind.block.ld = kernels.width;
        behind.block.cols = cols;
        if (!begins_) {
            behind.block.addend = here;
            behind.block.addend_ld = kernels.width;
        } else if (!first_ || run_.p_.store == Store::accumulate) {
            behind.block.addend = there;
            behind.block.addend_ld = sums_.leading;
            ask_for(there, sums_.leading, behind.rows, cols);
        }
    }

  private:
    const MatrixRun& run_;
    const Sums sums_;
    float* block_sums_;
    bool begins_, first_, last_, ends_;
};

MatrixRun::RowsAhead MatrixRun::rows_ahead_of(const Part& next, const Part& now) const {
    const std::int64_t depth = depth_index(next.chunk, next.inner);
    const PanelRange rows = rows_of(next.block);
    const bool same_rows = rows.begin == rows_of(now.block).begin;
    if (const auto& tiles = c_.matrices.tiles) {
        if (same_rows) return {};
        const TilesInPlace::Pixels pixels = tiles->pixels_of(images(c_.arguments.a, p_.a), rows);
        return {.panels = pixels.first, .lines = pixels.bytes / 64};
    }
    if (depth == depth_index(now.chunk, now.inner) && same_rows) return {};
    const std::byte* const panels = shared_panels_of_a(next.chunk, next.inner, rows);
    // Where blocks pack their own rows, hardware foresees them better: asking for them here, at once before a
    // tile or between its products, took 2 to 10 % more time than it saved.
    if (!panels) return {};
    const std::int64_t bytes =
        align_up(rows.size, kernels_.height) * kernels_.line_bytes(depth_of(next.chunk, next.inner).size);
    return {.panels = panels, .lines = bytes / 64};
}

const std::byte* MatrixRun::first_panel_of_b(const Part& part) const {
    const std::int64_t column = part.block / blocking_.row_blocks * blocking_.split_columns;
    return panel_of_b(part.chunk, part.inner, column);
}

void MatrixRun::multiply_interleaved(std::int64_t chunk, std::int64_t inner, std::int64_t block,
                                     PanelRange columns, std::byte* worker_memory, SumsBehind& behind) const {
    const PanelRange depth = depth_of(chunk, inner), rows = rows_of(block);
    const std::int64_t line_bytes = kernels_.line_bytes(depth.size);
    const std::int64_t height = kernels_.height, width = kernels_.width;
    const auto& tiles_of_a = c_.matrices.tiles;
    const std::byte* const panels_a = tiles_of_a ? nullptr : panels_of_a(chunk, inner, rows, worker_memory);
    const TilesInPlace::Runs runs =
        tiles_of_a ? tiles_of_a->write(images(c_.arguments.a, p_.a), rows, depth, worker_memory)
                   : TilesInPlace::Runs{};
    const TilesBehind tiles_behind(*this, chunk, inner, sums_of(chunk, rows, columns, worker_memory),
                                   reinterpret_cast<float*>(worker_memory + layout_.block_of_a));
    const std::uint64_t* const zeros_a = zeros_of_a(chunk, inner, rows.begin, worker_memory);
    const std::uint64_t* const zeros_b = zeros_of_b(chunk, inner, columns.begin);
    const std::int64_t row0 = entry_ * p_.m + rows.begin, col0 = columns_of(chunk).begin + columns.begin;
    float* const tiles = reinterpret_cast<float*>(worker_memory + layout_.begin_of_tiles());
    const std::int64_t all_rows = ceil_div(rows.size, height), all_columns = ceil_div(columns.size, width);
    const std::optional<Part> next = next_part({chunk, inner, block});
    const RowsAhead rows_ahead = next ? rows_ahead_of(*next, {chunk, inner, block}) : RowsAhead{};
    const std::byte* const next_b = next ? first_panel_of_b(*next) : nullptr;
    const std::int64_t share_of_rows = ceil_div(rows_ahead.lines, all_rows * all_columns);
    // The next panels of b come from L3 or memory: a share of them with each tile of these.
    const std::int64_t panel_lines = width * line_bytes / 64;
    const std::int64_t share_of_panel = ceil_div(panel_lines, all_rows);
    // Few steps of the depth leave little time for each sum, and memory takes whole rows of them three times
    // as fast as pieces of 64 bytes. So rows pass as many panels at a time as L1 holds.
    const std::int64_t resident_bytes = kernels_.resident_depth * kernels_.element_bytes;
    const std::int64_t most_at_once =
        std::min(all_columns, resident_bytes / std::max<std::int64_t>(1, line_bytes));
    const std::int64_t at_once = std::clamp<std::int64_t>(most_at_once, 1, max_panels_at_once);
    std::int64_t index = 0;
    Tile tile{.depth = depth.size,
              .ldc = width,
              .behind = &behind,
              .resident_depth = kernels_.resident_depth,
              .b_in_words = c_.matrices.words.has_value()};
    for (std::int64_t first = 0; first < all_columns; first += at_once) {
        const std::int64_t end = std::min(first + at_once, all_columns);
        std::array<const std::byte*, max_panels_at_once> panels, ahead;
        for (std::int64_t column = first; column < end; ++column) {
            const auto i = static_cast<std::size_t>(column - first);
            const auto panel = [&](std::int64_t at) {
                return panel_of_b(chunk, inner, columns.begin + at * width);
            };
            panels[i] = panel(column);
            ahead[i] = column + at_once < all_columns ? panel(column + at_once)
                       : column == first              ? next_b
                                                      : nullptr;
        }
        for (std::int64_t row = 0; row < all_rows; ++row)
            for (std::int64_t column = first; column < end; ++column, ++index) {
                const auto of_group = static_cast<std::size_t>(column - first);
                const std::int64_t i = row * height, j = column * width, asked = row * share_of_panel;
                tile.b = panels[of_group];
                tile.zeros = (zeros_a ? zeros_a[row] : 0) | (zeros_b ? zeros_b[column] : 0);
                if (tiles_of_a)
                    tile.tile_runs = runs.first + row * runs.count;
                else
                    tile.a = panels_a + i * line_bytes;
                tile.ahead = ahead[of_group] + asked * 64;
                tile.lines_ahead = ahead[of_group] ? std::min(share_of_panel, panel_lines - asked) : 0;
                tile.rows_ahead = rows_ahead.panels + index * share_of_rows * 64;
                tile.row_lines_ahead = std::min(share_of_rows, rows_ahead.lines - index * share_of_rows);
                tile.c = tiles + index % 2 * height * width;
                kernels_.multiply(tile);
                behind.row0 = row0 + i;
                behind.col0 = col0 + j;
                behind.rows = std::min(height, rows.size - i);
                behind.block.sums = tile.c;
                behind.block.cols = std::min(width, columns.size - j);
                tiles_behind.leave(behind, column * all_rows + row, i, j);
            }
    }
}

}  // namespace mantissa::on_cpu
