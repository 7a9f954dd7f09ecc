// Makes code of fused kernels, in process: machine code of the host to be called, or text for a GPU. A kernel
// that was asked for twice is compiled once, one that nobody holds any more never. The host's kernels are
// kept for later runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/codegen/kernel_folder.h"
#include "mantissa/codegen/loop_nest.h"
#include "mantissa/codegen/part_table.h"
#include "mantissa/codegen/score_block.h"
#include "mantissa/codegen/score_code.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::codegen {

/// Memory of one launch, as the compiled function reads it.
struct FusedArguments {
    const std::byte* const* inputs = nullptr;
    std::byte* const* outputs = nullptr;
    std::int64_t first = 0;  ///< rows of this block, or elements where the nest is flat
    std::int64_t last = 0;
    float* scratch = nullptr;       ///< the nest's scratch rows, of this thread
    float* partial_sums = nullptr;  ///< this block's sums over rows, which start at zero
    std::uint64_t streamed = 0;     ///< by output: whether its rows are stored past the caches
    // For the epilogue of a contraction: a block of sums, rows [first, last) and columns [first_column,
    // last_column) of them, which stands for the first of `inputs`.
    const float* sums = nullptr;
    std::int64_t leading = 0;  ///< from one row of the block to the next
    std::int64_t first_column = 0;
    std::int64_t last_column = 0;
};

using FusedFunction = void (*)(const FusedArguments*);

/// Instructions that compiled code may use: the CPU's, cut to the level in use.
struct HostFeatures {
    std::string level;              ///< as reports call it
    std::vector<std::string> bits;  ///< as LLVM calls them: "avx2", "fma"
};

/// An NVIDIA GPU. A kernel's parameters are the operands' addresses, the outputs' addresses, the number of
/// rows (flat: of elements) and the rows of one block of threads. Then comes the address of the partial sums,
/// which start at zero. Where the scratch rows do not fit the block's shared memory, their address is last.
/// Both lie one block's after the other's. No output may lie where an operand does, unless `in_place`. An
/// epilogue takes the sums as one matrix.
struct NvptxTarget {
    std::string architecture = "sm_80";
    /// Threads of a row, or of a flat nest's block: eight warps. Four such blocks fill a multiprocessor of
    /// sm_80 by half while each thread may have 64 registers.
    int threads = 256;
    /// Neighbouring columns, or elements of a flat nest, that a thread makes at one time. It reads and writes
    /// up to 16 bytes at once: every operand and output then begins at a multiple of 16, and rows are a
    /// multiple of `at_once`.
    int at_once = 1;
    /// Rows that a block has side by side, each with `threads` of its own, as if they were blocks: where no
    /// thread waits for another one. Their sums over rows are added up: a block has one of each.
    int side_by_side = 1;
    /// Outputs may lie where operands of their shape do: nothing is read through the read-only cache.
    bool in_place = false;
    /// Number of parts in a table, for flat nests without sums over rows and without kept rows. The table has
    /// for each part its first block, the addresses of operands and outputs, and the number of elements. The
    /// only further parameter is the number of a block.
    std::int64_t parts = 0;
};

/// Whether each thread has one place in every row of a nest: its sums over rows and its kept values of a row
/// then lie in registers.
inline bool has_one_place(const LoopNest& nest, const NvptxTarget& target) {
    return !nest.flat && nest.columns <= std::int64_t{target.threads} * target.at_once;
}

/// The table of a nest with so many operands and outputs.
inline PartTable table_of(const NvptxTarget& target, std::size_t operands, std::size_t outputs) {
    return {target.parts, static_cast<std::int64_t>(operands + outputs) + 2};
}

/// Architectures that an NvptxTarget may have.
std::vector<std::string> nvptx_architectures();

using CodeTarget = std::variant<HostFeatures, NvptxTarget>;

/// A kernel that is compiled or going to be.
struct FusedKernel {
    std::string name;
    LoopNest nest;
    std::string text;                  ///< pseudo-code
    FusedFunction function = nullptr;  ///< null until it is compiled
    double milliseconds = 0;           ///< that compiling took
};

/// A score function of attention that is compiled or going to be.
struct ScoreKernel {
    std::string name;
    ScoreCode code;
    std::string text;
    ScoreFunction function = nullptr;  ///< null until it is compiled
    double milliseconds = 0;           ///< that compiling took
};

class Compiler {
  public:
    /// Code for the host is kept in the folder, and read from it the next time. Throws UserError for an
    /// unknown architecture.
    explicit Compiler(CodeTarget target, KernelFolder folder = {});
    ~Compiler();

    /// Why nothing can be compiled; empty if it can.
    static std::string refusal();
    /// The compiler's name and version: "LLVM 19.1.7"; empty where there is none.
    static std::string version();

    /// The kernel for a body. The next `compile_pending` compiles it unless it is compiled already, or is no
    /// longer held.
    std::shared_ptr<const FusedKernel> add(const Graph& body) { return add(lower(body)); }
    std::shared_ptr<const FusedKernel> add(LoopNest nest);
    /// Adds a score function, for the host alone.
    std::shared_ptr<const ScoreKernel> add(ScoreCode code);
    /// Compiles the kernels added since and still held, on all threads of the pool. For the host only:
    /// nothing here runs PTX.
    void compile_pending(ThreadPool& pool);
    /// The number of kernels that the folder had.
    std::int64_t found() const;

    /// The compiled kernels, then the held ones.
    std::vector<std::shared_ptr<const FusedKernel>> kernels() const;
    std::vector<std::shared_ptr<const ScoreKernel>> score_kernels() const;
    Listing list(const FusedKernel& kernel) const;
    Listing list(const ScoreKernel& kernel) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mantissa::codegen
