// kill -9 while a checkpoint is being saved: at random moments, and before every single system call of a
// save.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "mantissa/base/random.h"
#include "mantissa/train/checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/checkpoint_example.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t channels = 48;  // about 110 KB of parameters and as much of moments

/// Saves steps first, first + 1... until killed; tells each through `pipe` once it is saved.
[[noreturn]] void save_until_killed(const fs::path& path, int first, int pipe) {
    for (int step = first;; ++step) {
        save_checkpoint(path, ExampleCheckpoint(step, channels).to_save());
        if (::write(pipe, &step, sizeof step) != sizeof step) ::_exit(1);
    }
}

struct Killed {
    int saved = 0;   // last step that the child said it had saved
    int loaded = 0;  // step found afterwards
};

/// A child saves steps first, first + 1... and is killed after `delay`; step first - 1 is there already.
Killed kill_after(const fs::path& path, int first, std::chrono::microseconds delay) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(ends[0]);
        save_until_killed(path, first, ends[1]);
    }
    ::close(ends[1]);
    std::this_thread::sleep_for(delay);
    ::kill(child, SIGKILL);
    Killed result{.saved = first - 1};
    for (int step; ::read(ends[0], &step, sizeof step) == sizeof step;) result.saved = step;
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the saving process ended by itself";
    const LoadedCheckpoint loaded = load_checkpoint(path);
    EXPECT_EQ(loaded.warning, "") << "the newest checkpoint was not whole";
    result.loaded = step_of(loaded);
    return result;
}

void kill_saves_at_random_moments(int kills) {
    const TemporaryDirectory directory;
    const RandomStream random{.seed = 4};
    save_checkpoint(directory / "ckpt", ExampleCheckpoint(1, channels).to_save());
    int step = 1, progressed = 0;
    // Follows the time that a save takes here and now: longer after a kill that came too early for one,
    // shorter after one that did not, so that kills fall on all phases of a save and about half of them after
    // it.
    std::chrono::duration<double, std::micro> longest(10'000);
    for (int i = 0; i < kills; ++i) {
        const auto delay = longest * random.uniform(static_cast<std::uint64_t>(i));
        const Killed killed = kill_after(directory / "ckpt", step + 1,
                                         std::chrono::duration_cast<std::chrono::microseconds>(delay));
        ASSERT_TRUE(killed.loaded == killed.saved || killed.loaded == killed.saved + 1)
            << "saved " << killed.saved << ", found " << killed.loaded << ", kill " << i;
        progressed += killed.loaded > step;
        longest *= killed.loaded > step ? 0.9 : 1.1;
        step = killed.loaded;
    }
    // Files that the killed ones left do not pile up: at most the last one's staging directory is still
    // there.
    EXPECT_LE(std::distance(fs::directory_iterator(directory.path()), {}), 3);
    // Both kinds happened often: kills before the new one was in place, and after.
    EXPECT_GT(progressed, kills / 10);
    EXPECT_LT(progressed, kills * 9 / 10);
}

TEST(CheckpointKill, FiftyAtRandomMoments) { kill_saves_at_random_moments(50); }
TEST(CheckpointKillSlow, ThousandAtRandomMoments) { kill_saves_at_random_moments(1000); }

enum class Ending { killed, finished, untraceable };

/// Saves `step` in a child that is killed before its system call number `count` after the start.
Ending save_and_kill_before_call(const fs::path& path, int step, int count) {
    const pid_t child = ::fork();
    if (child == 0) {
        if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(2);
        ::raise(SIGSTOP);
        save_checkpoint(path, ExampleCheckpoint(step, 4).to_save());
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) return Ending::untraceable;
    // Two stops a call: on its way in, and on its way out.
    for (int stop = 0; stop < 2 * count + 1; ++stop) {
        if (::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) return Ending::untraceable;
        ::waitpid(child, &status, 0);
        if (WIFEXITED(status)) return Ending::finished;
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return Ending::killed;
}

TEST(CheckpointKill, BeforeEverySystemCall) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "ckpt";
    for (int step = 1; step <= 2; ++step) save_checkpoint(path, ExampleCheckpoint(step, 4).to_save());
    int newest = 2, replaced_at = -1, calls = 0;
    for (Ending ending = Ending::killed; ending == Ending::killed; ++calls) {
        ending = save_and_kill_before_call(path, newest + 1, calls);
        if (ending == Ending::untraceable) GTEST_SKIP() << "no ptrace";
        const LoadedCheckpoint loaded = load_checkpoint(path);
        ASSERT_EQ(loaded.warning, "") << "call " << calls;
        const int step = step_of(loaded);
        ASSERT_TRUE(step == newest || step == newest + 1) << "call " << calls << ": step " << step;
        ASSERT_EQ(loaded.directory, path);
        // The one before is there as well, if perhaps still under the name it was staged with.
        ASSERT_GE(std::distance(fs::directory_iterator(directory.path()), {}), 2) << "call " << calls;
        if (step == newest + 1 && replaced_at < 0) replaced_at = calls;
        newest = step;
    }
    EXPECT_GT(calls, 50) << "a save takes more system calls than that";
    EXPECT_GT(replaced_at, calls / 2);
    const LoadedCheckpoint previous = load_checkpoint(path.string() + ".previous");
    EXPECT_EQ(step_of(previous), newest - 1);
}

}  // namespace
}  // namespace mantissa
