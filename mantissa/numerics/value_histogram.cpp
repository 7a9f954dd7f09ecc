#include "mantissa/numerics/value_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mantissa::inline v0 {

void ExponentHistogram::add(std::span<const float> values) {
    for (const float value : values) {
        const float magnitude = std::fabs(value);
        if (value == 0) {
            ++zeros_;
        } else if (!std::isfinite(value)) {
            ++not_finite_;
        } else {
            int exponent = 0;
            // A power of two is the greatest of its interval, not the least of the next.
            if (std::frexp(magnitude, &exponent) == 0.5f) --exponent;
            ++counts_[exponent - lowest];
            greatest_ = std::max(greatest_, magnitude);
        }
    }
}

void ExponentHistogram::add(const ExponentHistogram& other) {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    zeros_ += other.zeros_;
    not_finite_ += other.not_finite_;
    greatest_ = std::max(greatest_, other.greatest_);
}

std::int64_t ExponentHistogram::at_most(int exponent) const {
    std::int64_t total = 0;
    for (int e = lowest; e <= std::min(exponent, highest); ++e) total += count(e);
    return total;
}

double ExponentHistogram::lost_in_f16(int scale_exponent) const {
    const std::int64_t all = numbers();
    return all == 0 ? 0 : static_cast<double>(at_most(-25 - scale_exponent)) / static_cast<double>(all);
}

int proposed_scale_exponent(const ExponentHistogram& gradients) {
    constexpr double most = 65504.0 / 4;
    int exponent = 24;
    while (exponent > 0 && std::ldexp(static_cast<double>(gradients.greatest()), exponent) > most) --exponent;
    return exponent;
}

void ValueHistogram::add(std::span<const float> values) {
    for (const float value : values) {
        if (!std::isfinite(value)) {
            ++not_finite_;
            continue;
        }
        const auto x = static_cast<double>(value);
        least_ = numbers_ == 0 ? x : std::min(least_, x);
        greatest_ = numbers_ == 0 ? x : std::max(greatest_, x);
        ++numbers_;
        sum_ += x;
        sum_of_squares_ += x * x;
        ++counts_[std::bit_cast<std::uint32_t>(value) >> dropped_bits];
    }
}

std::vector<ValueHistogram::Bucket> ValueHistogram::buckets() const {
    constexpr std::uint32_t half = 1U << (kept_bits - 1);  // the first bucket with the sign
    // The least magnitude of a key; the last finite key ends at 2^128.
    const auto edge = [](std::uint32_t key) {
        const float begin = std::bit_cast<float>(key << dropped_bits);
        return std::isinf(begin) ? 0x1p128 : static_cast<double>(begin);
    };
    std::vector<Bucket> buckets;
    const auto add = [&](double begin, double limit, std::int64_t count) {
        if (count == 0) return;
        if (!buckets.empty() && buckets.back().limit < begin) buckets.push_back({begin, 0});
        buckets.push_back({limit, count});
    };
    for (std::uint32_t key = half; key-- > 1;)  // negative numbers, from the greatest magnitude down
        add(-edge(key + 1), -edge(key), counts_[half + key]);
    // The bucket around zero: 0, -0 and the smallest magnitudes.
    add(-edge(1), edge(1), counts_[0] + counts_[half]);
    for (std::uint32_t key = 1; key < half; ++key) add(edge(key), edge(key + 1), counts_[key]);
    return buckets;
}

}  // namespace mantissa
