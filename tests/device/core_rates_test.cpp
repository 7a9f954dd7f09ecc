// The choice of what multiplies BF16: by rates, on every kind of machine, on a core that others disturb too.
#include "mantissa/device/cpu/core_rates.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/lowest_level.h"
#include "tests/support/machine_kinds.h"

namespace mantissa::on_cpu {
namespace {

TEST(CoreRates, DecideForEveryKindOfMachine) {
    const std::vector<Isa> fastest = {Isa::generic,     Isa::avx2,   Isa::avx512,
                                      Isa::avx512_bf16, Isa::avx512, Isa::amx};
    const auto kinds = testing::machine_kinds();
    ASSERT_EQ(kinds.size(), fastest.size());
    for (std::size_t i = 0; i < kinds.size(); ++i)
        EXPECT_EQ(fastest_isa(kinds[i].best, kinds[i].rates), fastest[i]) << kinds[i].name;
}

TEST(CoreRates, NeitherABitNorALevelDecides) {
    const CoreRates slow_tiles{.f32_fma = 100, .bf16_dot = 200, .bf16_tiles = 150};
    EXPECT_EQ(fastest_isa(Isa::amx, slow_tiles), Isa::avx512_bf16);
    EXPECT_EQ(fastest_isa(Isa::avx512_bf16, slow_tiles), Isa::avx512_bf16);
    // Swapped rates decide the other way.
    EXPECT_EQ(fastest_isa(Isa::avx512_bf16, {.f32_fma = 200, .bf16_dot = 100}), Isa::avx512);
    // As fast as widened operands, which keep subnormals, is not faster.
    EXPECT_EQ(fastest_isa(Isa::avx512_bf16, {.f32_fma = 100, .bf16_dot = 100}), Isa::avx512);
}

/// Rates of turns in which another process takes half of a core from one unit, and then from the other.
CoreRates in_turns(const CoreRates& core, int busy_turns, int& turn) {
    CoreRates seen = core;
    (turn % 2 == 0 ? seen.f32_fma : seen.bf16_dot) *= turn % busy_turns == 0 ? 1 : 0.5;
    ++turn;
    return seen;
}

TEST(CoreRates, ABusyProcessChangesNoChoice) {
    for (const double ratio : {0.5, 1.0, 2.0}) {
        const CoreRates core{.f32_fma = 100, .bf16_dot = 100 * ratio};
        int turn = 0;
        const CoreRates seen = rates_by_turns([&] { return in_turns(core, 19, turn); });
        EXPECT_EQ(seen.f32_fma, 100);
        EXPECT_EQ(seen.bf16_dot, 100 * ratio);
    }
}

TEST(CoreRates, AreMeasuredAgainNearTheThreshold) {
    // Dot products at 0.7 of their rate for the first 1,000 turns: 1.4 times FP32's says that they were.
    int turns = 0;
    const CoreRates seen = rates_by_turns([&] {
        ++turns;
        return CoreRates{.f32_fma = 100, .bf16_dot = turns <= 1000 ? 140.0 : 200.0};
    });
    EXPECT_EQ(seen.bf16_dot, 200);
    EXPECT_EQ(turns, 1001);
    // Rates that stay there end it.
    turns = 0;
    rates_by_turns([&] {
        ++turns;
        return CoreRates{.f32_fma = 100, .bf16_dot = 140};
    });
    EXPECT_EQ(turns, 4000);
    turns = 0;
    rates_by_turns([&] {
        ++turns;
        return CoreRates{.f32_fma = 100, .bf16_dot = 50, .bf16_tiles = 1600};
    });
    EXPECT_EQ(turns, 40);
}

TEST(CoreRates, OfThisCpuAreOfAKnownRatio) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    if (testing::lowest_level() == Isa::amx) GTEST_SKIP() << "no AMX: lent tiles have made-up rates";
    const CoreRates rates = core_rates();
    EXPECT_GT(rates.f32_fma, 1e9);
    const double ratio = rates.bf16_dot / rates.f32_fma;
    EXPECT_GT(ratio, 0.4);
    EXPECT_LT(ratio, 2.4);
    // The same at every call, so that all kernels of a process are by one unit.
    EXPECT_EQ(core_rates().f32_fma, rates.f32_fma);
}

TEST(CoreRates, ReasonsNameUnitAndRatio) {
    std::vector<std::string> reasons;
    for (const testing::MachineKind& kind : testing::machine_kinds())
        reasons.push_back(reason_of_unit(fastest_isa(kind.best, kind.rates), kind.rates));
    EXPECT_EQ(reasons, (std::vector<std::string>{
                           "BF16 is widened to FP32: the level generic has no unit that multiplies it",
                           "BF16 is widened to FP32: the level avx2 has no unit that multiplies it",
                           "BF16 is widened to FP32: the level avx512-widened has no unit that multiplies it",
                           "BF16 is multiplied by vdpbf16ps, 2.0 times FP32's rate here",
                           "BF16 is widened to FP32: vdpbf16ps has 0.5 times FP32's rate here",
                           "BF16 is multiplied by tiles, 17 times FP32's rate here"}));
}

}  // namespace
}  // namespace mantissa::on_cpu
