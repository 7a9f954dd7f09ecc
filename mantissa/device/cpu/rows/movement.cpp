// Drivers of casts, copies, transposes and permutations.
#include <algorithm>

#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::cpu {

namespace {

/// Tiles of a transpose: 128 source rows of 512 bytes (4-byte elements) and as much written, within L2.
constexpr std::int64_t tile_rows = 128;
constexpr std::int64_t tile_columns = 128;

/// A permutation after axes of extent 1 are dropped and axes that stay neighbours are merged.
struct MergedAxes {
    int rank = 0;
    std::int64_t extents[Permute::max_rank] = {};         // in the target's order
    std::int64_t source_strides[Permute::max_rank] = {};  // elements, in the target's order
    std::int64_t target_strides[Permute::max_rank] = {};
};

MergedAxes merge_axes(const Permute& p) {
    std::int64_t strides[Permute::max_rank] = {};
    std::int64_t stride = 1;
    for (int k = p.rank - 1; k >= 0; --k) {
        strides[k] = stride;
        stride *= p.extents[k];
    }
    MergedAxes merged;
    for (int k = 0; k < p.rank; ++k) {
        const std::int64_t extent = p.extents[p.axes[k]];
        const std::int64_t source_stride = strides[p.axes[k]];
        if (extent == 1) continue;
        const int last = merged.rank - 1;
        if (last >= 0 && merged.source_strides[last] == source_stride * extent) {
            merged.extents[last] *= extent;
            merged.source_strides[last] = source_stride;
        } else {
            merged.extents[merged.rank] = extent;
            merged.source_strides[merged.rank++] = source_stride;
        }
    }
    if (merged.rank == 0) {
        merged.extents[0] = 1;
        merged.source_strides[merged.rank++] = 1;
    }
    stride = 1;
    for (int k = merged.rank - 1; k >= 0; --k) {
        merged.target_strides[k] = stride;
        stride *= merged.extents[k];
    }
    return merged;
}

struct Offsets {
    std::int64_t source = 0;
    std::int64_t target = 0;
};

/// Offsets, in elements, of the `index`th combination of all axes but the two left out (-1 for none).
Offsets offsets_of(const MergedAxes& m, std::int64_t index, int left_out1, int left_out2) {
    Offsets offsets;
    for (int k = m.rank - 1; k >= 0; --k) {
        if (k == left_out1 || k == left_out2) continue;
        const std::int64_t at = index % m.extents[k];
        index /= m.extents[k];
        offsets.source += at * m.source_strides[k];
        offsets.target += at * m.target_strides[k];
    }
    return offsets;
}

std::int64_t combinations(const MergedAxes& m, int left_out1, int left_out2) {
    std::int64_t count = 1;
    for (int k = 0; k < m.rank; ++k)
        if (k != left_out1 && k != left_out2) count *= m.extents[k];
    return count;
}

const char* at(const void* base, std::int64_t bytes) { return static_cast<const char*>(base) + bytes; }
char* at(void* base, std::int64_t bytes) { return static_cast<char*>(base) + bytes; }

/// The last axis stays last: runs of it move as they are, the axis before it counting them.
void move_runs(const RowKernels& kernels, const Permute& p, const MergedAxes& m, ThreadPool& pool,
               Stores stores) {
    const int run = m.rank - 1;
    const int counter = m.rank - 2;
    const std::int64_t size = p.element_size;
    const std::int64_t per_block = rows_per_block(2 * m.extents[run] * size);
    const std::int64_t pieces = blocks_of(m.extents[counter], per_block);
    pool.for_each_block(combinations(m, run, counter) * pieces, [&](std::int64_t block, int) {
        const std::int64_t first = block % pieces * per_block;
        const Offsets offsets = offsets_of(m, block / pieces, run, counter);
        const Runs runs = {
            .source = at(p.source, (offsets.source + first * m.source_strides[counter]) * size),
            .target = at(p.target, (offsets.target + first * m.target_strides[counter]) * size),
            .bytes = m.extents[run] * size,
            .count = std::min(per_block, m.extents[counter] - first),
            .source_stride = m.source_strides[counter] * size,
            .target_stride = m.target_strides[counter] * size};
        kernels.copy(runs, stores);
    });
}

/// The source's last axis goes elsewhere: transposes of it with the target's last axis.
void move_tiles(const RowKernels& kernels, const Permute& p, const MergedAxes& m, ThreadPool& pool,
                Stores stores) {
    const int row_axis = m.rank - 1;
    int column_axis = 0;
    while (m.source_strides[column_axis] != 1) ++column_axis;
    const std::int64_t size = p.element_size;
    const std::int64_t rows = m.extents[row_axis];
    const std::int64_t columns = m.extents[column_axis];
    const std::int64_t row_tiles = blocks_of(rows, tile_rows);
    const std::int64_t column_tiles = blocks_of(columns, tile_columns);
    const std::int64_t tiles = row_tiles * column_tiles;
    pool.for_each_block(combinations(m, row_axis, column_axis) * tiles, [&](std::int64_t block, int) {
        const Offsets offsets = offsets_of(m, block / tiles, row_axis, column_axis);
        const std::int64_t r = block % tiles / column_tiles * tile_rows;
        const std::int64_t c = block % tiles % column_tiles * tile_columns;
        const std::int64_t source = offsets.source + r * m.source_strides[row_axis] + c;
        const std::int64_t target = offsets.target + c * m.target_strides[column_axis] + r;
        const TransposedPart part = {.source = at(p.source, source * size),
                                     .target = at(p.target, target * size),
                                     .element_size = p.element_size,
                                     .rows = std::min(tile_rows, rows - r),
                                     .columns = std::min(tile_columns, columns - c),
                                     .source_stride = m.source_strides[row_axis],
                                     .target_stride = m.target_strides[column_axis]};
        kernels.transpose(part, stores);
    });
}

void move_whole(const RowKernels& kernels, const Copy& p, ThreadPool& pool, Stores stores) {
    for_each_range(pool, p.bytes, block_bytes, [&](Range range, std::int64_t) {
        kernels.copy({.source = at(p.source, range.first),
                      .target = at(p.target, range.first),
                      .bytes = range.last - range.first},
                     stores);
    });
}

}  // namespace

