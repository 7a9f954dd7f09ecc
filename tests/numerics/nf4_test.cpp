// NF4 beside bitsandbytes: every code, scale and range, and the weights again (bench/peers/nf4_fixture.py).
#include "mantissa/numerics/nf4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/torch_fixture.h"

namespace mantissa {
namespace {

class Nf4BesideBitsandbytes : public ::testing::Test {
  protected:
    TorchFixture fixture_{"nf4"};
    std::vector<float> weights_ = fixture_.values<float>("weights");
    Nf4Weights made_ = nf4_of(weights_);
};

TEST_F(Nf4BesideBitsandbytes, NumbersOfCodes) {
    const auto numbers = fixture_.values<float>("numbers"), scales = fixture_.values<float>("scale_numbers");
    EXPECT_EQ(numbers, std::vector<float>(nf4_numbers.begin(), nf4_numbers.end()));
    EXPECT_EQ(scales, std::vector<float>(nf4_scale_numbers().begin(), nf4_scale_numbers().end()));
}

TEST_F(Nf4BesideBitsandbytes, CodesAndRanges) {
    const auto codes = fixture_.values<std::int32_t>("codes");
    for (std::size_t i = 0; i < weights_.size(); ++i)
        ASSERT_EQ(made_.codes[i / 2] >> (i % 2 == 0 ? 0 : 4) & 15, codes[i]) << i;
    const auto ranges = fixture_.values<float>("ranges");
    ASSERT_EQ(made_.ranges.size(), ranges.size() + 1);
    for (std::size_t i = 0; i < ranges.size(); ++i)
        EXPECT_NEAR(made_.ranges[i], ranges[i], 1e-6f * ranges[i]);
    EXPECT_NEAR(made_.ranges.back(), fixture_.values<float>("mean")[0], 1e-6f * made_.ranges.back());
}

/// Theirs is at the farther number in two cases.
TEST_F(Nf4BesideBitsandbytes, ScalesGoToTheNearestNumber) {
    const auto theirs = fixture_.values<std::int32_t>("scales");
    const auto& numbers = nf4_scale_numbers();
    std::size_t others = 0;
    for (std::size_t block = 0; block < theirs.size(); ++block) {
        if (made_.scales[block] == theirs[block]) continue;
        float most = 0;
        for (std::size_t i = 64 * block; i < std::min(weights_.size(), 64 * (block + 1)); ++i)
            most = std::max(most, std::abs(weights_[i]));
        const float x = (most - made_.ranges.back()) / made_.ranges[block / 256];
        EXPECT_LT(std::abs(x - numbers[made_.scales[block]]),
                  std::abs(x - numbers[static_cast<std::size_t>(theirs[block])]))
            << block;
        ++others;
    }
    EXPECT_LE(others, 2u);
}

TEST_F(Nf4BesideBitsandbytes, WeightsAgain) {
    const auto again = fixture_.values<float>("again");
    const auto theirs = fixture_.values<std::int32_t>("scales");
    std::vector<float> values(weights_.size());
    nf4_widen(made_, 0, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (made_.scales[i / 64] == theirs[i / 64]) {
            ASSERT_NEAR(values[i], again[i], 2e-6f * std::abs(again[i]) + 1e-9f) << i;
        }
    }
    std::vector<float> some(100);
    nf4_widen(made_, 1023, some);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), values.begin() + 1023));
}

TEST(Nf4, KeepsWhatIsNotFiniteFromLookingFine) {
    std::vector<float> weights(128, 0.5f);
    weights[70] = std::numeric_limits<float>::infinity();
    std::vector<float> values(128);
    nf4_widen(nf4_of(weights), 0, values);
    EXPECT_TRUE(std::isnan(values[100]));
    const Nf4Weights none = nf4_of({});
    EXPECT_EQ(none.ranges.size(), 1u);
}

}  // namespace
}  // namespace mantissa
