// The comparator must fail where it should: each class, and each way in which a result can be no number.
#include "tests/support/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"

namespace mantissa {
namespace {

/// A plain version for tolerances that need one; they refer to it, so it must outlive them.
const std::vector<double> one_and_two = {1.0, 2.0};

/// The widest tolerance of every class, for tests of what no tolerance may let through.
std::vector<Tolerance> wide(const std::vector<double>& plain) {
    static const double huge[] = {1e300};
    return {Tolerance::exact(), Tolerance::ulp(1e9), Tolerance::bound(1, 1e9, 1, huge),
            Tolerance::low_precision(1e9, plain)};
}

TEST(Compare, EqualValuesPassInEveryClass) {
    const std::vector<float> got = {1.5f, -2.0f, 0.0f};
    const std::vector<double> expected = {1.5, -2.0, 0.0};
    const std::vector<double> plain = {1.5, -2.25, 0.0};
    for (const Tolerance& tolerance : wide(plain)) EXPECT_TRUE(compare(got, expected, tolerance));
}

TEST(Compare, NanFailsInEveryClassAndOnEitherSide) {
    for (const Tolerance& tolerance : wide(one_and_two)) {
        EXPECT_FALSE(compare(std::vector{1.0f, NAN}, std::vector{1.0, 2.0}, tolerance));
        EXPECT_FALSE(compare(std::vector{NAN, 2.0f}, std::vector{1.0, 2.0}, tolerance));
        EXPECT_FALSE(compare(std::vector{1.0f, 2.0f}, std::vector<double>{1.0, NAN}, tolerance));
        EXPECT_FALSE(compare(std::vector{1.0f, NAN}, std::vector<double>{1.0, NAN}, tolerance));
    }
    // A NaN in the plain version must not widen the tolerance to everything.
    const std::vector<double> plain = {NAN, 2.0};
    EXPECT_FALSE(compare(std::vector{1.0f, 9.0f}, std::vector{1.0, 2.0}, Tolerance::low_precision(2, plain)));
    const std::vector<double> bad_magnitude = {NAN};
    EXPECT_FALSE(compare(std::vector{1.0f}, std::vector{1.0}, Tolerance::bound(1, 1, 1, bad_magnitude)));
}

TEST(Compare, InfinitiesMustBeEqual) {
    for (const Tolerance& tolerance : wide(one_and_two)) {
        const std::vector<double> finite = {1.0, 2.0};
        const std::vector<double> infinite = {1.0, static_cast<double>(INFINITY)};
        EXPECT_FALSE(compare(std::vector{1.0f, INFINITY}, finite, tolerance));
        EXPECT_FALSE(compare(std::vector{1.0f, -INFINITY}, infinite, tolerance));
        EXPECT_FALSE(compare(std::vector{1.0f, 3e38f}, infinite, tolerance));
        EXPECT_FALSE(compare(std::vector{1.0f, NAN}, infinite, tolerance));
    }
    const std::vector<double> infinite = {static_cast<double>(-INFINITY)};
    EXPECT_TRUE(compare(std::vector{-INFINITY}, infinite, Tolerance::exact()));
    EXPECT_TRUE(compare(std::vector{-INFINITY}, infinite, Tolerance::ulp(1)));
}

TEST(Compare, ShapesMustBeEqual) {
    const std::vector<float> got = {1, 2, 3, 4};
    const std::vector<double> expected = {1, 2, 3, 4};
    const std::int64_t shape[] = {2, 2};
    EXPECT_TRUE(compare({DType::f32, got.data(), {2, 2}}, expected, shape, Tolerance::exact()));
    const Comparison flat = compare({DType::f32, got.data(), {4}}, expected, shape, Tolerance::exact());
    EXPECT_FALSE(flat);
    EXPECT_NE(flat.message.find("shapes differ: expected [2, 2] with 4 values, got [4]"), std::string::npos)
        << flat.message;
    EXPECT_FALSE(compare(std::span(got).first(3), expected, Tolerance::ulp(1e9)));
    EXPECT_FALSE(compare(got, std::span(expected).first(3), Tolerance::ulp(1e9)));
}

TEST(Compare, OutputsThatWereNotWrittenFail) {
    std::vector<float> got(7, NAN);
    for (std::size_t i = 0; i < 6; ++i) got[i] = 1.0f;  // a kernel that forgot the last element
    const Comparison result = compare(got, std::vector<double>(7, 1.0), Tolerance::ulp(4));
    EXPECT_FALSE(result);
    EXPECT_EQ(result.first, 6);
    EXPECT_EQ(result.failures, 1);
}

TEST(Compare, UlpsAreThoseOfTheFormat) {
    const double step = 0x1p-22;  // two ULP of FP32 at 1
    const std::vector<double> expected = {1.0};
    const std::vector<float> got = {static_cast<float>(1.0 + step)};
    EXPECT_TRUE(compare(got, expected, Tolerance::ulp(2)));
    EXPECT_FALSE(compare(got, expected, Tolerance::ulp(1.99)));
    const BF16 wide_step[] = {to_bf16(1.0f + 0x1p-6f)};
    const std::int64_t shape[] = {1};
    EXPECT_TRUE(compare({DType::bf16, wide_step, {1}}, expected, shape, Tolerance::ulp(2)));
    EXPECT_FALSE(compare({DType::bf16, wide_step, {1}}, expected, shape, Tolerance::ulp(1)));
}

TEST(Compare, ADerivedBoundBites) {
    // 100 terms of magnitude 3: the bound is 1 * 100 * eps * 300, plus half an ULP of the result.
    const double eps = 0x1p-24;
    const std::vector<double> magnitudes = {300.0};
    const std::vector<double> expected = {1.0};
    const double allowed = 100 * eps * 300;
    const Tolerance tolerance = Tolerance::bound(1, 100, eps, magnitudes);
    EXPECT_TRUE(compare(std::vector{static_cast<float>(1.0 + 0.99 * allowed)}, expected, tolerance));
    EXPECT_FALSE(compare(std::vector{static_cast<float>(1.0 + 1.01 * allowed)}, expected, tolerance));
    const std::vector<double> wrong_size = {1.0, 1.0, 1.0};
    EXPECT_THROW(
        compare(std::vector{1.0f, 1.0f}, std::vector{1.0, 1.0}, Tolerance::bound(1, 1, 1, wrong_size)),
        InternalError);
}

TEST(Compare, LowPrecisionIsMeasuredByThePlainVersion) {
    const std::vector<double> expected = {1.0, 2.0, 3.0, 4.0};
    const std::vector<double> plain = {1.01, 2.0, 3.0, 3.99};
    const Tolerance twice = Tolerance::low_precision(2, plain);
    EXPECT_TRUE(compare(std::vector{1.015f, 2.0f, 3.0f, 4.0f}, expected, twice));
    EXPECT_FALSE(compare(std::vector{1.021f, 2.0f, 3.0f, 4.0f}, expected, twice)) << "the greatest error";
    EXPECT_FALSE(compare(std::vector{1.019f, 2.019f, 3.019f, 4.019f}, expected, twice)) << "the rms error";
    // Where the plain version is exact, so must be the other.
    EXPECT_FALSE(
        compare(std::vector{1.0f, 2.0f, 3.0f, 4.0000005f}, expected, Tolerance::low_precision(2, expected)));
}

TEST(Compare, TheMessageNamesFirstAndWorst) {
    const std::vector<float> got = {1.0f, 2.5f, 3.0f, 8.0f};
    const Comparison result = compare(got, std::vector<double>{1, 2, 3, 4}, Tolerance::ulp(1));
    EXPECT_EQ(result.failures, 2);
    EXPECT_EQ(result.first, 1);
    EXPECT_EQ(result.worst, 3);
    for (const char* part : {"2 of 4 elements fail", "class ULP: 1 of f32",
                             "first at element 1: expected 2, got 2.5, difference 0.5",
                             "worst at element 3: expected 4, got 8, difference 4, tolerance 4.768e-07"})
        EXPECT_NE(result.message.find(part), std::string::npos) << result.message;
}

TEST(Compare, NothingEqualsNothing) {
    EXPECT_TRUE(compare(std::span<const float>{}, std::span<const double>{}, Tolerance::exact()));
}

}  // namespace
}  // namespace mantissa
