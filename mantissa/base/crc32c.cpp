#include "mantissa/base/crc32c.h"

#include <array>

namespace mantissa::inline v0 {

namespace {

constexpr std::uint32_t reflected_polynomial = 0x82F63B78;

/// The effect of a byte on a checksum that has passed it: a bit at a time, least significant first.
constexpr std::array<std::uint32_t, 256> make_table() {
    std::array<std::uint32_t, 256> table = {};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t rest = byte;
        for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ (rest & 1 ? reflected_polynomial : 0);
        table[byte] = rest;
    }
    return table;
}

constexpr std::array<std::uint32_t, 256> table = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    std::uint32_t crc = ~std::uint32_t{0};
    for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<std::uint8_t>(byte)) & 0xFF];
    return ~crc;
}

}  // namespace mantissa
