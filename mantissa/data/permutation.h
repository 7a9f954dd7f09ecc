// A shuffle that is computed instead of stored: the new place of element `index` is a pure function of seed
// and epoch. Also the choice of items held out for validation, by a checksum of the item's own name. So an
// item stays on its side for every seed, and when others are added, removed or renamed.
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

/// The default share held out.
inline constexpr double held_out_part = 0.1;

/// A hash of a name, evenly spread over 64 bits.
std::uint64_t place_by_name(std::string_view name);

/// Whether an item with this hash is among this part, from 0 to 1, of all items.
bool is_held_out(std::uint64_t place, double part = held_out_part);

}  // namespace mantissa
