// NF4 beside bitsandbytes: every code, scale and range, and the weights again (bench/peers/nf4_fixture.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/numerics/coded_weights.h"
#include "tests/support/torch_fixture.h"

namespace mantissa {
namespace {

class Nf4BesideBitsandbytes : public ::testing::Test {
  protected:
    TorchFixture fixture_{"nf4"};
    std::vector<float> weights_ = fixture_.values<float>("weights");
    Nf4Weights made_ = nf4_of(weights_);
};

/// Weights, there and back.
std::vector<float> through_nf4(const std::vector<float>& weights) {
    const CodedMatrix row{Layout::nf4, 1, std::ssize(weights)};
    std::vector<std::byte> codes(static_cast<std::size_t>(coded_bytes(row)));
    write_codes(row, weights, codes.data());
    std::vector<float> again(weights.size());
    read_codes(row, codes.data(), 0, again);
    return again;
}

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
    const std::vector<float> values = through_nf4(weights_);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (made_.scales[i / 64] == theirs[i / 64]) {
            ASSERT_NEAR(values[i], again[i], 2e-6f * std::abs(again[i]) + 1e-9f) << i;
        }
    }
}

TEST(Nf4, KeepsWhatIsNotFiniteFromLookingFine) {
    std::vector<float> weights(128, 0.5f);
    weights[70] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isnan(through_nf4(weights)[100]));
    const Nf4Weights none = nf4_of({});
    EXPECT_EQ(none.ranges.size(), 1u);
}

}  // namespace
}  // namespace mantissa
