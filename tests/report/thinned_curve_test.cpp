#include "mantissa/report/training_page.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

TEST(ThinnedCurve, AShortOneIsWhatWasAdded) {
    ThinnedCurve curve;
    for (int i = 0; i < 499; ++i) curve.add(7 + 2 * i, i % 13);
    const auto points = curve.points();
    ASSERT_EQ(points.size(), 499u);
    for (int i = 0; i < 499; ++i) {
        EXPECT_EQ(points[static_cast<std::size_t>(i)].step, 7 + 2 * i);
        EXPECT_EQ(points[static_cast<std::size_t>(i)].value, i % 13);
    }
}

TEST(ThinnedCurve, ALongOneKeepsEveryPeakOfItsParts) {
    for (const int length : {500, 1000, 1001, 4711, 100000}) {
        ThinnedCurve curve;
        const int spike = length / 3, dip = length / 3 * 2;
        double sum = 0;
        for (int i = 0; i < length; ++i) {
            const double value = i == spike ? 100 : i == dip ? -100 : std::sin(i * 0.7);
            curve.add(i, value);
            sum += value;
        }
        const auto points = curve.points();
        EXPECT_LE(points.size(), 1000u) << length;
        EXPECT_GE(points.size(), 240u) << length;
        bool has_spike = false, has_dip = false;
        for (std::size_t i = 0; i < points.size(); ++i) {
            if (i > 0) {
                EXPECT_LT(points[i - 1].step, points[i].step);
            }
            has_spike = has_spike || (points[i].step == spike && points[i].value == 100);
            has_dip = has_dip || (points[i].step == dip && points[i].value == -100);
        }
        EXPECT_TRUE(has_spike && has_dip) << length;
        EXPECT_EQ(points.front().step, 0);
        EXPECT_EQ(points.back().step, length - 1);
        // All means but the last are of as many points.
        const ThinnedCurve::Means means = curve.means(60);
        EXPECT_LE(means.points.size(), 60u);
        EXPECT_GE(means.points.size(), 30u);
        double of_parts = 0;
        for (std::size_t i = 0; i < means.points.size(); ++i) {
            const auto each = static_cast<double>(means.each);
            const double last = length - each * static_cast<double>(means.points.size() - 1);
            of_parts += means.points[i].value * (i + 1 < means.points.size() ? each : last);
        }
        EXPECT_NEAR(of_parts, sum, 1e-6) << length;
    }
}

TEST(ThinnedCurve, GoesOnFromItsNumbers) {
    ThinnedCurve whole(20), begun(20);
    for (int i = 0; i < 100; ++i) {
        const double value = std::sin(i * 0.7);
        whole.add(i, value);
        begun.add(i, value);
    }
    EXPECT_EQ(ThinnedCurve::of(begun.numbers()).numbers(), whole.numbers());
    EXPECT_THROW(ThinnedCurve::of(std::vector<double>{1, 2}), UserError);
}

TEST(ThinnedCurve, WhatIsNotFiniteIsLeftOut) {
    ThinnedCurve curve;
    curve.add(0, NAN);
    curve.add(1, 2);
    curve.add(2, INFINITY);
    ASSERT_EQ(curve.points().size(), 1u);
    EXPECT_EQ(curve.points()[0].step, 1);
}

}  // namespace
}  // namespace mantissa
