// A shuffle that is computed instead of stored: where element `index` goes is a pure function of seed and
// epoch.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/data/batch.h"

namespace mantissa::inline v0 {

struct ShuffleKey {
    std::uint64_t seed = 0, epoch = 0;
};

/// A permutation of 0 ... count - 1: the image of `index`. A Feistel network over the next even power of two
/// is walked along its cycle until within `count`, in under four steps on average. It is that of Black and
/// Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002. For one key, all indexes together give each
/// value once.
std::uint64_t shuffled(std::uint64_t index, std::uint64_t count, const ShuffleKey& key);

/// The order of examples in words: "in their order", "in the random order of seed 7".
std::string order_text(const BatchOptions& options);

}  // namespace mantissa
