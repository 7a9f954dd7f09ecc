// How ranks share the work of an update, and the format of their terms.
#pragma once

#include <cstdint>

namespace mantissa::inline v0 {

/// The holders of the optimizer's states of a parameter.
enum class States : std::uint8_t {
    whole,   ///< every rank holds the states of all parameters
    sharded  ///< every rank holds a part; parameters too small to be cut, or kept whole, are whole
};

/// The format of the terms of sums while they travel.
enum class Wire : std::uint8_t {
    fp32,
    bf16  ///< half of the bytes; each term is rounded to nearest even before it is added
};

}  // namespace mantissa
