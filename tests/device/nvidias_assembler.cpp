#include "tests/device/nvidias_assembler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/support/temporary_directory.h"

namespace mantissa::testing {

namespace {

constexpr const char* with_path = "PATH=$PATH:/usr/local/cuda/bin ";

}  // namespace

bool has_assembler(const std::string& architecture) {
    const std::string command = architecture.empty()
                                    ? "sh -c 'command -v ptxas' >/dev/null"
                                    : fmt::format("ptxas --help | grep -qw {}", architecture);
    return std::system((with_path + command).c_str()) == 0;
}

std::string assembled(const codegen::GridKernel& kernel, const std::string& architecture) {
    const TemporaryDirectory directory;
    const std::string path = (directory.path() / "kernel.ptx").string(),
                      said = (directory.path() / "said").string();
    // Code for one architecture alone is made for it; the others take what is made for the oldest.
    const std::string target = architecture == "sm_90a" ? architecture : "sm_80";
    std::ofstream(path) << codegen::compile(kernel, {.architecture = target}).assembly;
    const std::string command =
        fmt::format("{} ptxas -v -arch={} -o /dev/null '{}' 2>'{}'", with_path, architecture, path, said);
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::ifstream file(said);
    const std::string words{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(words.find(" 0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
        << codegen::text_of(kernel) << "\n"
        << words;
    const std::size_t used = words.find("Used ");
    return used == std::string::npos ? words : words.substr(used, words.find("smem", used) + 4 - used);
}

}  // namespace mantissa::testing
