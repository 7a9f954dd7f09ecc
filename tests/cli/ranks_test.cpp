// `train` started by mpirun: the same bits as one process, and an end of all ranks where one goes wrong.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "mantissa/base/file.h"
#include "mantissa/codegen/compiler.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::program;
using testing::quoted;
using testing::Ran;
using testing::run;
using testing::run_in_shell;

struct Mpi {
    std::string title, name, plugin, mpirun, rank;
    friend std::ostream& operator<<(std::ostream& out, const Mpi& mpi) { return out << mpi.name; }
};
const Mpi open_mpi{"Open MPI", "openmpi", "mantissa_openmpi.so",
                   "mpirun.openmpi --allow-run-as-root --oversubscribe -n ", "OMPI_COMM_WORLD_RANK"};
const Mpi mpich{"MPICH", "mpich", "mantissa_mpich.so", "mpirun.mpich -n ", "PMI_RANK"};

/// Why it cannot be tested here; empty if it can.
std::string lacking(const Mpi& mpi) {
    if (!std::filesystem::exists(std::string(MANTISSA_BINARY_DIR "/") + mpi.plugin))
        return "no " + mpi.title + ": built without " + mpi.plugin;
    if (run_in_shell("command -v mpirun." + mpi.name).status != 0)
        return "no " + mpi.title + ": there is no mpirun." + mpi.name;
    return "";
}

/// Runs the program as so many ranks.
Ran run_as(const Mpi& mpi, int ranks, const std::string& arguments) {
    return run_in_shell(mpi.mpirun + std::to_string(ranks) + " " + program + " " + arguments);
}

/// The same, each rank on an emulated GPU of its own.
Ran run_on_gpus(const Mpi& mpi, int ranks, const std::string& arguments) {
    return run_in_shell(testing::emulated_gpu_variables("sm_80") + mpi.mpirun + std::to_string(ranks) + " " +
                        program + " " + arguments + " --device cuda");
}

