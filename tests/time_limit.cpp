#include "tests/time_limit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace mantissa::testing {

namespace {

/// ctest gives a program 900 s, the slow tests 3,600 s (tests/CMakeLists.txt): the rest is for the others.
constexpr unsigned most_seconds = 600, most_seconds_if_slow = 3000;

std::string last_words;  // made beforehand: in the handler no memory may be asked for

void end_program(int) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, last_words.data(), last_words.size());
    ::_exit(1);
}

class TimeLimit : public ::testing::EmptyTestEventListener {
    void OnTestStart(const ::testing::TestInfo& test) override {
        const std::string suite = test.test_suite_name();
        const bool slow = suite.find("Slow") != std::string::npos;
        limit_time(suite + "." + test.name(), slow ? most_seconds_if_slow : most_seconds);
    }
    void OnTestEnd(const ::testing::TestInfo& test) override { limit_time(test.name(), 0); }
};

[[maybe_unused]] const bool listening = [] {
    ::testing::UnitTest::GetInstance()->listeners().Append(new TimeLimit);  // which then own it
    return true;
}();

}  // namespace

void limit_time(const std::string& test, unsigned seconds) {
    ::alarm(0);
    last_words = fmt::format("[  HANGS   ] {} has run for {} s, which is taken for ever; it was ended\n",
                             test, seconds);
    std::signal(SIGALRM, end_program);
    ::alarm(seconds);
}

}  // namespace mantissa::testing
