// Counter-based random numbers: the value at (seed, step, operation, element) is a pure function of the four,
// so threads, blocking and resuming change nothing. Philox4x32-10, Salmon et al., "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace mantissa::inline v0 {

/// One Philox4x32-10 block: 128 random bits from a 128-bit counter and a 64-bit key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// The numbers of one operation in one step.
struct RandomStream {
    std::uint64_t seed = 0;
    std::uint32_t step = 0;
    std::uint32_t operation = 0;

    /// The four 32-bit words of elements 4 * block ... 4 * block + 3.
    std::array<std::uint32_t, 4> block(std::uint64_t block) const;
    /// 32 random bits.
    std::uint32_t bits(std::uint64_t element) const;
    /// Uniform in [0, 1), a multiple of 2^-24, so exact in FP32.
    float uniform(std::uint64_t element) const;
    /// Standard normal, by Box and Muller from two words of 32 bits.
    float normal(std::uint64_t element) const;
};

/// 32 random bits as a number in [0, 1): the upper 24 of them.
inline float uniform_from_bits(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace mantissa