class Ranks : public ::testing::TestWithParam<Mpi> {
  protected:
    void SetUp() override {
        if (const std::string reason = lacking(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
        testing::write_sentences(directory_ / "my.txt");
    }

    std::string training(const std::string& place) const {
        return "train --batch 1 --sequence 16 --policy fp32 --clip 0.5 --text " +
               (directory_ / "my.txt").string() + " --checkpoint " + (directory_ / place).string() + " ";
    }
    /// The files of a checkpoint.
    std::string saved(const std::string& place) const {
        std::string all;
        for (const char* name : {"state.json", "model.safetensors"})
            all += read_file(directory_ / place / name);
        return all;
    }
    /// A shell's words that run the program with its number of rank in $rank and its process in a file.
    std::string with_rank(const std::string& arguments) const {
        return "sh -c " +
               quoted("rank=$" + GetParam().rank + "; echo $$ > " + (directory_ / "process").string() +
                      "$rank; exec " + program + " " + arguments);
    }
    /// Runs as two ranks, and sends the second a signal once the first has saved.
    Ran run_and_signal(const std::string& arguments, const std::string& place,
                       const std::string& signal) const {
        const std::string state = (directory_ / place / "state.json").string();
        return run_in_shell("{ " + GetParam().mpirun + "2 " + with_rank(arguments) +
                            " & all=$!; until [ -e " + state +
                            " ] || ! kill -0 $all; do sleep 0.1; done; kill -" + signal + " $(cat " +
                            (directory_ / "process1").string() + "); wait $all; }");
    }

    const TemporaryDirectory directory_;
};

TEST_P(Ranks, OnEmulatedGpusHaveTheBitsOfOne) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    const std::string small = "--layers 1 --heads 2 --channels 32 --steps 3 --quiet --accumulate ";
    const Ran two = run_on_gpus(GetParam(), 2, training("two") + small + "1"),
              one = run_on_gpus(GetParam(), 1, training("one") + small + "2");
    ASSERT_EQ(two.status, 0) << two.output;
    ASSERT_EQ(one.status, 0) << one.output;
    EXPECT_NE(two.output.find("2 ranks on 1 host"), std::string::npos) << two.output;
    EXPECT_TRUE(saved("two") == saved("one"));
    // States lie in parts, as on CPUs.
    EXPECT_TRUE(std::filesystem::exists(directory_ / "two" / "optimizer.1.safetensors"));
    const Ran whole = run_on_gpus(GetParam(), 2, training("whole") + small + "1 --states whole");
    ASSERT_EQ(whole.status, 0) << whole.output;
    const auto parameters = [&](const char* place) {
        return read_file(directory_ / place / "model.safetensors");
    };
    EXPECT_TRUE(parameters("whole") == parameters("one"));
    EXPECT_FALSE(std::filesystem::exists(directory_ / "whole" / "optimizer.1.safetensors"));
    const Ran rounded = run_on_gpus(GetParam(), 2, training("rounded") + small + "1 --reduce-dtype bf16");
    ASSERT_EQ(rounded.status, 0) << rounded.output;
    EXPECT_FALSE(parameters("rounded") == parameters("one"));
}

TEST_P(Ranks, TrainToTheCheckpointOfOneProcess) {
    ASSERT_EQ(run(training("one") + "--accumulate 4 --steps 4").status, 0);
    for (const auto& [ranks, accumulate] : {std::pair{4, 1}, {2, 2}}) {
        const std::string place = std::to_string(ranks);
        const Ran ran = run_as(GetParam(), ranks,
                               training(place) + "--steps 4 --accumulate " + std::to_string(accumulate));
        ASSERT_EQ(ran.status, 0) << ran.output;
        EXPECT_TRUE(saved(place) == saved("one")) << ran.output;
        // One of them speaks.
        EXPECT_EQ(ran.output.find("step 3 "), ran.output.rfind("step 3 ")) << ran.output;
        EXPECT_NE(ran.output.find(place + " ranks on 1 host, started by "), std::string::npos) << ran.output;
        EXPECT_NE(ran.output.find("4 x 1 x 16 tokens a step"), std::string::npos) << ran.output;
    }
    // On another number of ranks, with no option repeated.
    const Ran resumed = run_as(GetParam(), 2, "train --steps 6 --resume " + (directory_ / "4").string());
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    ASSERT_EQ(run("train --steps 6 --resume " + (directory_ / "one").string()).status, 0);
    EXPECT_TRUE(saved("4") == saved("one"));
    const Ran uneven = run_as(GetParam(), 3, "train --steps 8 --resume " + (directory_ / "4").string());
    EXPECT_NE(uneven.status, 0);
    EXPECT_NE(uneven.output.find("its steps have 4 micro-batches, which 3 ranks cannot share evenly"),
              std::string::npos)
        << uneven.output;
}

TEST_P(Ranks, TrainOnImagesToTheCheckpointOfOneProcess) {
    const std::string set = (directory_ / "set").string();
    const Ran made = run_in_shell("python3 " MANTISSA_SOURCE_DIR "/bench/generate_images.py " + set +
                                  " --train 60 --test 20");
    ASSERT_EQ(made.status, 0) << made.output;
    const auto training_at = [&](const std::string& place) {
        return "train --images " + set +
               " --model ResNet20 --width 16 --policy bf16 --batch 4 --steps 4 "
               "--validate-every 2 --seed 4 --checkpoint " +
               (directory_ / place).string() + " --accumulate ";
    };
    const Ran one = run(training_at("one") + "4");
    ASSERT_EQ(one.status, 0) << one.output;
    const auto validations_of = [](const Ran& ran) {
        std::string lines;
        for (std::size_t at = 0; (at = ran.output.find("validation loss", at)) != std::string::npos; ++at)
            lines += ran.output.substr(at, ran.output.find('\n', at) - at) + "\n";
        return lines;
    };
    for (const auto& [ranks, accumulate] : {std::pair{4, 1}, {2, 2}}) {
        const std::string place = std::to_string(ranks);
        const Ran ran = run_as(GetParam(), ranks, training_at(place) + std::to_string(accumulate));
        ASSERT_EQ(ran.status, 0) << ran.output;
        EXPECT_TRUE(saved(place) == saved("one")) << ran.output;
        EXPECT_EQ(validations_of(ran), validations_of(one));
    }
}

TEST_P(Ranks, GradientsTravelInBF16WhereThatIsAskedFor) {
    const Ran ran = run_as(GetParam(), 2, training("two") + "--steps 4 --accumulate 2 --reduce-dtype bf16");
    ASSERT_EQ(ran.status, 0) << ran.output;
    ASSERT_EQ(run(training("one") + "--accumulate 4 --steps 4").status, 0);
    EXPECT_NE(saved("two"), saved("one"));
    // The checkpoint remembers it, and a process alone rounds nothing.
    const Ran alone = run("train --steps 6 --resume " + (directory_ / "two").string());
    EXPECT_EQ(alone.status, 2);
    EXPECT_EQ(
        last_line(alone.output),
        "mantissa: --reduce-dtype bf16: gradients travel among ranks, and this process is alone; start it "
        "by mpirun, or give --reduce-dtype fp32");
    const Ran exact = run("train --steps 5 --reduce-dtype fp32 --resume " + (directory_ / "two").string());
    EXPECT_EQ(exact.status, 0) << exact.output;
}

TEST_P(Ranks, WhatDiffersIsNamedOnceAndEndsAll) {
    const Ran ran =
        run_in_shell(GetParam().mpirun + "2 " + with_rank(training("ck") + "--steps 2 --seed $((rank + 7))"));
    EXPECT_NE(ran.status, 0);
    const std::string line = "mantissa: ranks differ in seed: rank 1 on ";
    EXPECT_NE(ran.output.find(line), std::string::npos) << ran.output;
    EXPECT_EQ(ran.output.find(line), ran.output.rfind(line)) << ran.output;
    EXPECT_EQ(ran.output.find("step 0 "), std::string::npos) << ran.output;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "ck")) << ran.output;
}

