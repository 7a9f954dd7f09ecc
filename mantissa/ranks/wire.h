// In which format terms of sums travel between ranks.
#pragma once

#include <cstdint>

namespace mantissa::inline v0 {

enum class Wire : std::uint8_t {
    fp32,
    bf16  ///< half of the bytes; each term is rounded to nearest even before it is added
};

}  // namespace mantissa
