// The measured peaks: plausible, ordered by width, and refused where the unit is missing.
#include "mantissa/device/cpu/peaks.h"

#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"

namespace mantissa::cpu {
namespace {

TEST(Peaks, OfMultiplyAdds) {
    ThreadPool pool(1);
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
        if (isa > best_isa()) continue;
        // Between a tenth of one unit at 1 GHz (sanitizers, emulators) and four units at 7 GHz.
        const double lanes = isa == Isa::generic ? 4 : isa == Isa::avx2 ? 8 : 16;
        const double peak = measured_fma_peak(pool, isa, 0.005);
        EXPECT_GT(peak, 0.02e9 * lanes) << name_of(isa);
        EXPECT_LT(peak, 56e9 * lanes) << name_of(isa);
    }
}

TEST(Peaks, OfTilesNeedsTiles) {
    if (best_isa() == Isa::amx) GTEST_SKIP() << "this CPU has AMX";
    ThreadPool pool(1);
    try {
        measured_tile_peak(pool);
        FAIL() << "no error";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "the peak of BF16 tiles needs a CPU with AMX; this one has none");
    }
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

}  // namespace
}  // namespace mantissa::cpu