void cast(const RowKernels& kernels, const Cast& p, ThreadPool& pool, Stores wanted) {
    ProblemCheck check("cast");
    check.size("count", p.count).input("x", p.x, p.count).output("y", p.y, p.count);
    const Stores stores = check.finish(wanted);
    if (p.x.type == p.y.type) {
        if (p.x.data == p.y.data) return;
        const auto bytes = p.count * static_cast<std::int64_t>(size_of(p.x.type));
        return move_whole(kernels, {.bytes = bytes, .source = p.x.data, .target = p.y.data}, pool, stores);
    }
    for_each_range(pool, p.count, block_elements,
                   [&](Range range, std::int64_t) { kernels.cast(p, range, stores); });
}

void copy(const RowKernels& kernels, const Copy& p, ThreadPool& pool, Stores wanted) {
    ProblemCheck check("copy");
    check.size("bytes", p.bytes).input("source", p.source, p.bytes).output("target", p.target, p.bytes);
    const Stores stores = check.finish(wanted);
    if (p.source != p.target) move_whole(kernels, p, pool, stores);
}

void transpose(const RowKernels& kernels, const TransposedMatrix& p, ThreadPool& pool, Stores wanted) {
    ProblemCheck("transpose").size("rows", p.rows).size("columns", p.columns);
    permute(kernels,
            {.rank = 2,
             .extents = {p.rows, p.columns},
             .axes = {1, 0},
             .element_size = p.element_size,
             .source = p.source,
             .target = p.target},
            pool, wanted);
}

void permute(const RowKernels& kernels, const Permute& p, ThreadPool& pool, Stores wanted) {
    ProblemCheck check("permute");
    check.that(p.rank >= 1 && p.rank <= Permute::max_rank, "rank is not between 1 and 5");
    check.that(p.element_size == 2 || p.element_size == 4, "element_size is not 2 or 4");
    std::int64_t bytes = p.element_size;
    unsigned seen = 0;
    for (int k = 0; k < p.rank; ++k) {
        check.size("extent", p.extents[k]);
        check.that(p.axes[k] >= 0 && p.axes[k] < p.rank, "axes is no permutation of the axes");
        bytes *= p.extents[k];
        seen |= 1u << p.axes[k];
    }
    check.that(seen == (1u << p.rank) - 1, "axes is no permutation of the axes");
    check.input("source", p.source, bytes).output("target", p.target, bytes);
    check.that(p.source != p.target, "source and target are the same memory");
    const Stores stores = check.finish(wanted);
    const MergedAxes merged = merge_axes(p);
    if (merged.rank == 1)
        move_whole(kernels, {.bytes = bytes, .source = p.source, .target = p.target}, pool, stores);
    else if (merged.source_strides[merged.rank - 1] == 1)
        move_runs(kernels, p, merged, pool, stores);
    else
        move_tiles(kernels, p, merged, pool, stores);
}

}  // namespace mantissa::cpu
