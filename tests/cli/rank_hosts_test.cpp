// `train` on several hosts: network namespaces with names, addresses and no memory that they share, over Open
// MPI's TCP.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::program;
using testing::Ran;
using testing::run;
using testing::run_in_shell;

class RankHosts : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!std::filesystem::exists(MANTISSA_BINARY_DIR "/mantissa_openmpi.so"))
            GTEST_SKIP() << "no Open MPI: built without mantissa_openmpi.so";
        if (run_in_shell("command -v mpirun.openmpi").status != 0)
            GTEST_SKIP() << "no Open MPI: there is no mpirun.openmpi";
        if (const Ran up = run_in_shell(hosts_ + "up 4"); up.status != 0) {
            down();
            GTEST_SKIP() << "no network namespaces: " << up.output;
        }
        testing::write_sentences(directory_ / "my.txt");
    }
    void TearDown() override { down(); }

    std::string training(const std::string& place) const {
        return "train --batch 1 --sequence 16 --threads 1 --policy bf16 --text " +
               (directory_ / "my.txt").string() + " --checkpoint " + (directory_ / place).string() + " ";
    }
    std::string on_four(const std::string& arguments) const {
        return hosts_ + "run mpirun.openmpi $(" + hosts_ + "options 4) -n 4 " + program + " " + arguments;
    }
    void down() const { run_in_shell(hosts_ + "down"); }

    const std::string hosts_ = "RANK_HOSTS=mantissa-" + std::to_string(::getpid()) +
                               " sh " MANTISSA_SOURCE_DIR "/tests/cli/rank_hosts.sh ";
    const TemporaryDirectory directory_;
};

TEST_F(RankHosts, FourTrainToTheBitsOfOneProcess) {
    const Ran ran = run_in_shell("timeout 120 env " + on_four(training("four") + "--steps 4"));
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("4 ranks on 4 hosts, started by Open MPI's mpirun"), std::string::npos)
        << ran.output;
    ASSERT_EQ(run(training("one") + "--accumulate 4 --steps 4").status, 0);
    for (const char* name : {"state.json", "model.safetensors"})
        EXPECT_TRUE(read_file(directory_ / "four" / name) == read_file(directory_ / "one" / name)) << name;
}

TEST_F(RankHosts, OneThatIsCutOffEndsAllRanksAndTheCheckpointIsGood) {
    const std::string state = (directory_ / "ck" / "state.json").string();
    // Open MPI's mpirun itself goes on to wait for the host, until it is ended here; and its daemon there
    // keeps what it writes to open.
    const std::string output = (directory_ / "output").string();
    const Ran ran = run_in_shell(
        "{ timeout -k 2 25 env " +
        on_four(training("ck") + "--steps 1000000 --save-every 2 --print-every 100000 --rank-timeout 2") +
        " > " + output + " 2>&1 & all=$!; until [ -e " + state +
        " ] || ! kill -0 $all; do sleep 0.1; done; " + hosts_ +
        "cut 3; ended=1; while kill -0 $all && [ $ended != 0 ]; do sleep 0.2; ended=0; for host in 1 2 3 4; "
        "do " +
        hosts_ + "runs $host mantissa && ended=1; done; done; kill $all; wait $all; exit $ended; } 2>&1");
    EXPECT_EQ(ran.status, 0) << "a rank goes on: " << ran.output;
    const std::string said = read_file(output);
    EXPECT_NE(said.find("-3: no answer within 2 s"), std::string::npos) << said;
    const Ran resumed = run("train --steps 1 --threads 1 --resume " + (directory_ / "ck").string());
    EXPECT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_EQ(resumed.output.find("went back to"), std::string::npos) << resumed.output;
}

}  // namespace
}  // namespace mantissa
