// The loop nest of element-wise work and strided copies: broadcast operands have stride 0, and axes that lie
// behind one another in every operand are merged into one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cpu {

/// Up to four operands, the output among them.
constexpr std::size_t max_loop_operands = 4;

struct StridedLoops {
    /// Distances in elements from one step of an axis to the next, by operand.
    using Strides = std::array<std::int64_t, max_loop_operands>;
    struct Axis {
        std::int64_t extent;
        Strides strides;
    };

    std::vector<Axis> outer;  ///< outermost first
    Axis inner{1, {}};        ///< the innermost axis, where vectors run
    std::int64_t rows = 1;    ///< the product of the outer extents

    /// `strides[i]` are operand i's along each axis of `extents`.
    StridedLoops(std::vector<std::int64_t> extents, std::vector<std::vector<std::int64_t>> strides);

    /// The first element of a row in each operand.
    Strides row_start(std::int64_t row) const;

    /// Calls body(starts, count) for pieces of rows that together cover everything, in parallel. `starts` are
    /// the offsets of each operand in elements. Pieces follow from the extents alone.
    template <class Body>
    void for_each_piece(ThreadPool& pool, Body&& body) const {
        if (rows == 0 || inner.extent == 0) return;
        // 32 K elements a block: 128 KB of FP32 an operand, which amortises the hand-out and leaves enough
        // blocks.
        constexpr std::int64_t block = 1 << 15;
        const std::int64_t pieces = ceil_div(inner.extent, block);
        const std::int64_t rows_per_block = pieces > 1 ? 1 : std::max<std::int64_t>(1, block / inner.extent);
        const std::int64_t row_blocks = ceil_div(rows, rows_per_block);
        pool.for_each_block(row_blocks * pieces, [&](std::int64_t index, int) {
            const std::int64_t first = index / pieces * rows_per_block;
            const std::int64_t last = std::min(rows, first + rows_per_block);
            const std::int64_t from = index % pieces * block;
            const std::int64_t count = std::min(block, inner.extent - from);
            for (std::int64_t row = first; row < last; ++row) {
                Strides start = row_start(row);
                for (std::size_t i = 0; i < max_loop_operands; ++i) start[i] += from * inner.strides[i];
                body(start, count);
            }
        });
    }
};

}  // namespace mantissa::on_cpu
