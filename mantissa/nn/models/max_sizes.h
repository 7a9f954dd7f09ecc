// Sizes that a language model may have at most, whatever its family.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::nn {

/// Beyond these no number of bytes could be counted.
inline constexpr std::int64_t max_layers = 1000, max_of_others = std::int64_t{1} << 20;

/// Throws UserError, naming what it is, unless the value lies between 1 and the most.
inline void require_between(const char* what, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most)
        throw UserError(std::string("a model's ") + what + " must be between 1 and " + std::to_string(most) +
                        ", got " + std::to_string(value));
}

}  // namespace mantissa::nn
