// The choice of what is held out for validation: by a checksum of an item's own name, so that an item stays
// on its side whatever is added, removed or renamed beside it, and whatever the seed of a run.
#pragma once

#include <cstdint>
#include <string_view>

namespace mantissa::inline v0 {

/// The share that is held out where nothing else is asked for.
inline constexpr double held_out_part = 0.1;

/// The place of a name in an order that has nothing to do with names: evenly spread over 64 bits.
std::uint64_t place_by_name(std::string_view name);

/// Whether an item of this place is among this part, from 0 to 1, of all.
bool is_held_out(std::uint64_t place, double part = held_out_part);

}  // namespace mantissa
