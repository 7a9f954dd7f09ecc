// NF4: weights in four bits, each a quantile of the normal distribution times the largest magnitude of its
// block; the blocks' scales are kept in eight bits. Dettmers et al., "QLoRA", NeurIPS 2023.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace mantissa::inline v0 {

inline constexpr std::int64_t nf4_block = 64;         ///< weights with one scale, row-major
inline constexpr std::int64_t nf4_scale_block = 256;  ///< scales with one range

/// The numbers of the 16 codes, from -1 to 1.
inline constexpr std::array<float, 16> nf4_numbers = {-1.0f,
                                                      -0.6961928009986877f,
                                                      -0.5250730514526367f,
                                                      -0.39491748809814453f,
                                                      -0.28444138169288635f,
                                                      -0.18477343022823334f,
                                                      -0.09105003625154495f,
                                                      0.0f,
                                                      0.07958029955625534f,
                                                      0.16093020141124725f,
                                                      0.24611230194568634f,
                                                      0.33791524171829224f,
                                                      0.44070982933044434f,
                                                      0.5626170039176941f,
                                                      0.7229568362236023f,
                                                      1.0f};

/// The numbers of the 256 codes of a scale: seven decades with twice as many in each, evenly spaced.
const std::array<float, 256>& nf4_scale_numbers();

/// How many scales and ranges so many weights have. Behind the ranges stands the mean of all scales.
constexpr std::int64_t nf4_scales(std::int64_t weights) { return (weights + nf4_block - 1) / nf4_block; }
constexpr std::int64_t nf4_ranges(std::int64_t weights) {
    return (nf4_scales(weights) + nf4_scale_block - 1) / nf4_scale_block + 1;
}

struct Nf4Weights {
    std::vector<std::uint8_t> codes;   ///< two in a byte, the first in its lower half
    std::vector<std::uint8_t> scales;  ///< of blocks: codes of nf4_scale_numbers
    std::vector<float> ranges;         ///< of blocks of scales, and the mean
};

/// A weight goes to the nearest number times its block's largest magnitude; at a tie, to the lower one. All
/// of a block becomes NaN if one of its numbers is not finite.
Nf4Weights nf4_of(std::span<const float> weights);

}  // namespace mantissa
