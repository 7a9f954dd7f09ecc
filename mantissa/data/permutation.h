// A shuffle that is computed instead of stored: the new place of element `index` is a pure function of seed
// and epoch.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/data/batch.h"

namespace mantissa::inline v0 {

struct ShuffleKey {
    std::uint64_t seed = 0, epoch = 0;
};

/// The image of `index` under a permutation of 0 ... count - 1: for one key, all indexes give each value
/// once. A Feistel network over the next even power of two is walked along its cycle until the value is below
/// `count`, in under four steps on average. Black and Rogaway, "Ciphers with arbitrary finite domains",
/// CT-RSA 2002.
std::uint64_t shuffled(std::uint64_t index, std::uint64_t count, const ShuffleKey& key);

/// The order of examples in words: "in their order", "in the random order of seed 7".
std::string order_text(const BatchOptions& options);

}  // namespace mantissa
