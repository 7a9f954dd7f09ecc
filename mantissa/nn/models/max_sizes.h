// Sizes that a language model may have at most, whatever its family.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::nn {

/// Beyond these no number of bytes could be counted.
inline constexpr std::int64_t max_layers = 1000, max_of_others = std::int64_t{1} << 20;

/// Throws UserError, naming what it is, unless the value lies between 1 and the most.
void require_between(const char* what, std::int64_t value, std::int64_t most);

}  // namespace mantissa::nn
