#include "mantissa/train/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa::inline v0 {

namespace {

/// Tells these random numbers from those of everything else that has the same seed.
constexpr std::uint32_t sampling_operation = 0x73616d70;  // "samp"

/// The `count` tokens of the largest scores; in order of the tokens if that is all of them.
std::vector<std::int32_t> largest(std::span<const float> logits, std::size_t count) {
    std::vector<std::int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    if (count >= ids.size()) return ids;
    const auto before = [&](std::int32_t a, std::int32_t b) {
        const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
    };
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(), before);
    ids.resize(count);
    return ids;
}

/// In [0, 1), of 53 bits, so that also the tokens of a probability below 2^-24 can be drawn.
double uniform(const SamplingOptions& options, std::int64_t position) {
    const RandomStream stream{
        .seed = options.seed, .step = static_cast<std::uint32_t>(position), .operation = sampling_operation};
    const auto words = stream.block(0);
    return static_cast<double>((std::uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

}  // namespace

void validate(const SamplingOptions& options) {
    if (!(options.temperature >= 0) || std::isinf(options.temperature))
        throw UserError(fmt::format("the temperature must be 0 (always the likeliest token) or more, got {}",
                                    options.temperature));
    if (options.top_k < 0)
        throw UserError(fmt::format("top-k must be 0 (all) or more, got {}", options.top_k));
}

std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::int64_t position) {
    if (options.tokens > 0)
        logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(options.tokens)));
    check(!logits.empty(), "there is a token to draw");
    for (std::size_t id = 0; id < logits.size(); ++id)
        if (!std::isfinite(logits[id]))
            throw UserError(
                fmt::format("the model's score of token {} after {} tokens is {}; its parameters "
                            "are damaged, or it diverged in training",
                            id, position, logits[id]));
    const auto highest = std::max_element(logits.begin(), logits.end());
    if (options.temperature == 0) return static_cast<std::int32_t>(highest - logits.begin());
    const auto ids =
        largest(logits, options.top_k == 0 ? logits.size() : static_cast<std::size_t>(options.top_k));
    std::vector<double> sums;  // of the weights up to each candidate
    sums.reserve(ids.size());
    double total = 0;
    for (std::int32_t id : ids) {
        const double below = static_cast<double>(logits[static_cast<std::size_t>(id)] - *highest);
        sums.push_back(total += std::exp(below / options.temperature));
    }
    const double drawn = uniform(options, position) * total;
    const auto found = std::upper_bound(sums.begin(), sums.end(), drawn);
    // Rounding of the product may reach the total itself.
    return found == sums.end() ? ids.back() : ids[static_cast<std::size_t>(found - sums.begin())];
}

double log_probability(std::span<const float> logits, std::int32_t token) {
    check(token >= 0 && static_cast<std::size_t>(token) < logits.size(), "the token has a score");
    const double highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    double total = 0;
    for (const float score : logits) total += std::exp(static_cast<double>(score) - highest);
    return static_cast<double>(logits[static_cast<std::size_t>(token)]) - highest - std::log(total);
}

}  // namespace mantissa
