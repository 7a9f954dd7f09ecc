#include "mantissa/base/random.h"

#include <cmath>
#include <numbers>

namespace mantissa::inline v0 {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(product0)};
        key[0] += 0x9E3779B9;  // Weyl sequences: the golden ratio and sqrt(3) - 1
        key[1] += 0xBB67AE85;
    }
    return counter;
}

std::array<std::uint32_t, 4> RandomStream::block(std::uint64_t index) const {
    return philox(
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), operation, step},
        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

std::uint32_t RandomStream::bits(std::uint64_t element) const { return block(element / 4)[element % 4]; }

float RandomStream::uniform(std::uint64_t element) const { return uniform_from_bits(bits(element)); }

float RandomStream::normal(std::uint64_t element) const {
    // Two normals a block of four words would do with half the blocks; initialisation is not where time goes.
    const auto words = block(element);
    const double radius = std::sqrt(-2.0 * std::log((words[0] + 1.0) * 0x1p-32));  // in (0, 1], so finite
    return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * (words[1] * 0x1p-32)));
}

}  // namespace mantissa