TEST_P(Ranks, OneThatIsKilledEndsAllAndTheCheckpointIsGood) {
    const Ran ran =
        run_and_signal(training("ck") + "--steps 1000000 --save-every 2 --print-every 1000", "ck", "KILL");
    EXPECT_NE(ran.status, 0);
    EXPECT_NE(ran.status, 124) << ran.output;
    const Ran resumed =
        run("train --steps 1 --threads 1 --resume " + (directory_ / "ck").string());  // it has made more
    EXPECT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_NE(resumed.output.find("resumed from "), std::string::npos) << resumed.output;
}

TEST_P(Ranks, AnInterruptOfOneEndsAllAfterTheSameStepSaved) {
    const Ran ran =
        run_and_signal(training("ck") + "--steps 1000000 --save-every 50 --print-every 100000", "ck", "TERM");
    EXPECT_NE(ran.status, 0);
    EXPECT_NE(ran.status, 124) << ran.output;
    EXPECT_NE(ran.output.find("mantissa: interrupted after step "), std::string::npos) << ran.output;
    EXPECT_EQ(run("train --steps 1 --threads 1 --resume " + (directory_ / "ck").string()).status, 0);
}

TEST_P(Ranks, OneThatHangsIsNamedAfterTheTimeout) {
    const Ran ran = run_and_signal(
        training("ck") + "--steps 1000000 --save-every 2 --print-every 1000 --rank-timeout 1.5", "ck",
        "STOP");
    EXPECT_NE(ran.status, 0);
    EXPECT_NE(ran.status, 124) << ran.output;
    EXPECT_NE(ran.output.find("mantissa: rank 0 on "), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find(": rank 1 on "), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find(": no answer within 1.5 s"), std::string::npos) << ran.output;
}

std::string name_of_mpi(const ::testing::TestParamInfo<Mpi>& mpi) { return mpi.param.name; }
INSTANTIATE_TEST_SUITE_P(Under, Ranks, ::testing::Values(open_mpi), name_of_mpi);
INSTANTIATE_TEST_SUITE_P(SlowUnder, Ranks, ::testing::Values(mpich), name_of_mpi);

TEST(RanksWithout, TheProgramLinksNoMpi) {
    const Ran ran = run_in_shell("ldd " + program);
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("libc.so"), std::string::npos) << ran.output;
    for (const char* mpi : {"libmpi", "libmpich", "libopen-rte", "libopen-pal"})
        EXPECT_EQ(ran.output.find(mpi), std::string::npos) << ran.output;
}

TEST(RanksWithout, WhatIsMissingIsNamedInOneLine) {
    const TemporaryDirectory directory;
    const std::string elsewhere = (directory / "mantissa").string();
    std::filesystem::copy_file(program, elsewhere);
    for (const auto& [variables, said] :
         {std::pair{"OMPI_COMM_WORLD_SIZE=3",
                    "this is one of 3 ranks started by Open MPI's mpirun, but mantissa was built without "
                    "mantissa_openmpi.so: install libopenmpi-dev, then configure and build again"},
          {"PMI_SIZE=2",
           "this is one of 2 ranks started by MPICH's mpirun, but mantissa was built without "
           "mantissa_mpich.so: install libmpich-dev, then configure and build again"},
          {"WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none",
           "this is one of 2 ranks started by torchrun, but ranks are connected by MPI: start them with "
           "mpirun -n N"}}) {
        const Ran ran = run_in_shell(std::string(variables) + " " + elsewhere + " train --steps 1");
        EXPECT_EQ(ran.status, 1) << ran.output;
        EXPECT_EQ(ran.output, std::string("mantissa: ") + said + "\n");
    }
    // Variables of one rank, or of a script that torchrun did not start.
    const Ran alone = run_in_shell("OMPI_COMM_WORLD_SIZE=1 WORLD_SIZE=2 " + elsewhere +
                                   " train --steps 0 --batch 1 --sequence 16");
    EXPECT_EQ(alone.output.find("ranks"), std::string::npos) << alone.output;
}

}  // namespace
}  // namespace mantissa
