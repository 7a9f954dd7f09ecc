// The command that repeats a test by itself, printed where it fails.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace mantissa::testing {
namespace {

class RepeatCommand : public ::testing::EmptyTestEventListener {
    void OnTestEnd(const ::testing::TestInfo& test) override {
        if (!test.result()->Failed()) return;
        const auto program = std::filesystem::read_symlink("/proc/self/exe");
        const auto shown = program.lexically_proximate(MANTISSA_SOURCE_DIR);
        std::string settings;
        for (char** each = environ; *each; ++each)
            if (std::string_view(*each).starts_with("MANTISSA_")) settings += fmt::format("{} ", *each);
        fmt::print("to repeat it: {}{} --gtest_filter={}.{}\n", settings, shown.string(),
                   test.test_suite_name(), test.name());
        std::fflush(stdout);
    }
};

[[maybe_unused]] const bool listening = [] {
    ::testing::UnitTest::GetInstance()->listeners().Append(new RepeatCommand);  // which then own it
    return true;
}();

}  // namespace
}  // namespace mantissa::testing
