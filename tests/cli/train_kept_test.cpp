// What was trained is kept, whatever goes wrong beside it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "mantissa/base/lock_file.h"
#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

constexpr char train[] = "train --batch 1 --sequence 16 --steps 3 ";
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
    if (!disk.mounted()) GTEST_SKIP() << "no small file system: only root may mount";
    const std::string place = (disk.path() / "ck").string();
    const Ran ran = run(std::string(train) + "--save-every 1 --checkpoint " + place);
    EXPECT_EQ(ran.status, 1);  // nor can the last step be saved
    EXPECT_NE(ran.output.find("saved " + place + " after step 0"), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("\nstep     2"), std::string::npos) << ran.output;
    EXPECT_NE(last_line(ran.output).find("not enough disk space"), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("warning: after step 1 nothing was saved"), std::string::npos) << ran.output;
}

TEST(TrainKept, ALogThatCannotBeWrittenLosesNoStep) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string();
    const Ran ran = run(std::string(train) + "--log /dev/full --checkpoint " + place);
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_NE(ran.output.find("saved " + place + " after step 0"), std::string::npos) << ran.output;
    EXPECT_NE(last_line(ran.output).find("/dev/full: cannot be written"), std::string::npos) << ran.output;
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
        const Ran ran = run(std::string(train) + "--checkpoint " + place + "/");
        EXPECT_EQ(ran.status, 1) << ran.output;
        EXPECT_NE(
            last_line(ran.output).find("writes there; wait until it has ended, or choose another place"),
            std::string::npos)
            << ran.output;
        EXPECT_EQ(ran.output.find("\nstep "), std::string::npos) << ran.output;
    }
    EXPECT_EQ(run(std::string(train) + "--checkpoint " + place).status, 0);
    EXPECT_FALSE(std::filesystem::exists(directory / "ck.lock"));
}

}  // namespace
}  // namespace mantissa
