#include "mantissa/numerics/exponent_histogram.h"

#include <algorithm>
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

}  // namespace mantissa
