// How a contraction is cut into blocks. The order of sums follows from the problem's sizes alone, so that the
// result has the same bits for any number of threads. Many threads get finer blocks of the same sums.
#pragma once

#include <cstdint>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

struct Blocking {
    /// The whole of k is done in chunks of at most `depth`, the columns in chunks of at most `columns`. One
    /// chunk of b, [depth, columns], is packed at a time (and the next one beside it), or `depths_inside` of
    /// them. A block goes through so many chunks of the depth before the next, and its sums stay in L2
    /// meanwhile.
    std::int64_t depth = 0;
    std::int64_t depth_chunks = 0;
    std::int64_t depths_inside = 1;
    std::int64_t columns = 0;
    std::int64_t column_chunks = 0;
    /// A chunk of b is packed in `b_groups` items of `pack_columns` columns, or channels where it is packed
    /// as words of pixels. There are none where b is kept.
    std::int64_t pack_columns = 0;
    std::int64_t b_groups = 0;
    std::int64_t packed_bytes = 0;  ///< of one chunk of the depth in a chunk of b
    /// Whether a is read in place: not packed at all, or as words of pixels (ImagePairs).
    bool a_in_place = false;
    /// A chunk of a, [m, depth], is packed in `a_groups` items of `pack_rows` rows where several blocks read
    /// its rows, or of channels of its images where these are packed. Else there are no such items.
    std::int64_t pack_rows = 0;
    std::int64_t a_groups = 0;
    /// A chunk is multiplied in row_blocks * column_splits items of `rows` x `split_columns`. Where a is not
    /// packed for all items, each packs its block of a, [rows, depth], for itself.
    std::int64_t rows = 0;
    std::int64_t row_blocks = 0;
    std::int64_t split_columns = 0;
    std::int64_t column_splits = 0;
    /// Blocks before they are cut for many threads. Their number decides whether the depth is shared out, and
    /// so the order of sums.
    std::int64_t few_blocks = 0;
    /// Many entries of a batch: each is done by one thread, from beginning to end.
    bool entry_per_thread = false;
    /// Entries whose items are handed out together, each with memory of its own; 1: one after another.
    std::int64_t entries_at_once = 1;
    /// Sums of an unfinished k live in the workspace, not in `out`, while other blocks are done.
    bool partial_sums = false;

    /// The columns of a chunk, of n in all.
    PanelRange columns_of(std::int64_t n, std::int64_t chunk) const {
        return part_of(n, columns, chunk / depth_groups());
    }
    /// The index among all chunks of the depth of part `inner` of a chunk.
    std::int64_t depth_index(std::int64_t chunk, std::int64_t inner) const {
        return chunk % depth_groups() * depths_inside + inner;
    }
    /// The depth of that part; the whole depth is k.
    PanelRange depth_of(std::int64_t k, std::int64_t chunk, std::int64_t inner) const {
        return part_of(k, depth, depth_index(chunk, inner));
    }

    std::int64_t depth_groups() const { return ceil_div(depth_chunks, depths_inside); }
    std::int64_t chunks() const { return depth_groups() * column_chunks; }
    std::int64_t blocks() const { return row_blocks * column_splits; }
    /// Whether all chunks have the same rows of a, of the whole depth.
    bool rows_once() const { return depth_groups() == 1; }
    std::int64_t pack_groups() const { return depths_inside * (b_groups + a_groups); }
    /// Items of one entry, see matrix_run.h.
    std::int64_t items() const { return pack_groups() + chunks() * (pack_groups() + blocks()); }
};

/// Length of the chunks that the depth is cut into: from k and the kernels alone.
std::int64_t depth_of_chunks(std::int64_t k, const ContractionKernels& kernels);

Blocking blocking_of(const ContractionProblem& problem, const ContractionKernels& kernels);

}  // namespace mantissa::on_cpu
