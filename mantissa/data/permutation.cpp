#include "mantissa/data/permutation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa::inline v0 {

namespace {

/// Four rounds with perfect round functions give a pseudorandom permutation (Luby and Rackoff); small domains
/// need more.
constexpr std::uint32_t rounds = 8;

std::uint64_t round_value(std::uint64_t half, std::uint32_t round, const ShuffleKey& key) {
    const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    // Halves have at most 32 bits, so the counter's words never collide.
    const auto words = philox({low(half), round, low(key.epoch), low(key.epoch >> 32)},
                              {low(key.seed), low(key.seed >> 32)});
    return words[0];
}

}  // namespace

std::uint64_t shuffled(std::uint64_t index, std::uint64_t count, const ShuffleKey& key) {
    check(index < count, "a shuffled index lies within the range");
    const int half_bits = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
    const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
    do {
        std::uint64_t left = index >> half_bits, right = index & mask;
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const std::uint64_t next = left ^ (round_value(right, round, key) & mask);
            left = right;
            right = next;
        }
        index = left << half_bits | right;
    } while (index >= count);
    return index;
}

std::uint64_t place_by_name(std::string_view name) { return checksum_of(std::as_bytes(std::span(name))); }

bool is_held_out(std::uint64_t place, double part) {
    return static_cast<double>(place >> 11) < part * std::ldexp(1.0, 53);
}

}  // namespace mantissa
