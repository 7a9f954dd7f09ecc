// The emulated tile instructions by themselves: every form of address, and what the hardware would refuse.
// That whole kernels run on them is what the test `device_on_emulated_tiles` shows.
#include "tests/emulated_tiles/tile_emulator.h"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdint>

#include "mantissa/device/cpu/isa.h"

namespace mantissa::testing {
namespace {

struct alignas(64) Configuration {
    std::uint8_t palette = 1;
    std::uint8_t reserved[15] = {};
    std::uint16_t row_bytes[16] = {64, 64, 12, 64};
    std::uint8_t rows[16] = {16, 16, 5, 16};
};

void configure(const Configuration& configuration) {
    asm volatile("ldtilecfg %0" ::"m"(configuration) : "memory");
}

class TileEmulator : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!on_cpu::has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16: emulated tiles need it";
        if (__builtin_cpu_supports("amx-tile")) GTEST_SKIP() << "AMX is here: no tile faults";
        emulate_tiles();
    }
};

TEST_F(TileEmulator, RowsComeAndGoByEveryFormOfAddress) {
    alignas(64) std::array<std::array<std::uint8_t, 100>, 32> from{};
    for (std::size_t i = 0; i < 3200; ++i) from.data()->data()[i] = static_cast<std::uint8_t>(i * 7);
    const std::int64_t stride = 100;
    configure({});
    const auto check = [&](std::int64_t offset, std::int64_t step) {
        std::array<std::array<std::uint8_t, 40>, 5> to{};
        asm volatile("tilestored %%tmm2, (%0,%1,4)" ::"r"(&to), "r"(std::int64_t{10}) : "memory");
        for (std::size_t row = 0; row < 5; ++row)
            for (std::size_t i = 0; i < 40; ++i) {
                const auto at = static_cast<std::size_t>(offset + static_cast<std::int64_t>(row) * step) + i;
                EXPECT_EQ(to[row][i], i < 12 ? from.data()->data()[at] : 0) << row << " " << i;
            }
    };
    asm volatile("tileloadd (%0,%1,1), %%tmm2" ::"r"(&from), "r"(stride) : "memory");
    check(0, 100);
    asm volatile("tileloadd 24(%0,%1,2), %%tmm2" ::"r"(&from), "r"(stride) : "memory");
    check(24, 200);
    asm volatile("tileloaddt1 1000(%0,%1,1), %%tmm2" ::"r"(&from), "r"(stride) : "memory");
    check(1000, 100);
    asm volatile("movq %0, %%r13\n movq %1, %%r12\n tileloadd (%%r13,%%r12,1), %%tmm2" ::"r"(&from),
                 "r"(stride)
                 : "memory", "r12", "r13");
    check(0, 100);
    asm volatile("tilezero %%tmm2\n tilestored %%tmm2, (%0,%1,1)" ::"r"(&from), "r"(stride) : "memory");
    EXPECT_EQ(from[4][11], 0);
    EXPECT_EQ(from[4][12], static_cast<std::uint8_t>(412 * 7));
    EXPECT_EQ(from[5][0], static_cast<std::uint8_t>(500 * 7));
    asm volatile("tilerelease");
}

using TileEmulatorDeathTest = TileEmulator;

TEST_F(TileEmulatorDeathTest, RefusesWhatTheHardwareRefuses) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    Configuration strange;
    strange.palette = 2;
    EXPECT_DEATH(configure(strange), "ldtilecfg of a palette that is not 1");
    strange.palette = 1;
    strange.reserved[3] = 1;
    EXPECT_DEATH(configure(strange), "a byte set that must be 0");
    strange.reserved[3] = 0;
    strange.rows[1] = 17;
    EXPECT_DEATH(configure(strange), "more than 16 rows");
    const auto zero_unshaped = [] { asm volatile("tilezero %tmm7"); };
    // tdpbf16ps %tmm1, %tmm0, %tmm0, which the assembler refuses too
    const auto multiply_in_place = [] { asm volatile(".byte 0xc4, 0xe2, 0x72, 0x5c, 0xc0"); };
    const auto multiply_unlike = [] { asm volatile("tdpbf16ps %tmm2, %tmm0, %tmm1"); };
    EXPECT_DEATH(zero_unshaped(), "a tile is used that is not configured");
    EXPECT_DEATH((configure({}), zero_unshaped()), "a tile is used that is not configured");
    EXPECT_DEATH((configure({}), multiply_in_place()), "a product names a tile twice");
    EXPECT_DEATH((configure({}), multiply_unlike()), "shapes do not fit");
    EXPECT_EXIT(asm volatile("ud2"), ::testing::KilledBySignal(SIGILL), "");
}

}  // namespace
}  // namespace mantissa::testing
