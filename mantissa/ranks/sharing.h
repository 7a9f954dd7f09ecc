// How ranks share the work of an update, and what travels between them.
#pragma once

#include <cstdint>

namespace mantissa::inline v0 {

/// Who holds the optimizer's states of a parameter.
enum class States : std::uint8_t {
    whole,   ///< every rank those of all parameters
    sharded  ///< every rank a part; what is too small to be cut, and what may not be, is whole
};

/// In which format terms of sums travel.
enum class Wire : std::uint8_t {
    fp32,
    bf16  ///< half of the bytes; each term is rounded to nearest even before it is added
};

}  // namespace mantissa
