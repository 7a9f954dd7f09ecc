// What stands for the product of two bits in a binary matrix multiply; the sum counts the ones.
#pragma once

#include <cstdint>

namespace mantissa::cpu {

enum class BitProduct : std::uint8_t {
    exclusive_or,  ///< the number of places in which two rows differ
    conjunction,   ///< the number of places in which both hold a one
};

}  // namespace mantissa::cpu
