// Drivers of copies and permutations.
#include <algorithm>
#include <array>

#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// The share of one call of a transpose: rows that make 256 bytes of the target, by 8 KB of each. Tiles are
/// cut from it, of which only the first is not fetched beforehand.
constexpr std::int64_t part_row_bytes = 256;
constexpr std::int64_t part_column_bytes = 8 << 10;

/// Runs that lie side by side in the source are moved together, up to these: 4 KB of heads of 64.
constexpr std::int64_t max_in_group = 16;

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

/// Axes that a call walks over itself; -1 for none.
using LeftOut = std::array<int, 3>;

bool is_left_out(const LeftOut& left_out, int axis) {
    return std::ranges::find(left_out, axis) != left_out.end();
}

/// Offsets, in elements, of the `index`th combination of all axes but those left out.
Offsets offsets_of(const MergedAxes& m, std::int64_t index, const LeftOut& left_out) {
    Offsets offsets;
    for (int k = m.rank - 1; k >= 0; --k) {
        if (is_left_out(left_out, k)) continue;
        const std::int64_t at = index % m.extents[k];
        index /= m.extents[k];
        offsets.source += at * m.source_strides[k];
        offsets.target += at * m.target_strides[k];
    }
    return offsets;
}

std::int64_t combinations(const MergedAxes& m, const LeftOut& left_out) {
    std::int64_t count = 1;
    for (int k = 0; k < m.rank; ++k)
        if (!is_left_out(left_out, k)) count *= m.extents[k];
    return count;
}

const char* at(const void* base, std::int64_t bytes) { return static_cast<const char*>(base) + bytes; }
char* at(void* base, std::int64_t bytes) { return static_cast<char*>(base) + bytes; }

/// The axis other than these two along which neighbours lie nearest in the source; -1 if there is none.
int nearest_in_source(const MergedAxes& m, int run, int counter) {
    int nearest = -1;
    for (int k = 0; k < m.rank; ++k)
        if (k != run && k != counter && (nearest < 0 || m.source_strides[k] < m.source_strides[nearest]))
            nearest = k;
    return nearest;
}

/// The last axis stays last: runs of it move as they are. The axis before it counts them in the target; those
/// that lie side by side in the source go in groups, so that neither side is walked over in single runs.
void move_runs(const RowKernels& kernels, const Permute& p, const MergedAxes& m, ThreadPool& pool,
               Stores stores) {
    const int run = m.rank - 1;
    const int counter = m.rank - 2;
    const int grouped = nearest_in_source(m, run, counter);
    const std::int64_t size = p.element_size;
    const std::int64_t grouped_extent = grouped < 0 ? 1 : m.extents[grouped];
    const std::int64_t group = std::min(grouped_extent, max_in_group);
    const std::int64_t groups = ceil_div(grouped_extent, group);
    const std::int64_t per_block = rows_per_block(2 * group * m.extents[run] * size);
    const std::int64_t pieces = ceil_div(m.extents[counter], per_block);
    const std::int64_t source_step = grouped < 0 ? 0 : m.source_strides[grouped];
    const std::int64_t target_step = grouped < 0 ? 0 : m.target_strides[grouped];
    const LeftOut left_out = {run, counter, grouped};
    pool.for_each_block(combinations(m, left_out) * groups * pieces, [&](std::int64_t block, int) {
        const std::int64_t first = block % pieces * per_block;
        const std::int64_t in_group = block / pieces % groups * group;
        const Offsets offsets = offsets_of(m, block / pieces / groups, left_out);
        const Runs runs = {
            .source =
                at(p.source,
                   (offsets.source + first * m.source_strides[counter] + in_group * source_step) * size),
            .target =
                at(p.target,
                   (offsets.target + first * m.target_strides[counter] + in_group * target_step) * size),
            .bytes = m.extents[run] * size,
            .count = std::min(per_block, m.extents[counter] - first),
            .source_stride = m.source_strides[counter] * size,
            .target_stride = m.target_strides[counter] * size,
            .group = std::min(group, grouped_extent - in_group),
            .source_step = source_step * size,
            .target_step = target_step * size};
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
    const std::int64_t part_rows = part_row_bytes / size;
    const std::int64_t part_columns = part_column_bytes / size;
    const std::int64_t row_parts = ceil_div(rows, part_rows);
    const std::int64_t column_parts = ceil_div(columns, part_columns);
    const std::int64_t parts = row_parts * column_parts;
    const LeftOut left_out = {row_axis, column_axis, -1};
    pool.for_each_block(combinations(m, left_out) * parts, [&](std::int64_t block, int) {
        const Offsets offsets = offsets_of(m, block / parts, left_out);
        const std::int64_t r = block % parts / column_parts * part_rows;
        const std::int64_t c = block % parts % column_parts * part_columns;
        const std::int64_t source = offsets.source + r * m.source_strides[row_axis] + c;
        const std::int64_t target = offsets.target + c * m.target_strides[column_axis] + r;
        const TransposedPart part = {.source = at(p.source, source * size),
                                     .target = at(p.target, target * size),
                                     .element_size = p.element_size,
                                     .rows = std::min(part_rows, rows - r),
                                     .columns = std::min(part_columns, columns - c),
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

void copy(const RowKernels& kernels, const Copy& p, ThreadPool& pool, Stores wanted) {
    ProblemCheck check("copy");
    check.size("bytes", p.bytes).input("source", p.source, p.bytes).output("target", p.target, p.bytes);
    const Stores stores = check.finish(wanted);
    if (p.source != p.target) move_whole(kernels, p, pool, stores);
}

void copy_rows(const RowKernels& kernels, const CopyRows& p, ThreadPool& pool, Stores wanted) {
    ProblemCheck check("copy_rows");
    check.size("rows", p.rows).size("bytes", p.bytes);
    check.that(p.source_stride >= p.bytes && p.target_stride >= p.bytes, "rows overlap");
    check.input("source", p.source, (p.rows - 1) * p.source_stride + p.bytes);
    check.output("target", p.target, (p.rows - 1) * p.target_stride + p.bytes);
    const Stores stores = check.finish(wanted);
    const auto rows_from = [&](std::int64_t row) {
        return Runs{.source = at(p.source, row * p.source_stride),
                    .target = at(p.target, row * p.target_stride)};
    };
    if (p.bytes > block_bytes) {
        for (std::int64_t row = 0; row < p.rows; ++row) {
            const Runs runs = rows_from(row);
            move_whole(kernels, {.bytes = p.bytes, .source = runs.source, .target = runs.target}, pool,
                       stores);
        }
        return;
    }
    for_each_range(pool, p.rows, rows_per_block(2 * p.bytes), [&](Range range, std::int64_t) {
        Runs runs = rows_from(range.first);
        runs.bytes = p.bytes;
        runs.count = range.last - range.first;
        runs.source_stride = p.source_stride;
        runs.target_stride = p.target_stride;
        kernels.copy(runs, stores);
    });
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

}  // namespace mantissa::on_cpu
