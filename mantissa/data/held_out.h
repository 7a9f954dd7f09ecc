// The choice of items held out for validation, by a checksum of the item's own name. So an item stays on its
// side for every seed, and when others are added, removed or renamed.
#pragma once

#include <cstdint>
#include <string_view>

namespace mantissa::inline v0 {

/// The default share held out.
inline constexpr double held_out_part = 0.1;

/// A hash of a name, evenly spread over 64 bits.
std::uint64_t place_by_name(std::string_view name);

/// Whether an item with this hash is among this part, from 0 to 1, of all items.
bool is_held_out(std::uint64_t place, double part = held_out_part);

}  // namespace mantissa
