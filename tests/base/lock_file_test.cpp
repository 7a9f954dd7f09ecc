// A file that one process at a time holds.
#include "mantissa/base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>

#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

std::string refusal(const std::filesystem::path& file) {
    return testing::error_of([&] { LockFile(file, "the place"); });
}

TEST(LockFiles, AreHeldByOneAndSayByWhom) {
    const TemporaryDirectory directory;
    const auto file = directory / "it.lock";
    std::optional<LockFile> lock(std::in_place, file, "the place");
    EXPECT_EQ(refusal(file), "the place: process " + std::to_string(::getpid()) +
                                 " writes there; wait until it has ended, or choose another place");
    lock.reset();
    EXPECT_FALSE(std::filesystem::exists(file));
    EXPECT_EQ(refusal(file), "no error");
}

TEST(LockFiles, OfAProcessThatWasKilledAreFree) {
    const TemporaryDirectory directory;
    const auto file = directory / "it.lock";
    const pid_t child = ::fork();
    if (child == 0) {
        const LockFile lock(file, "the place");
        ::_exit(0);  // nothing is destroyed
    }
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    EXPECT_TRUE(std::filesystem::exists(file));
    EXPECT_EQ(refusal(file), "no error");
}

TEST(LockFiles, ThatCannotBeCreatedSayWhy) {
    const TemporaryDirectory directory;
    std::ofstream(directory / "file") << "no folder";
    EXPECT_EQ(refusal(directory / "file/it.lock"),
              "the place: cannot create " + (directory / "file/it.lock").string() + ": Not a directory");
}

}  // namespace
}  // namespace mantissa
