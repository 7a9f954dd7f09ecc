// The trained model is kept, whatever goes wrong beside it.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "mantissa/base/atomic_file.h"
#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

const std::string train_three_steps = "train --batch 1 --sequence 16 --steps 3 ";
const std::string endless =
    MANTISSA_BINARY_DIR "/mantissa train --batch 1 --sequence 16 --steps 1000000 --checkpoint ";

/// Closes the terminal of a run once it has written to its log, or has ended without.
Ran hang_up_when_logged(const std::string& command, const std::string& log) {
    return testing::run_in_shell("(" + command + " --log " + log + " & run=$!; until [ -s " + log +
                                 " ] || ! kill -0 $run 2> /dev/null; do sleep 0.1; done; " +
                                 "kill -HUP $run 2> /dev/null; wait $run)");
}

TEST(TrainKept, ASaveThatFailsOnTheWayEndsNoTraining) {
    // Room for one checkpoint of 10.7 MB, but not for a second beside it.
    const SmallDisk disk(16 << 20);
    if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
    const std::string place = (disk.path() / "ck").string();
    const Ran ran = run(train_three_steps + "--save-every 1 --checkpoint " + place);
    EXPECT_EQ(ran.status, 1);  // nor can the last step be saved
    EXPECT_NE(ran.output.find("saved " + place + " after step 0"), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("\nstep     2"), std::string::npos) << ran.output;
    EXPECT_NE(last_line(ran.output).find("not enough disk space"), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("warning: after step 1 nothing was saved"), std::string::npos) << ran.output;
}

TEST(TrainKept, ALogThatCannotBeWrittenLosesNoStep) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string();
    const Ran ran = run(train_three_steps + "--log /dev/full --checkpoint " + place);
    EXPECT_EQ(ran.status, 1) << ran.output;
    const std::string why = "/dev/full: cannot be written: No space left on device";
    EXPECT_NE(ran.output.find("mantissa: warning: " + why + "; the run goes on without it\n"),
              std::string::npos)
        << ran.output;
    EXPECT_NE(ran.output.find("saved " + place + " after step 2"), std::string::npos) << ran.output;
    EXPECT_EQ(last_line(ran.output), "mantissa: " + why) << ran.output;
}

TEST(TrainKept, AnOutputThatNobodyReadsAnyMoreLosesNoStep) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string();
    const Ran ran = testing::run_in_shell("(" + endless + place + " | head -4)");
    EXPECT_NE(ran.output.find("standard output: cannot be written: Broken pipe"), std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(place + "/manifest.json")) << ran.output;
    EXPECT_FALSE(std::filesystem::exists(place + ".lock"));
}

TEST(TrainKept, ATerminalThatIsClosedLosesNoStep) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string(), log = (directory / "log.jsonl").string();
    const Ran ran = hang_up_when_logged(endless + place, log);
    EXPECT_EQ(ran.status, 129) << ran.output;
    EXPECT_NE(last_line(ran.output).find("interrupted after step"), std::string::npos) << ran.output;
    EXPECT_TRUE(std::filesystem::exists(place + "/manifest.json")) << ran.output;
}

/// The first Ctrl-C waits for the step, which would take minutes here; what comes at once behind it is the
/// same.
TEST(TrainKept, ASecondInterruptDoesNotWaitForTheStep) {
    const TemporaryDirectory directory;
    const std::string out = (directory / "out").string();
    const Ran ran = testing::run_in_shell(
        "(" MANTISSA_BINARY_DIR "/mantissa train --threads 1 --steps 1 --accumulate 50000 > " + out +
        " 2>&1 & run=$!; until grep -q 'MFU of' " + out +
        " || ! kill -0 $run 2> /dev/null; do sleep 0.1; done; sleep 1; kill -INT $run; kill -INT $run; "
        "sleep 3; kill -0 $run && echo waits; kill -INT $run; wait $run)");
    EXPECT_EQ(ran.status, 130) << ran.output;
    EXPECT_EQ(last_line(ran.output), "waits");
}

TEST(TrainKept, TokensThatAreCutShortLoseNoStep) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string(), shard = (directory / "tokens.bin").string(),
                      log = (directory / "log.jsonl").string();
    const std::vector<std::uint16_t> tokens(100'000, 7);
    std::ofstream(shard, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()), std::streamsize{2} * 100'000);
    const Ran ran = testing::run_in_shell(
        "(" + endless + place + " --tokens " + shard + " --log " + log + " & run=$!; until [ -s " + log +
        " ] || ! kill -0 $run 2> /dev/null; do sleep 0.1; done; truncate -s 3000 " + shard + "; wait $run)");
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_NE(last_line(ran.output).find(shard + ": was cut short while it was read"), std::string::npos)
        << last_line(ran.output);
    EXPECT_EQ(ran.output.find("nothing was saved"), std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(place + "/manifest.json"));
}

/// The number of megabytes that a run of very small steps held at most.
double megabytes_of(int steps) {
    const Ran ran =
        run("train --layers 1 --heads 1 --channels 8 --context 4 --vocabulary 256 --batch 1 --threads 1 "
            "--policy fp32 --quiet --steps " +
            std::to_string(steps));
    const std::string label = "memory at most: ";
    const std::size_t at = ran.output.find(label);
    EXPECT_NE(at, std::string::npos) << ran.output;
    return at == std::string::npos ? 0 : std::stod(ran.output.substr(at + label.size()));
}

TEST(TrainKept, StepsThatNoReportAsksForAreNot) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "under a sanitizer: it holds memory of its own";
#endif
    EXPECT_LE(megabytes_of(8000), megabytes_of(100) + 2) << "half a KB a step would be 4 MB";
}

TEST(TrainKept, ARunThatDiesBeforeItLogsIsNotWaitedFor) {
    const TemporaryDirectory directory;
    const Ran ran = hang_up_when_logged("MANTISSA_ISA=none " + endless + (directory / "ck").string(),
                                        (directory / "log.jsonl").string());
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_NE(last_line(ran.output).find("MANTISSA_ISA"), std::string::npos) << ran.output;
}

TEST(TrainKept, ACommandThatHangsIsEndedAndNamed) {
    const Ran ran = testing::run_in_shell("echo begun; sleep 1000; echo 'never'", 1);
    EXPECT_EQ(ran.status, 124);
    EXPECT_EQ(ran.output,
              "begun\n\nended after 1 s, though it was not done: echo begun; sleep 1000; echo 'never'");
}

TEST(TrainKept, TwoRunsDoNotSaveToOnePlace) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string();
    {
        const LockFile other((directory / "ck.lock"), place);
        const Ran ran = run(train_three_steps + "--checkpoint " + place + "/");
        EXPECT_EQ(ran.status, 1) << ran.output;
        EXPECT_NE(
            last_line(ran.output).find("writes there; wait until it has ended, or choose another place"),
            std::string::npos)
            << ran.output;
        EXPECT_EQ(ran.output.find("\nstep "), std::string::npos) << ran.output;
    }
    EXPECT_EQ(run(train_three_steps + "--checkpoint " + place).status, 0);
    EXPECT_FALSE(std::filesystem::exists(directory / "ck.lock"));
}

}  // namespace
}  // namespace mantissa
