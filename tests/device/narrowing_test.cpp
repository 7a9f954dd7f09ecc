// Vector versions of the conversion to 8 bits: the same bits as one number at a time.
#include "mantissa/device/cpu/modes/narrowing.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::on_cpu {
namespace {

std::vector<std::int8_t> narrow(Isa isa, const std::vector<float>& from, float factor) {
    std::vector<std::int8_t> to(from.size(), 99);
    narrow_to_s8(isa)(from.data(), factor, to.data(), static_cast<std::int64_t>(from.size()));
    return to;
}

void expect_same(const std::vector<float>& from, float factor) {
    std::vector<std::int8_t> expected;
    for (const float x : from) expected.push_back(to_s8(x * factor));
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
        if (isa > best_isa()) continue;
        ASSERT_TRUE(narrow(isa, from, factor) == expected) << name_of(isa);
    }
}

/// Every `step`-th of all numbers of 32 bits.
void visit_all(std::uint64_t step) {
    std::vector<float> numbers;
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += step) {
        numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
        if (numbers.size() < 1 << 16) continue;
        expect_same(numbers, 1.0f);
        numbers.clear();
    }
    expect_same(numbers, 1.0f);
}

TEST(Narrowing, AgreesForNumbersOfEveryExponent) { visit_all(1021); }

TEST(NarrowingSlow, AgreesForEveryThirteenthNumber) { visit_all(13); }

TEST(Narrowing, AgreesAtAndBesideEveryTie) {
    std::vector<float> numbers;
    for (int half = -300; half <= 300; ++half) {
        const float tie = static_cast<float>(half) / 2;
        for (const float x : {std::nextafter(tie, -1e9f), tie, std::nextafter(tie, 1e9f)})
            numbers.push_back(x);
    }
    expect_same(numbers, 1.0f);
}

TEST(Narrowing, AgreesForEveryCountAndAfterScaling) {
    const RandomStream random{.seed = 7};
    for (std::size_t count = 0; count < 50; ++count) {
        std::vector<float> numbers(count);
        for (std::size_t i = 0; i < count; ++i) numbers[i] = random.normal(i) * 1e-3f;
        expect_same(numbers, 127 / 3e-3f);
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
