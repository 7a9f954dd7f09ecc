// FP32 numbers on which wrong conversions to 16 bits show.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/base/random.h"

namespace mantissa::testing {

/// FP32 numbers of every exponent, either sign, with fractions at and beside the ties of both 16-bit formats,
/// random ones, and special ones.
inline std::vector<std::uint32_t> telling_bits() {
    std::vector<std::uint32_t> all;
    const std::uint32_t fractions[] = {0,      1,      0xfff,  0x1000,  0x1001,  0x2000,   0x3000,  0x7fff,
                                       0x8000, 0x8001, 0xffff, 0x10000, 0x18000, 0x400000, 0x7fffff};
    for (std::uint32_t sign : {0u, 0x80000000u})
        for (std::uint32_t exponent = 0; exponent < 256; ++exponent)
            for (std::uint32_t fraction : fractions) all.push_back(sign | (exponent << 23) | fraction);
    // Subnormals of FP16 have other ties.
    const RandomStream random{.seed = 1};
    for (std::uint32_t i = 0; i < 5000; ++i)
        all.push_back((random.bits(i) & 0x807fffffu) | ((100 + i % 20) << 23));
    for (std::uint32_t i = 5000; i < 5000 + 256 * 64; ++i)
        all.push_back((random.bits(i) & 0x807fffffu) | (i % 256 << 23));
    return all;
}

}  // namespace mantissa::testing
