// Choosing the instruction set: names, refusals, and that detection agrees with the compiler's own.
#include "mantissa/device/cpu/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/core_rates.h"
#include "tests/support/error_of.h"

namespace mantissa::on_cpu {
namespace {

TEST(Isa, NamesRoundTrip) {
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx})
        EXPECT_EQ(isa_from_name(name_of(isa), Isa::amx, {}), isa);
}

TEST(Isa, RefusesUnknownNameAndMissingLevel) {
    EXPECT_EQ(testing::error_of([] { isa_from_name("sse9", Isa::avx2, {}); }),
              "MANTISSA_ISA is 'sse9'; expected generic, avx2, avx512, avx512-widened, avx512-bf16 or amx "
              "(this CPU offers 'avx2' at most)");
    EXPECT_EQ(testing::error_of([] { isa_from_name("amx", Isa::avx512_bf16, {}); }),
              "MANTISSA_ISA asks for 'amx', but this CPU offers 'avx512-bf16' at most; choose a lower level "
              "or unset it");
    EXPECT_EQ(testing::error_of([] { isa_from_name("avx512", Isa::avx2, {}); }),
              "MANTISSA_ISA asks for 'avx512', but this CPU offers 'avx2' at most; choose a lower level or "
              "unset it");
    EXPECT_EQ(testing::error_of([] { isa_from_name("avx512-bf16", Isa::avx512, {}); }),
              "MANTISSA_ISA asks for 'avx512-bf16', but this CPU offers 'avx512-widened' at most; choose a "
              "lower level or unset it");
}

TEST(Isa, Avx512IsTheOneOfTwoWithTheHigherRate) {
    const CoreRates twice{.f32_fma = 100, .bf16_dot = 200}, half{.f32_fma = 100, .bf16_dot = 50};
    EXPECT_EQ(isa_from_name("avx512", Isa::avx512_bf16, twice), Isa::avx512_bf16);
    EXPECT_EQ(isa_from_name("avx512", Isa::avx512_bf16, half), Isa::avx512);
    EXPECT_EQ(isa_from_name("avx512", Isa::amx, half), Isa::avx512);
    EXPECT_EQ(isa_from_name("avx512", Isa::avx512, {}), Isa::avx512);
    EXPECT_EQ(isa_from_name("avx512-bf16", Isa::avx512_bf16, half), Isa::avx512_bf16);
    EXPECT_EQ(isa_from_name("avx512-widened", Isa::avx512_bf16, twice), Isa::avx512);
}

TEST(Isa, AgreesWithTheCompilersDetection) {
    EXPECT_EQ(best_isa() >= Isa::avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                           __builtin_cpu_supports("f16c"));
    EXPECT_EQ(best_isa() >= Isa::avx512,
              __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
    EXPECT_EQ(has_bf16_dot(), best_isa() >= Isa::avx512 && __builtin_cpu_supports("avx512bf16"));
    EXPECT_EQ(has_avx512_vnni(), best_isa() >= Isa::avx512 && __builtin_cpu_supports("avx512vnni"));
    EXPECT_EQ(has_avx512_vpopcntdq(), best_isa() >= Isa::avx512 && __builtin_cpu_supports("avx512vpopcntdq"));
}

TEST(Isa, EnvironmentForcesALevel) {
    const char* const before = std::getenv("MANTISSA_ISA");
    const std::string saved = before ? before : "";
    ::setenv("MANTISSA_ISA", "generic", 1);
    EXPECT_EQ(chosen_isa(), Isa::generic);
    ::setenv("MANTISSA_ISA", "mmx", 1);
    EXPECT_THROW(chosen_isa(), UserError);
    ::setenv("MANTISSA_ISA", "", 1);
    EXPECT_EQ(chosen_isa(), fastest_isa(best_isa(), core_rates()));
    if (before)
        ::setenv("MANTISSA_ISA", saved.c_str(), 1);
    else
        ::unsetenv("MANTISSA_ISA");
}

TEST(Isa, ATestMaySetTheHighestLevel) {
    const Isa before = best_isa();
    set_best_isa(Isa::avx2);
    EXPECT_EQ(best_isa(), Isa::avx2);
    EXPECT_FALSE(has_bf16_dot());
    set_best_isa(before);
}

TEST(Isa, CachesGrowOutwards) {
    const CacheSizes sizes = cache_sizes();
    EXPECT_GE(sizes.l1d, 16 * 1024);
    EXPECT_GT(sizes.l2, sizes.l1d);
    if (sizes.l3 != 0) {
        EXPECT_GT(sizes.l3, sizes.l2 / 2);
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
