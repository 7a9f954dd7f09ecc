// A mapped file that is cut short while the program reads it.
#include "cli/print_error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "mantissa/base/file.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

TEST(BusError, NamesTheFileThatWasCutShort) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "under a sanitizer: it has a handler of its own";
#endif
    const TemporaryDirectory directory;
    const std::filesystem::path cut = directory / "cut.txt", whole = directory / "whole.txt";
    for (const auto& path : {cut, whole}) std::ofstream(path) << std::string(10'000, 'x');
    const auto read_what_is_gone = [&] {
        cli::name_files_cut_short();
        MappedFile moved(cut);
        const MappedFile other(whole), file(std::move(moved));
        std::filesystem::resize_file(cut, 0);
        const volatile char last = file.text().back();
        (void)last;
    };
    EXPECT_EXIT(read_what_is_gone(), ::testing::ExitedWithCode(1),
                "mantissa: " + cut.string() + ": was cut short while it was read");
}

}  // namespace
}  // namespace mantissa
