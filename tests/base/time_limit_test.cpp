#include "tests/time_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace mantissa {
namespace {

TEST(TimeLimitDeathTest, ATestThatHangsIsNamedAndEnded) {
    EXPECT_EXIT(
        {
            testing::limit_time("Suite.Waits", 1);
            for (;;) ::pause();
        },
        ::testing::ExitedWithCode(1), "Suite.Waits has run for 1 s, which is taken for ever; it was ended");
}

TEST(TimeLimitDeathTest, ALimitThatIsTakenBackEndsNothing) {
    EXPECT_EXIT(
        {
            testing::limit_time("Suite.Ends", 1);
            testing::limit_time("Suite.Ends", 0);
            ::sleep(2);
            ::_exit(0);
        },
        ::testing::ExitedWithCode(0), "");
}

TEST(TimeLimitDeathTest, ATestThatCrashesIsNamed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "under a sanitizer: it handles the fault";
#endif
    EXPECT_EXIT(
        *reinterpret_cast<volatile int*>(8) = 0, ::testing::KilledBySignal(SIGSEGV),
        "TimeLimitDeathTest.ATestThatCrashesIsNamed ends the program; repeat it with --gtest_filter=");
}

TEST(TimeLimitDeathTest, EveryTestHasOne) {
    const unsigned left = ::alarm(0);
    EXPECT_GT(left, 0u);
    ::alarm(left);
}

}  // namespace
}  // namespace mantissa
