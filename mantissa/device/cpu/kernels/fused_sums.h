// Sums over rows that fused kernels make a block at a time, and how they become outputs.
#pragma once

#include <vector>

#include "mantissa/device/cpu/kernels/kernels.h"

namespace mantissa::inline v0::on_cpu {

/// All sums over rows of a nest.
std::vector<codegen::RowSum> sums_of(const codegen::LoopNest& nest);

/// Adds the partial sums [blocks, nest.partial_sums] in a fixed tree, and writes them where they belong.
/// Overwrites `partials`.
void finish_sums(ThreadPool& pool, const codegen::LoopNest& nest, float* partials, std::int64_t blocks,
                 std::span<std::byte* const> outputs);

}  // namespace mantissa::on_cpu
