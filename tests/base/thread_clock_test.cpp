#include "mantissa/base/contention.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace mantissa {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t millisecond = 1'000'000;

void compute_for(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
    }
}

TEST(ThreadClock, OfANewThreadMissesNothingFromBeforeItBegan) {
    compute_for(20ms);
    ThreadClock clock;
    EXPECT_EQ(clock.take_missing(), 0);
    const std::int64_t before = ThreadClock::now();
    clock.begin();
    compute_for(2ms);
    EXPECT_LE(clock.take_missing(), ThreadClock::now() - before);
}

TEST(ThreadClock, CountsNoSleepThatIsAnnounced) {
    ThreadClock clock;
    clock.begin();
    clock.sleeps();
    std::this_thread::sleep_for(60ms);
    clock.wakes();
    EXPECT_LT(clock.take_missing(), 40 * millisecond);
}

TEST(ThreadClock, CountsWhatItDidNotAskFor) {
    ThreadClock clock;
    clock.begin();
    std::this_thread::sleep_for(30ms);
    const std::int64_t missing = clock.take_missing();
    EXPECT_GT(missing, 20 * millisecond);
    EXPECT_LT(clock.take_missing(), missing);  // each stretch counts once
    std::this_thread::sleep_for(30ms);
    EXPECT_LE(clock.take_missing(10 * millisecond), 10 * millisecond);
}

}  // namespace
}  // namespace mantissa
