// A shuffle that is computed instead of stored: where element `index` goes is a pure function of seed and
// epoch. Also the choice of validation items: by a checksum of an item's own name, so that an
// item stays on its side whatever is added, removed or renamed beside it, and whatever the seed of a run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

/// The share that is held out where nothing else is asked for.
inline constexpr double held_out_part = 0.1;

/// The place of a name in an order that has nothing to do with names: evenly spread over 64 bits.
std::uint64_t place_by_name(std::string_view name);

/// Whether an item of this place is among this part, from 0 to 1, of all.
bool is_held_out(std::uint64_t place, double part = held_out_part);

}  // namespace mantissa
