// The sum of what ranks hold, over the tree that micro-batches add up over (train/accumulate.h): a rank's own
// micro-batches are a part of it, and ranks go on where they end.
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0 {

/// sum[i] = the terms' i-th numbers added in pairs of ranks, then pairs of pairs; `count` of each. Terms are
/// in the order of ranks. Where their number is no power of two, the first 2^k that there are make one part.
/// The sum may lie over one of the terms.
void tree_sum(std::span<const float* const> terms, std::int64_t count, float* sum);

/// The same of terms in BF16, added in FP32; the sum lies apart from them.
void tree_sum(std::span<const BF16* const> terms, std::int64_t count, float* sum);

}  // namespace mantissa
