// Rotary positions: how fast each pair of a head's elements turns.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "mantissa/nn/decoder/decoder.h"

namespace mantissa::inline v0::nn {

std::int64_t turning_elements(const Rotary& rotary, std::int64_t head_size) {
    return static_cast<std::int64_t>(static_cast<double>(head_size) * rotary.part);
}

double rotary_scale(const Rotary& rotary) {
    if (rotary.attention_factor > 0) return rotary.attention_factor;
    if (rotary.factor <= 1) return 1;
    if (rotary.kind == Rotary::Kind::yarn) return 0.1 * std::log(rotary.factor) + 1;
    if (rotary.kind == Rotary::Kind::longrope)
        return std::sqrt(1 +
                         std::log(rotary.factor) / std::log(static_cast<double>(rotary.original_context)));
    return 1;
}

namespace {

/// The pairs between which yarn blends, for `size` turning elements.
std::pair<double, double> yarn_bounds(const Rotary& rotary, std::int64_t size) {
    const auto d = static_cast<double>(size);
    const auto pair_that_turns = [&](double times) {
        const auto original = static_cast<double>(rotary.original_context);
        return d * std::log(original / (times * 2 * std::numbers::pi)) / (2 * std::log(rotary.theta));
    };
    double low = pair_that_turns(rotary.high_frequency_factor),
           high = pair_that_turns(rotary.low_frequency_factor);
    if (rotary.truncated) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, d - 1);
    return {low, low == high ? high + 0.001 : high};
}

}  // namespace

std::vector<double> rotary_frequencies(const Rotary& rotary, std::int64_t head_size) {
    using Kind = Rotary::Kind;
    const std::int64_t size = turning_elements(rotary, head_size);
    const auto factor = static_cast<float>(rotary.factor);
    const auto original = static_cast<float>(rotary.original_context);
    const auto low = static_cast<float>(rotary.low_frequency_factor),
               high = static_cast<float>(rotary.high_frequency_factor);
    const auto [first, last] = rotary.kind == Kind::yarn ? yarn_bounds(rotary, size) : std::pair{0.0, 1.0};
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < size; i += 2) {
        const float share = static_cast<float>(i) / static_cast<float>(size);
        const float power = std::pow(static_cast<float>(rotary.theta), share);
        float frequency = 1.0f / power;
        if (rotary.kind == Kind::linear) frequency /= factor;
        if (rotary.kind == Kind::llama3) {
            const float turns = original * frequency / (2.0f * std::numbers::pi_v<float>);
            const float kept = std::clamp((turns - low) / (high - low), 0.0f, 1.0f);
            frequency = (1.0f - kept) * frequency / factor + kept * frequency;
        }
        if (rotary.kind == Kind::yarn) {
            const float ramp =
                (static_cast<float>(i / 2) - static_cast<float>(first)) / static_cast<float>(last - first);
            const float kept = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
            frequency = 1.0f / (factor * power) * (1.0f - kept) + frequency * kept;
        }
        if (rotary.kind == Kind::longrope)
            frequency =
                1.0f / (static_cast<float>(rotary.short_factors[static_cast<std::size_t>(i / 2)]) * power);
        frequencies.push_back(static_cast<double>(frequency));
    }
    return frequencies;
}

}  // namespace mantissa::nn
