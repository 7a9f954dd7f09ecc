#include "mantissa/base/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <regex>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace {

std::vector<std::string>* recorded_calls = nullptr;  // while it is not null

int called(const char* name, long result) {
    if (recorded_calls) recorded_calls->emplace_back(name);
    return static_cast<int>(result);
}

}  // namespace

// The program's own take the place of the C library's, and do the same.
extern "C" int fsync(int fd) { return called("fsync", ::syscall(SYS_fsync, fd)); }
extern "C" int rename(const char* from, const char* to) noexcept {
    return called("rename", ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace mantissa {
namespace {

namespace fs = std::filesystem;

using testing::error_of;

using Names = std::vector<std::string>;

TEST(AtomicFile, AppearsOnCommitOnly) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "a.txt";
    std::ofstream(path) << "old";
    {
        AtomicFile file(path);
        file.write("new text");
        EXPECT_EQ(read_file(path), "old");
    }
    EXPECT_EQ(names_in(directory.path()), Names{"a.txt"});
    AtomicFile file(path, 8);
    file.write("???");
    file.write(" text");
    file.overwrite(0, std::as_bytes(std::span("new", 3)));
    EXPECT_EQ(file.written(), 8u);
    file.commit();
    EXPECT_EQ(read_file(path), "new text");
    EXPECT_EQ(names_in(directory.path()), Names{"a.txt"});
}

TEST(AtomicFile, IsOnTheDiskBeforeItTakesItsName) {
    const TemporaryDirectory directory;
    std::vector<std::string> calls;
    AtomicFile file(directory / "a");
    file.write("text");
    recorded_calls = &calls;
    file.commit();
    recorded_calls = nullptr;
    // The file, its new name, and the folder that holds the name.
    EXPECT_EQ(calls, (std::vector<std::string>{"fsync", "rename", "fsync"}));
}

TEST(AtomicFile, HoldsTheWriterToTheAnnouncedSize) {
    const TemporaryDirectory directory;
    AtomicFile file(directory / "a", 10);
    file.write("short");
    EXPECT_THROW(file.commit(), InternalError);
    EXPECT_THROW(file.overwrite(4, std::as_bytes(std::span("xy", 2))), InternalError);
}

TEST(AtomicFile, SaysWhereItCannotWrite) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "absent" / "a";
    EXPECT_EQ(error_of([&] { AtomicFile file(path); }),
              path.string() + ": cannot create: there is no folder " + path.parent_path().string());
    fs::create_directories(directory / "b" / "c");
    AtomicFile file(directory / "b");
    EXPECT_EQ(error_of([&] { file.commit(); }),
              (directory / "b").string() + ": cannot rename to this name: Is a directory");
}

TEST(AtomicFile, MoreThanTheDiskHasIsRefusedAtOnce) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "a";
    const std::regex expected(
        ".*/a: not enough disk space: 4611686018427387904 bytes needed, [0-9]+ free; free "
        "some or choose another place");
    const std::string message = error_of([&] { AtomicFile file(path, std::uint64_t{1} << 62); });
    EXPECT_TRUE(std::regex_match(message, expected)) << message;
}

TEST(AtomicFile, FullDiskKeepsTheOldFileAndNamesTheBytes) {
    constexpr std::size_t disk_size = 256 << 10;
    const SmallDisk disk(disk_size);
    if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
    const fs::path path = disk.path() / "a";
    std::ofstream(path) << "old";
    const std::string block(4096 * 3 + 5, 'x');
    // Size not announced: the disk fills in the middle of a write.
    std::string message = error_of([&] {
        AtomicFile file(path);
        for (std::size_t i = 0; i < disk_size; i += block.size()) file.write(block);
        file.commit();
    });
    EXPECT_TRUE(std::regex_match(message, std::regex(".*/a: cannot write: No space left on device: at least "
                                                     "[1-9][0-9]+ bytes needed, 0 free; .*")))
        << message;
    // Announced: refused before a byte is written.
    message = error_of([&] { AtomicFile file(path, disk_size); });
    EXPECT_NE(message.find("/a: not enough disk space: 262144 bytes needed, 258048 free"), std::string::npos)
        << message;
    EXPECT_EQ(read_file(path), "old");
    EXPECT_EQ(names_in(disk.path()), Names{"a"});
}

std::string mark_of(const fs::path& directory) { return read_file(directory / "mark"); }

void replace(const fs::path& target, const std::string& mark) {
    AtomicDirectory next(target);
    AtomicFile file(next.staging() / "mark");
    file.write(mark);
    file.commit();
    next.commit();
}

TEST(AtomicDirectory, KeepsThePreviousOne) {
    const TemporaryDirectory directory;
    const fs::path target = directory / "ckpt";
    replace(target, "1");
    EXPECT_EQ(names_in(directory.path()), Names{"ckpt"});
    replace(target / "", "2");  // with a trailing slash
    EXPECT_EQ(mark_of(target), "2");
    EXPECT_EQ(mark_of(AtomicDirectory::previous_of(target)), "1");
    replace(target, "3");
    EXPECT_EQ(mark_of(target), "3");
    EXPECT_EQ(mark_of(AtomicDirectory::previous_of(target)), "2");
    EXPECT_EQ(names_in(directory.path()), (Names{"ckpt", "ckpt.previous"}));
}

TEST(AtomicDirectory, WithoutCommitNothingChanges) {
    const TemporaryDirectory directory;
    replace(directory / "ckpt", "1");
    {
        const AtomicDirectory next(directory / "ckpt");
        std::ofstream(next.staging() / "mark") << "2";
    }
    EXPECT_EQ(mark_of(directory / "ckpt"), "1");
    EXPECT_EQ(names_in(directory.path()), Names{"ckpt"});
}

TEST(AtomicDirectory, IsMadeInAFolderThatIsThere) {
    const TemporaryDirectory directory;
    const fs::path target = directory / "typo" / "ckpt";
    const std::string missing = target.string() + ": there is no folder " + target.parent_path().string() +
                                "; make it, or name another place";
    EXPECT_EQ(error_of([&] { AtomicDirectory next(target); }), missing);
    EXPECT_EQ(error_of([&] { make_folder(target / ""); }), missing);
    EXPECT_EQ(names_in(directory.path()), Names{});
    make_folder(target.parent_path() / "");
    make_folder(target.parent_path());  // it is there
    EXPECT_EQ(names_in(directory.path()), Names{"typo"});
}

TEST(AtomicDirectory, RemovesWhatTheKilledLeftAndNothingElse) {
    const TemporaryDirectory directory;
    // Above the largest process number of Linux (2^22), so never alive; 1 always is.
    for (const char* name : {"ckpt.tmp.4194999", "ckpt.tmp.1", "ckpt.tmp.x", "other.tmp.4194999"})
        fs::create_directories(directory.path() / name / "sub");
    replace(directory / "ckpt", "1");
    EXPECT_EQ(names_in(directory.path()), (Names{"ckpt", "ckpt.tmp.1", "ckpt.tmp.x", "other.tmp.4194999"}));
}

}  // namespace
}  // namespace mantissa
