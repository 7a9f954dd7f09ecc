#include "tests/time_limit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace mantissa::testing {

namespace {

/// ctest gives a program 900 s, the slow tests 3,600 s (tests/CMakeLists.txt): the rest is for the others.
constexpr unsigned max_seconds = 600, max_seconds_if_slow = 3000;

std::string last_words, crash_words;  // made beforehand: in a handler no memory may be asked for

void say(const std::string& words) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, words.data(), words.size());
}

void end_program(int) {
    say(last_words);
    ::_exit(1);
}

/// The instruction runs again, and now the signal ends the program.
void name_crash(int signal) {
    say(crash_words);
    std::signal(signal, SIG_DFL);
}

/// A sanitizer says more than this does.
void handle_crashes() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, name_crash);
#endif
}

class TimeLimit : public ::testing::EmptyTestEventListener {
    void OnTestStart(const ::testing::TestInfo& test) override {
        const std::string suite = test.test_suite_name();
        const bool slow = suite.find("Slow") != std::string::npos;
        const std::string name = suite + "." + test.name();
        limit_time(name, slow ? max_seconds_if_slow : max_seconds);
        crash_words =
            fmt::format("[ CRASHES  ] {} ends the program; repeat it with --gtest_filter={}\n", name, name);
    }
    void OnTestEnd(const ::testing::TestInfo& test) override {
        limit_time(test.name(), 0);
        crash_words = fmt::format("[ CRASHES  ] after {}\n", test.name());
    }
};

[[maybe_unused]] const bool listening = [] {
    ::testing::UnitTest::GetInstance()->listeners().Append(new TimeLimit);  // which then own it
    handle_crashes();
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
