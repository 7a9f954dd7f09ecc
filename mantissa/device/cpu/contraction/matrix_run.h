// One matrix of a contraction as items handed out in order: packing a chunk of b, and of a where several
// blocks read the same rows of it, and multiplying one block of rows with a packed chunk. The chunk after the
// one being multiplied is packed meanwhile, so threads meet no barrier. An item waits only for items before
// it, which some thread has taken already, so no wait is for ever. A chunk is some columns and one chunk of
// the depth, or several, where a block goes through all of them before the next (Blocking::depths_inside).
//
// Items of one matrix:   pack chunk 0 | multiply half of chunk 0, pack chunk 1, multiply the rest | likewise
// for chunks 1 and 2 | ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/contraction/prepared.h"
#include "mantissa/device/cpu/contraction/standard_epilogue.h"

namespace mantissa::inline v0::on_cpu {

/// Shared by all matrices of a call.
struct MatrixCall {
    const PreparedContraction& prepared;
    const PreparedMatrices& matrices;
    const ContractionArguments& arguments;
    EpilogueFunction finish = nullptr;
    const void* finish_args = nullptr;
    /// The arguments that finish_standard would be given, where it is `finish`.
    const StandardEpilogueArguments* standard = nullptr;
    int threads = 1;
};

class MatrixRun {
  public:
    /// One matrix of the batch, and the memory for computing it.
    MatrixRun(const MatrixCall& call, std::int64_t entry, std::byte* memory);

    void run_item(std::int64_t item, std::byte* worker_memory);
    /// Lets the threads that wait for a failed item go on.
    void abandon();

  private:
    // Counters. Chunks of equal parity share a buffer and a counter, which only grows.
    static constexpr std::int64_t failed_counter = 0, first_block_counter = 4;
    std::int64_t& counter(std::int64_t index) { return reinterpret_cast<std::int64_t*>(memory_)[index]; }
    std::int64_t& packed(std::int64_t chunk) { return counter(1 + chunk % 2); }
    // The block counters count chunks done.
    std::int64_t& done(std::int64_t block) { return counter(first_block_counter + block); }
    /// Waits until a counter has a value; several items may make its last `steps` steps.
    void wait(std::int64_t& what, std::int64_t least, std::int64_t steps = 1);

    std::int64_t depth_index(std::int64_t chunk, std::int64_t inner) const {
        return blocking_.depth_index(chunk, inner);
    }
    PanelRange depth_of(std::int64_t chunk, std::int64_t inner) const {
        return blocking_.depth_of(p_.k, chunk, inner);
    }
    PanelRange columns_of(std::int64_t chunk) const { return blocking_.columns_of(p_.n, chunk); }
    PanelRange rows_of(std::int64_t block) const;
    /// Panels of the columns of a chunk, and of its rows.
    std::byte* buffer_of_b(std::int64_t chunk, std::int64_t inner) const;
    std::byte* buffer_of_a(std::int64_t chunk, std::int64_t inner) const;
    /// The kept panels, or the buffer's.
    const std::byte* panels_of_b(std::int64_t chunk, std::int64_t inner) const;
    /// The panel that begins with this column of the chunk.
    const std::byte* panel_of_b(std::int64_t chunk, std::int64_t inner, std::int64_t column) const;
    /// Null where each block packs its own.
    const std::byte* shared_panels_of_a(std::int64_t chunk, std::int64_t inner, PanelRange rows) const;
    const std::byte* panels_of_a(std::int64_t chunk, std::int64_t inner, PanelRange rows,
                                 std::byte* worker_memory) const;

    /// Numbers of the panels that begin with these rows or this column of the chunk, as
    /// OperandPanels::find_zeros() gives them; null where zeros are not looked for.
    std::uint64_t* zeros_of_a(std::int64_t chunk, std::int64_t inner, std::int64_t row,
                              std::byte* worker_memory) const;
    std::uint64_t* zeros_of_b(std::int64_t chunk, std::int64_t inner, std::int64_t column) const;

    OperandSource source_of_a() const;
    /// The images of a gathered operand, for this entry.
    const std::byte* images(const void* data, const MatrixLayout& layout) const;
    void pack(std::int64_t chunk, std::int64_t group);
    void pack_columns(std::int64_t chunk, std::int64_t inner, std::int64_t group) const;
    void pack_rows(std::int64_t chunk, std::int64_t inner, std::int64_t group) const;
    void multiply(std::int64_t chunk, std::int64_t block, std::byte* worker_memory);
    /// The place of sums while they are made: the element of the first of `rows` and `columns`, and from one
    /// row to the next. `each_tile`: in a scratch where every tile begins.
    struct Sums {
        float* first;
        std::int64_t leading;
        bool each_tile = false;
    };
    class RowsOfTiles;
    class TilesBehind;
    Sums sums_of(std::int64_t chunk, PanelRange rows, PanelRange columns, std::byte* worker_memory) const;
    void multiply_panels(std::int64_t chunk, std::int64_t inner, std::int64_t block, PanelRange columns,
                         std::byte* worker_memory) const;
    /// Multiplies as above, with kernels that interleave. `behind`: the sums that the previous call left
    /// unfinished, and on return the sums that this call leaves.
    void multiply_interleaved(std::int64_t chunk, std::int64_t inner, std::int64_t block, PanelRange columns,
                              std::byte* worker_memory, SumsBehind& behind) const;
    /// One product of a block and a part of a chunk. next_part(): this thread's next one, where it is known.
    struct Part {
        std::int64_t chunk, inner, block;
    };
    std::optional<Part> next_part(Part part) const;
    /// Rows of a that are wanted in L2: so many lines of panels.
    struct RowsAhead {
        const std::byte* panels = nullptr;
        std::int64_t lines = 0;
    };
    RowsAhead rows_ahead_of(const Part& next, const Part& now) const;
    const std::byte* first_panel_of_b(const Part& part) const;
    /// Asks for a share of the rows of a part, where they are packed by the block that reads them.
    void prefetch_rows(const Part& part, std::int64_t share, std::int64_t shares) const;

    const MatrixCall& c_;
    const ContractionProblem& p_;
    const ContractionKernels& kernels_;
    const Blocking& blocking_;
    const WorkspaceLayout& layout_;
    const OperandPanels &a_, &b_;
    std::int64_t entry_;
    std::byte* memory_;
};

/// Shared by the rows of a call.
struct RowCall {
    const ContractionProblem& problem;
    const PreparedRows& rows;
    const ContractionArguments& arguments;
    /// Gets every block of sums; null: sums go to an FP32 output as they are, added where `store` says so.
    EpilogueFunction finish = nullptr;
    const void* finish_args = nullptr;
};

void run_few_rows(const RowCall& call, std::span<std::byte> workspace, ThreadPool& pool);

}  // namespace mantissa::on_cpu
