// The sum of what ranks hold, over the tree that micro-steps add up over (train/accumulate.h): a rank's own
// micro-steps are a part of it, and ranks go on where they end.
#pragma once

#include <cstdint>
#include <span>

namespace mantissa::inline v0 {

/// sum[i] = the terms' i-th numbers added in pairs of ranks, then pairs of pairs; `count` of each. Terms are
/// in the order of ranks. Where their number is no power of two, the first 2^k that there are make one part.
void tree_sum(std::span<const float* const> terms, std::int64_t count, float* sum);

}  // namespace mantissa
