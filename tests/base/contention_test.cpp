#include "mantissa/base/contention.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

using namespace std::chrono_literals;

/// Runs loops of a millisecond, in which each of `disturbed` cores is taken for `share` of the time if a
/// thread runs there, for so long; how much of it was on fewer threads than `cores`.
double share_on_fewer(Contention& contention, int cores, int disturbed, double share, int milliseconds) {
    int fewer = 0;
    Contention::Duration taken{};
    for (int loop = 0; loop < milliseconds; ++loop) {
        fewer += contention.threads() < cores;
        // Threads take the free cores first.
        const int threads_there = std::max(0, contention.threads() - (cores - disturbed));
        taken += std::chrono::duration_cast<Contention::Duration>(share * threads_there * 1ms);
        if (contention.is_due(1ms)) {
            contention.judge(taken);
            taken = {};
        }
    }
    return 1.0 * fewer / milliseconds;
}

TEST(Contention, AQuietMachineKeepsAllThreads) {
    for (const int cores : {1, 2, 64}) {
        Contention contention(cores);
        EXPECT_EQ(share_on_fewer(contention, cores, 0, 0, 5000), 0) << cores;
    }
}

TEST(Contention, ABusyCoreIsLeftAndTriedSeldom) {
    Contention contention(2);
    share_on_fewer(contention, 2, 1, 0.6, 10000);
    EXPECT_GT(share_on_fewer(contention, 2, 1, 0.6, 20000), 0.975);
}

TEST(Contention, ACoreThatLosesLessThanAThreadIsWorthIsKept) {
    Contention two(2), many(64);
    EXPECT_EQ(share_on_fewer(two, 2, 1, 0.4, 5000), 0);
    EXPECT_GT(share_on_fewer(many, 64, 1, 0.4, 5000), 0.8);
}

TEST(Contention, SeveralBusyCoresAreLeft) {
    Contention contention(8);
    share_on_fewer(contention, 8, 3, 0.5, 5000);
    EXPECT_LE(contention.threads(), 6);
    EXPECT_GE(contention.threads(), 5);
}

TEST(Contention, AFreeCoreIsTakenAgainWithinSeconds) {
    Contention contention(2);
    share_on_fewer(contention, 2, 1, 0.6, 20000);
    share_on_fewer(contention, 2, 0, 0, 3100);
    EXPECT_EQ(contention.threads(), 2);
}

}  // namespace
}  // namespace mantissa
