#include "mantissa/numerics/value_histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mantissa {
namespace {

TEST(ValueHistogram, EveryNumberLiesInABucketThatHoldsIt) {
    constexpr float largest = std::numeric_limits<float>::max();
    for (const float value : {0.0f, -0.0f, 1e-45f, -1e-45f, 1.0f, -1.0f, 1.1f, -1.1f, 1.125f, 1.999f, 3e-30f,
                              largest, -largest}) {
        ValueHistogram histogram;
        histogram.add({&value, 1});
        const auto buckets = histogram.buckets();
        ASSERT_EQ(buckets.size(), 1u) << value;
        EXPECT_EQ(buckets[0].count, 1);
        const double limit = buckets[0].limit, x = static_cast<double>(value);
        EXPECT_GE(limit, x);
        // An eighth of a power of two wide; 2^-129 around zero.
        EXPECT_LE(limit - x, std::max(std::abs(x) / 8 * 1.0001, 0x1p-128)) << value;
    }
}

TEST(ValueHistogram, BucketsAscendAndHoldEachNumberOnce) {
    ValueHistogram histogram;
    std::vector<float> values;
    for (int i = -1000; i <= 1000; ++i) values.push_back(static_cast<float>(i * i * i) * 1e-9f);
    histogram.add(values);
    const auto buckets = histogram.buckets();
    std::size_t below = 0;
    std::int64_t counted = 0;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
        if (i > 0) {
            EXPECT_LT(buckets[i - 1].limit, buckets[i].limit);
        }
        counted += buckets[i].count;
        // All numbers below the limit are in the buckets up to it; one that is the limit may be in either.
        while (below < values.size() && static_cast<double>(values[below]) < buckets[i].limit) ++below;
        const bool on_limit = below < values.size() && static_cast<double>(values[below]) == buckets[i].limit;
        EXPECT_TRUE(counted == static_cast<std::int64_t>(below) ||
                    (on_limit && counted == static_cast<std::int64_t>(below) + 1))
            << buckets[i].limit;
    }
    EXPECT_EQ(counted, 2001);
    EXPECT_EQ(histogram.numbers(), 2001);
    EXPECT_GE(buckets.back().limit, histogram.greatest());
}

TEST(ValueHistogram, SumsAreThoseOfTheFiniteNumbers) {
    ValueHistogram histogram;
    EXPECT_TRUE(histogram.buckets().empty());
    EXPECT_EQ(histogram.least(), 0);
    histogram.add(std::vector<float>{2, -3, NAN, INFINITY, -INFINITY});
    EXPECT_EQ(histogram.numbers(), 2);
    EXPECT_EQ(histogram.not_finite(), 3);
    EXPECT_EQ(histogram.least(), -3);
    EXPECT_EQ(histogram.greatest(), 2);
    EXPECT_EQ(histogram.sum(), -1);
    EXPECT_EQ(histogram.sum_of_squares(), 13);
    // An empty stretch between two buckets is one bucket.
    EXPECT_EQ(histogram.buckets().size(), 3u);
}

}  // namespace
}  // namespace mantissa
