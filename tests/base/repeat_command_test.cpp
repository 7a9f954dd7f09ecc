// The command that repeats a failed test.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace mantissa {
namespace {

TEST(RepeatCommand, DISABLED_Fails) { FAIL() << "as it should"; }

TEST(RepeatCommand, IsPrintedWhereATestFails) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string command =
        "env -i MANTISSA_PLANTED=7 " + program +
        " --gtest_also_run_disabled_tests --gtest_filter=RepeatCommand.DISABLED_Fails";
    std::FILE* const pipe = ::popen(command.c_str(), "r");
    std::string output;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
    EXPECT_NE(::pclose(pipe), 0);
    EXPECT_NE(output.find("as it should"), std::string::npos) << output;
    const std::size_t at = output.find("to repeat it: ");
    ASSERT_NE(at, std::string::npos) << output;
    EXPECT_EQ(output.substr(at, output.find('\n', at) - at),
              "to repeat it: MANTISSA_PLANTED=7 " +
                  std::filesystem::path(program).lexically_proximate(MANTISSA_SOURCE_DIR).string() +
                  " --gtest_filter=RepeatCommand.DISABLED_Fails");
}

}  // namespace
}  // namespace mantissa
