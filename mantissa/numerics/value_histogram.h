// How the numbers of a tensor are spread. By powers of two, which decides the formats that can hold them; and
// with their signs, as finely as tools draw them that look at training.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace mantissa::inline v0 {

class ExponentHistogram {
  public:
    static constexpr int lowest = -149;  ///< of the smallest FP32 number
    static constexpr int highest = 128;  ///< of the largest, rounded up

    void add(std::span<const float> values);
    void add(const ExponentHistogram& other);

    /// Magnitudes in (2^(exponent - 1), 2^exponent].
    std::int64_t count(int exponent) const { return counts_[static_cast<std::size_t>(exponent - lowest)]; }
    /// Magnitudes above zero that are at most 2^exponent; any exponent.
    std::int64_t at_most(int exponent) const;

    std::int64_t numbers() const { return at_most(highest); }  ///< finite and not zero
    std::int64_t zeros() const { return zeros_; }
    std::int64_t not_finite() const { return not_finite_; }
    float greatest() const { return greatest_; }  ///< magnitude among the finite

    /// The share of numbers() that FP16 makes zero once they are multiplied by 2^scale_exponent: to nearest
    /// even, 2^-25 and less.
    double lost_in_f16(int scale_exponent) const;

  private:
    std::array<std::int64_t, highest - lowest + 1> counts_ = {};
    std::int64_t zeros_ = 0, not_finite_ = 0;
    float greatest_ = 0;
};

/// The exponent of the loss scale to choose for gradients, from 0 to 24: of the largest power of two at which
/// the greatest gradient is still a quarter of FP16's largest number. So the gradient may grow between two
/// steps.
int proposed_scale_exponent(const ExponentHistogram& gradients);

class ValueHistogram {
  public:
    /// Adds numbers; infinities and NaN are counted apart.
    void add(std::span<const float> values);

    /// The count of all finite numbers; 0 where there are none.
    std::int64_t numbers() const { return numbers_; }
    std::int64_t not_finite() const { return not_finite_; }
    double least() const { return least_; }
    double greatest() const { return greatest_; }
    double sum() const { return sum_; }
    double sum_of_squares() const { return sum_of_squares_; }

    /// A part of the line of numbers, up to `limit`.
    struct Bucket {
        double limit = 0;
        std::int64_t count = 0;
    };
    /// Buckets by ascending limits, each beginning where the one before it ends; empty ones between two that
    /// are not are one.
    std::vector<Bucket> buckets() const;

  private:
    /// Counts are by sign, exponent and the first three bits of the fraction.
    static constexpr int kept_bits = 12, dropped_bits = 32 - kept_bits;

    std::array<std::int64_t, std::size_t{1} << kept_bits> counts_ = {};
    std::int64_t numbers_ = 0, not_finite_ = 0;
    double least_ = 0, greatest_ = 0, sum_ = 0, sum_of_squares_ = 0;
};

}  // namespace mantissa
