// The measured peaks: plausible, ordered by width, and refused where the unit is missing.
#include "mantissa/device/cpu/peaks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "mantissa/base/buffer.h"
#include "mantissa/device/cpu/core_rates.h"
#include "tests/support/error_of.h"

namespace mantissa::on_cpu {
namespace {

/// FLOP of a lane in a cycle, at the clock beside them. A neighbour may slow an attempt, none can speed one
/// up: the best of a few that ends above `enough`.
double flop_per_lane_and_cycle(ThreadPool& pool, Isa isa, double enough) {
    const double lanes = isa == Isa::generic ? 4 : isa == Isa::avx2 ? 8 : 16;
    double best = 0;
    for (int attempt = 0; attempt < 20 && best < enough; ++attempt) {
        const double clock = measured_clock(), peak = measured_fma_peak(pool, isa, 0.005);
        best = std::max(best, peak / lanes / std::max(clock, measured_clock()));
    }
    return best;
}

TEST(Peaks, OfMultiplyAddsAreWhatOneOrTwoUnitsDo) {
    // At least one unit, 2 FLOP a cycle (1 where it multiplies and adds apart), of which the core's other
    // hardware thread takes half, and AVX-512 lowers the clock by up to two fifths; so half a FLOP is left.
    double least = 0.5;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    least = 0.05;  // they leave registers to memory, and look at it
#endif
    // At most two units of multiply-adds, or two that multiply and two that add; a tenth for a clock that
    // rises between the measurements.
    const double most = 1.1 * 4;
    ThreadPool pool(1);
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
        if (isa > best_isa()) continue;
        const double flop = flop_per_lane_and_cycle(pool, isa, least);
        EXPECT_GT(flop, least) << name_of(isa);
        EXPECT_LT(flop, most) << name_of(isa);
    }
}

std::string refusal_of(Bf16Unit unit) {
    ThreadPool pool(1);
    return testing::error_of([&] { measured_bf16_peak(pool, unit, 0.005); });
}

TEST(Peaks, OfBf16NeedAUnit) {
    EXPECT_EQ(refusal_of(Bf16Unit::none),
              "the peak of BF16 products needs a CPU with a unit for them; this one lacks it");
    EXPECT_EQ(refusal_of(Bf16Unit::amx),
              best_isa() == Isa::amx ? "no error"
                                     : "the peak of BF16 products needs a CPU with amx; this one lacks it");
    EXPECT_EQ(refusal_of(Bf16Unit::avx512_bf16),
              has_bf16_dot() ? "no error"
                             : "the peak of BF16 products needs a CPU with avx512_bf16; this one lacks it");
}

TEST(Peaks, OfBf16ExceedThatOfFp32WhereContractionsUseTheUnit) {
    const Bf16Unit unit = bf16_unit(fastest_isa(best_isa(), core_rates()));
    if (unit == Bf16Unit::none) GTEST_SKIP() << "no AVX512_BF16: this CPU widens BF16";
    ThreadPool pool(1);
    // The unit does at least twice as many products in a cycle; half of that margin is for noise.
    EXPECT_GT(measured_bf16_peak(pool, unit, 0.02), 1.5 * measured_fma_peak(pool, best_isa(), 0.02));
}

TEST(Peaks, OfCopyingCopiesEverything) {
    ThreadPool pool(2);
    Buffer memory(std::size_t{4} << 20);
    for (std::size_t i = 0; i < memory.size() / 2; ++i) memory.data()[i] = static_cast<std::byte>(i * 7);
    const CopyBandwidth bandwidth = measured_copy_bandwidth(pool, memory.as<std::byte>(), 0.002);
    EXPECT_GT(bandwidth.plain, 1e7);
    EXPECT_GT(bandwidth.streaming, 1e7);
    EXPECT_GE(bandwidth.best(), bandwidth.plain);
    EXPECT_EQ(std::memcmp(memory.data(), memory.data() + memory.size() / 2, memory.size() / 2), 0);
}

TEST(Peaks, OfCopyingReadMemoryOfItsOwn) {
    // Pages never written share one page of zeros, which would be read from L1.
    Buffer scratch(std::size_t{8} << 20);
    ThreadPool pool(1);
    measured_copy_bandwidth(pool, scratch.as<std::byte>(), 0.001);
    const std::span<float> memory = scratch.as<float>();
    for (std::size_t at = 0; at < memory.size(); at += 1024) ASSERT_EQ(memory[at], 1.0f) << at;
}

}  // namespace
}  // namespace mantissa::on_cpu
