// Vector versions of the conversions to few bits: the same bits as one number at a time.
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/base/whole_units.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "mantissa/base/random.h"

namespace mantissa::on_cpu {
namespace {

struct Narrowed {
    std::vector<std::int8_t> s8;
    std::vector<std::uint8_t> s4, b1;
};

Narrowed narrow(const NarrowingKernels& kernels, const std::vector<float>& from, float factor) {
    const auto count = static_cast<std::int64_t>(from.size());
    Narrowed to{.s8 = std::vector<std::int8_t>(from.size(), 99),
                .s4 = std::vector<std::uint8_t>(ceil_div(count, 2), 99),
                .b1 = std::vector<std::uint8_t>(ceil_div(count, 8), 99)};
    kernels.to_s8(from.data(), factor, to.s8.data(), count);
    kernels.to_s4(from.data(), factor, to.s4.data(), count);
    kernels.to_b1(from.data(), to.b1.data(), count);
    return to;
}

void expect_same(const std::vector<float>& from, float factor) {
    const Narrowed expected = narrow(narrowing_kernels(Isa::generic), from, factor);
    for (const Isa isa : {Isa::avx2, Isa::avx512}) {
        if (isa > best_isa()) continue;
        const Narrowed got = narrow(narrowing_kernels(isa), from, factor);
        ASSERT_TRUE(got.s8 == expected.s8) << name_of(isa);
        ASSERT_TRUE(got.s4 == expected.s4) << name_of(isa);
        ASSERT_TRUE(got.b1 == expected.b1) << name_of(isa);
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
