// How the numbers of a tensor are spread, with their signs: eight parts to each power of two, as fine as
// what tools for looking at training draw.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace mantissa::inline v0 {

class ValueHistogram {
  public:
    /// Those that are not finite are counted apart.
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
