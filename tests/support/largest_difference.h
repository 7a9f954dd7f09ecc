// The distance of computed numbers from the expected ones.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace mantissa::testing {

/// The largest difference of two numbers; infinite if one is not a number.
template <class Numbers>
double largest_difference(const Numbers& got, std::span<const double> expected) {
    EXPECT_EQ(got.size(), expected.size());
    double worst = 0;
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
        const double difference = std::abs(static_cast<double>(got[i]) - expected[i]);
        if (!(difference <= worst)) worst = std::isnan(difference) ? INFINITY : difference;
    }
    return worst;
}

}  // namespace mantissa::testing
