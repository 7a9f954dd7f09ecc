#include "mantissa/numerics/nf4.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mantissa::inline v0 {

namespace {

std::array<float, 256> made_scale_numbers() {
    std::array<float, 256> numbers{};
    std::size_t next = 0;
    constexpr int decades = 7;
    for (int decade = 0; decade < decades; ++decade) {
        const int count = 1 << decade;
        const double power = std::pow(10.0, decade - (decades - 1));
        // The middles of as many parts of 0.1 to 1, whose ends FP32 holds.
        const auto end = [&](int i) {
            const float step = (1.0f - 0.1f) / static_cast<float>(count);
            return i < (count + 1) / 2 ? std::fma(step, static_cast<float>(i), 0.1f)
                                       : std::fma(-step, static_cast<float>(count - i), 1.0f);
        };
        for (int i = 0; i < count; ++i) {
            const float middle = (end(i) + end(i + 1)) / 2.0f;
            const float number = static_cast<float>(power) * middle;
            numbers[next++] = number;
            numbers[next++] = -number;
        }
    }
    numbers[next++] = 0;
    numbers[next++] = 1;
    std::ranges::sort(numbers);
    return numbers;
}

/// The code of the number nearest to x among ascending ones.
template <std::size_t count>
std::uint8_t nearest(const std::array<float, count>& numbers, float x) {
    std::size_t low = 0, high = count - 1;
    while (low < high) {  // the first whose middle to the next is not below x
        const std::size_t middle = (low + high) / 2;
        if (x > (numbers[middle] + numbers[middle + 1]) / 2.0f)
            low = middle + 1;
        else
            high = middle;
    }
    return static_cast<std::uint8_t>(low);
}

/// Codes of a block, as nearest() finds them, for all at once: how many middles of neighbours are below x.
void find_codes(std::span<const float> block, float inverse, std::array<std::int32_t, nf4_block>& codes) {
    std::array<float, 15> middles{};
    for (std::size_t i = 0; i < middles.size(); ++i)
        middles[i] = (nf4_numbers[i] + nf4_numbers[i + 1]) / 2.0f;
    codes = {};
    for (const float middle : middles)
        for (std::size_t i = 0; i < block.size(); ++i) codes[i] += block[i] * inverse > middle ? 1 : 0;
}

float largest_magnitude(std::span<const float> values) {
    float most = 0;
    for (const float value : values) {
        if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
        most = std::max(most, std::abs(value));
    }
    return most;
}

}  // namespace

const std::array<float, 256>& nf4_scale_numbers() {
    static const std::array<float, 256> numbers = made_scale_numbers();
    return numbers;
}

Nf4Weights nf4_of(std::span<const float> weights) {
    const std::int64_t count = std::ssize(weights), blocks = nf4_scales(count);
    Nf4Weights made{.codes = std::vector<std::uint8_t>(static_cast<std::size_t>((count + 1) / 2)),
                    .scales = std::vector<std::uint8_t>(static_cast<std::size_t>(blocks)),
                    .ranges = std::vector<float>(static_cast<std::size_t>(nf4_ranges(count)))};
    std::vector<float> scales(static_cast<std::size_t>(blocks));
    double sum = 0;
    for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t first = block * nf4_block, size = std::min(nf4_block, count - first);
        const auto of_block =
            weights.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
        const float most = largest_magnitude(of_block);
        scales[static_cast<std::size_t>(block)] = most;
        sum += static_cast<double>(most);
        const float inverse = most > 0 ? 1.0f / most : 0.0f;
        std::array<std::int32_t, nf4_block> codes;
        find_codes(of_block, inverse, codes);
        for (std::int64_t i = 0; i < size; ++i)
            made.codes[static_cast<std::size_t>((first + i) / 2)] |=
                static_cast<std::uint8_t>(codes[static_cast<std::size_t>(i)] << (i % 2 == 0 ? 0 : 4));
    }
    const float mean = blocks > 0 ? static_cast<float>(sum / static_cast<double>(blocks)) : 0.0f;
    for (float& scale : scales) scale -= mean;
    for (std::int64_t first = 0; first < blocks; first += nf4_scale_block) {
        const auto size = static_cast<std::size_t>(std::min(nf4_scale_block, blocks - first));
        const auto some = std::span(scales).subspan(static_cast<std::size_t>(first), size);
        const float range = largest_magnitude(some);
        made.ranges[static_cast<std::size_t>(first / nf4_scale_block)] = range;
        const float inverse = range > 0 ? 1.0f / range : 0.0f;
        for (std::size_t i = 0; i < size; ++i)
            made.scales[static_cast<std::size_t>(first) + i] =
                nearest(nf4_scale_numbers(), std::clamp(some[i] * inverse, -1.0f, 1.0f));
    }
    made.ranges.back() = mean;
    return made;
}

}  // namespace mantissa
