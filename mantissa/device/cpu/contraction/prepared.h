// A contraction with everything decided but the addresses: its kernels, its division into blocks, the packing
// of its operands, the layout of its workspace, the memory it demands. All of that follows from the problem
// and the level, finer for many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "mantissa/device/cpu/contraction/blocking.h"
#include "mantissa/device/cpu/contraction/in_place.h"
#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/pixel_words.h"
#include "mantissa/device/cpu/contraction/precondition.h"
#include "mantissa/device/cpu/contraction/problem.h"
#include "mantissa/device/cpu/contraction/tiles_in_place.h"

namespace mantissa::inline v0::on_cpu {

/// Bytes of the parts of the workspace, each in whole cache lines: each worker's parts, then the parts of
/// each matrix that is computed at a time.
struct WorkspaceLayout {
    WorkspaceLayout(const ContractionProblem& problem, const Blocking& blocking,
                    const ContractionKernels& kernels);

    std::size_t begin_of_a() const { return counters + buffers_of_b * packed_b; }
    std::size_t begin_of_partial() const { return begin_of_a() + buffers_of_a * packed_a; }
    std::size_t per_matrix() const { return begin_of_partial() + partial; }
    std::size_t begin_of_tiles() const { return block_of_a + block_of_sums; }
    std::size_t per_worker() const { return begin_of_tiles() + two_tiles; }
    /// Stores of panels that all threads share.
    PanelStores stores() const;

    /// Buffers of the matrix that is multiplied, and of the next, if there is one and it is another.
    std::size_t buffers_of_b, buffers_of_a;
    std::size_t counters, packed_b, packed_a, partial, block_of_a, block_of_sums;
    /// Bytes of the panels of one chunk of the depth in a chunk of b, and of all rows of a. Where zeros are
    /// left out, a number for each panel lies behind them, as behind the panels of a block of a.
    std::int64_t part_of_b, part_of_a;
    // Where these numbers begin.
    std::int64_t zeros_of_b, zeros_of_a, zeros_of_block;
    /// Bytes of two tiles of sums, which kernels that interleave use by turns.
    std::size_t two_tiles;
};

/// How matrices go through panels (matrix_run.h).
struct PreparedMatrices {
    PreparedMatrices(const ContractionProblem& problem, const ContractionKernels& kernels);

    std::size_t workspace_bytes(int threads) const;
    /// The place of part `inner` of a chunk among the panels of a kept b: all chunks lie one after another,
    /// entry after entry.
    std::int64_t place_of_kept(std::int64_t entry, std::int64_t chunk, std::int64_t inner = 0) const {
        return (entry * blocking.chunks() + chunk) * static_cast<std::int64_t>(layout.packed_b) +
               inner * layout.part_of_b;
    }

    Blocking blocking;
    WorkspaceLayout layout;
    OperandPanels a, b;
    // Instead of panels of a:
    std::optional<RowsInPlace> in_place;
    std::optional<ChannelsInPlace> across;
    std::optional<TilesInPlace> tiles;
    std::optional<PixelWords> words;  ///< instead of panels of b
};

/// The plan for a few rows of a, which read b in place (row_run.cpp). The rows are copied to the worker's
/// memory, in FP32 and one after another, unless they are read in place. The sums of a block of columns come
/// behind them.
struct PreparedRows {
    PreparedRows(const ContractionProblem& problem, const ContractionKernels& kernels);

    std::size_t workspace_bytes(int threads) const {
        return static_cast<std::size_t>(threads) * worker_bytes;
    }

    RowProductKernel multiply;
    bool rows_in_place;        ///< the kernel takes the rows in place, in their type
    std::int64_t columns;      ///< of a block
    std::int64_t blocks;       ///< of one entry of the batch
    std::int64_t next_column;  ///< from one column of b to the next, in elements
    std::int64_t row_stride;   ///< from one row to the next, in elements
    std::size_t rows_bytes, worker_bytes;
};

/// A problem whose output has no elements.
struct NothingToDo {};

/// The epilogue that finished sums go to. none: they are in the output already.
enum class Finish : std::uint8_t { none, standard, custom };

/// A value: it may be copied, and has no references to its maker's objects.
struct PreparedContraction {
    /// Bytes of scratch with so many threads.
    std::size_t workspace_bytes(int threads) const;
    /// Bytes of the panels of b that pack_b() makes; 0: it makes none, and calls read b where it lies.
    std::size_t kept_bytes() const { return memory.kept_bytes; }

    /// Rows that reach an epilogue together. Of rows [i R, (i + 1) R) of one entry, the blocks of a column
    /// come one after another, on one thread, in ascending order. So sums over such rows need no lock, and
    /// have the same bits for any number of threads.
    std::int64_t rows_of_item() const;

    ContractionProblem problem;
    ContractionKernels kernels;
    ContractionMemory memory;
    std::variant<NothingToDo, PreparedRows, PreparedMatrices> way;
    Finish finish = Finish::none;
    /// The output is too large for L2, and so are sums of all of it.
    bool large = false;
    /// Sums are only written, straight to an output that is large.
    bool streaming = false;
};

/// Throws InternalError, with the reason, where the problem is refused.
PreparedContraction prepare_contraction(const ContractionProblem& problem, Isa isa);

/// Prepares on a given set of inner kernels, whatever CPU they were made for; the level's choice ends here,
/// and tests call it with their own. The problem must be one that refusal() accepts, with operands of types
/// that the kernels pack.
PreparedContraction prepare_contraction(const ContractionProblem& problem, const ContractionKernels& kernels);

/// Up to this number of rows, b is read in place. To pack b costs about as much as to read it once for each
/// of these rows.
constexpr std::int64_t max_rows_in_place = 8;

/// The choice for bytes by the level and the number of rows of a.
ContractionKernels byte_kernels_of(std::int64_t rows, Isa isa);

/// The choice by the level, the types of the operands and the number of columns.
ContractionKernels kernels_of(const ContractionProblem& problem, Isa isa);

}  // namespace mantissa::on_cpu
