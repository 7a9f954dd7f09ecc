// Groups of weights in four bits against a search in FP64 over many scales.
#include "mantissa/numerics/coded_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/numerics/formats.h"

namespace mantissa {
namespace {

std::vector<float> some_weights(std::uint32_t which, std::size_t count) {
    const RandomStream random{.seed = 9, .step = 0, .operation = which};
    std::vector<float> weights;
    for (std::uint64_t i = 0; i < count; ++i) weights.push_back(random.normal(i) * 0.02f);
    return weights;
}

double squared_error(const std::vector<float>& weights, double scale) {
    double error = 0;
    for (const float weight : weights) {
        const double w = static_cast<double>(weight);
        const double number = scale == 0 ? 0 : std::clamp(std::nearbyint(w / scale), -8.0, 7.0);
        error += (w - number * scale) * (w - number * scale);
    }
    return error;
}

double squared_error(const std::vector<float>& weights, const WeightGroup& group) {
    double error = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const double off =
            static_cast<double>(weights[i]) - group.numbers[i] * static_cast<double>(to_f32(group.scale));
        error += off * off;
    }
    return error;
}

/// The least error of 4,000 scales of both signs.
double min_error(const std::vector<float>& weights) {
    double largest = 0, least = std::numeric_limits<double>::infinity();
    for (const float weight : weights) largest = std::max(largest, std::abs(static_cast<double>(weight)));
    for (int i = 1; i <= 2000; ++i)
        for (const double sign : {-1.0, 1.0})
            least = std::min(least, squared_error(weights, sign * largest * i / (2000 * 4.0)));
    return least;
}

TEST(WeightGroups, ErrLittleMoreThanTheBestScaleThereIs) {
    double found = 0, best = 0, by_largest = 0;
    for (std::uint32_t which = 0; which < 200; ++which) {
        const std::vector<float> weights = some_weights(which, which % 3 == 0 ? 20 : 32);
        const WeightGroup group = group_of(weights);
        for (const std::int8_t number : group.numbers) {
            EXPECT_GE(number, -8);
            EXPECT_LE(number, 7);
        }
        found += squared_error(weights, group);
        best += min_error(weights);
        float largest = 0;
        for (const float weight : weights) largest = std::max(largest, std::abs(weight));
        by_largest += squared_error(weights, static_cast<double>(largest) / 7);
    }
    // Seven candidates of one sign, and a scale in BF16; the rule of the largest value errs 1.4 times as
    // much.
    EXPECT_LE(found, 1.08 * best);
    EXPECT_GT(by_largest, 1.3 * found);
}

TEST(WeightGroups, ZerosAndWhatIsNotFinite) {
    const WeightGroup zeros = group_of(std::vector<float>(32, 0.0f));
    EXPECT_EQ(to_f32(zeros.scale), 0.0f);
    const std::vector<float> one{0.5f};
    const WeightGroup single = group_of(one);
    EXPECT_LE(squared_error(one, single), 1e-6);
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        std::vector<float> weights = some_weights(1, 32);
        weights[9] = bad;
        EXPECT_TRUE(std::isnan(to_f32(group_of(weights).scale)));
    }
}

}  // namespace
}  // namespace mantissa
