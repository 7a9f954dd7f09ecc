// The outputs of fused kernels: outputs stored past the caches, and sums over rows, which are made a block at
// a time.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/device/cpu/kernels/kernels.h"

namespace mantissa::inline v0::on_cpu {

class StreamedOutputs {
  public:
    /// Finds the large outputs. `columns`, the number stored at a time, must be whole cache lines of an
    /// output. `read`, by operand: whether the kernel reads its elements; empty: all are read.
    StreamedOutputs(const Problem& problem, std::int64_t columns, std::vector<bool> read = {});

    /// The streamed outputs, as FusedArguments::streamed has them, that lie on cache lines, and not over an
    /// operand, which was just read and is in a cache.
    std::uint64_t of(const Operands& operands) const;

  private:
    std::uint64_t large_ = 0;
    std::vector<bool> read_;
};

/// All sums over rows of a nest.
std::vector<codegen::RowSum> sums_of(const codegen::LoopNest& nest);

/// Adds the partial sums [blocks, nest.partial_sums] in a fixed tree, and writes them where they belong.
/// Overwrites `partials`.
void finish_sums(ThreadPool& pool, const codegen::LoopNest& nest, float* partials, std::int64_t blocks,
                 std::span<std::byte* const> outputs);

}  // namespace mantissa::on_cpu
