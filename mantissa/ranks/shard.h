// How a tensor is cut among ranks: each has a part of one size, whole blocks of it, the last filled up with
// zeros. Norms are summed over the same blocks whatever rank has them, and so have the same bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0 {

/// Elements of a block. 4 KB in FP32: little beside a part, and much beside the 8 bytes that its sum of
/// squares takes on the wire.
inline constexpr std::int64_t shard_block = 1024;

/// Elements of a rank's part of a tensor of so many, zeros behind them included.
inline std::int64_t shard_elements(std::int64_t elements, std::int64_t ranks) {
    return align_up(ceil_div(elements, ranks), shard_block);
}

/// The place of a part in the tensor: [first, first + count), perhaps empty.
struct Shard {
    std::int64_t first = 0, count = 0;
};

inline Shard shard_of(std::int64_t elements, std::int64_t ranks, std::int64_t rank) {
    const std::int64_t part = shard_elements(elements, ranks), first = std::min(elements, part * rank);
    return {.first = first, .count = std::min(part, elements - first)};
}

/// Whether each rank would have a block or more: smaller tensors are kept whole by all.
inline bool can_be_cut(std::int64_t elements, std::int64_t ranks) { return elements >= ranks * shard_block; }

}  // namespace mantissa
