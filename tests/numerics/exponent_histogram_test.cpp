// Counts by powers of two, and what FP16 loses by them.
#include "mantissa/numerics/value_histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/numerics/formats.h"

namespace mantissa {
namespace {

TEST(ExponentHistogram, CountsEachNumberOnce) {
    ExponentHistogram histogram;
    const float values[] = {1.0f,
                            -1.5f,
                            2.0f,
                            0.0f,
                            -0.0f,
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::denorm_min(),
                            std::nanf(""),
                            -INFINITY};
    histogram.add(values);
    EXPECT_EQ(histogram.count(0), 1);
    EXPECT_EQ(histogram.count(1), 2);
    EXPECT_EQ(histogram.count(ExponentHistogram::highest), 1);
    EXPECT_EQ(histogram.count(ExponentHistogram::lowest), 1);
    EXPECT_EQ(histogram.numbers(), 5);
    EXPECT_EQ(histogram.zeros(), 2);
    EXPECT_EQ(histogram.not_finite(), 2);
    EXPECT_EQ(histogram.greatest(), std::numeric_limits<float>::max());
    histogram.add(ExponentHistogram(histogram));
    EXPECT_EQ(histogram.numbers(), 10);
    EXPECT_EQ(histogram.at_most(1), 8);
    EXPECT_EQ(histogram.at_most(-1000), 0);
}

TEST(ExponentHistogram, LosesWhatTheConversionLoses) {
    std::vector<float> values = {0x1p-25f, std::nextafter(0x1p-25f, 1.0f), 0x1p-24f, -0x1p-26f};
    const RandomStream random{.seed = 2};
    for (std::uint64_t i = 0; i < 10000; ++i)
        values.push_back(std::ldexp(random.normal(i), -static_cast<int>(i % 50)));
    ExponentHistogram histogram;
    histogram.add(values);
    for (const int scale : {0, 1, 7, 16}) {
        std::int64_t lost = 0;
        for (const float value : values) lost += (to_fp16(std::ldexp(value, scale)).bits & 0x7fff) == 0;
        EXPECT_EQ(histogram.lost_in_f16(scale),
                  static_cast<double>(lost) / static_cast<double>(values.size()));
    }
}

TEST(ExponentHistogram, TheScaleKeepsTheGreatestBelowAQuarterOfTheRange) {
    const auto proposed = [](float greatest) {
        ExponentHistogram histogram;
        histogram.add({&greatest, 1});
        return proposed_scale_exponent(histogram);
    };
    EXPECT_EQ(proposed(1.0f), 13);  // 8,192 of 16,376
    EXPECT_EQ(proposed(2.0f), 12);
    EXPECT_EQ(proposed(1e-9f), 24);
    EXPECT_EQ(proposed(1e9f), 0);
}

}  // namespace
}  // namespace mantissa
