// Progress while a command runs, as a table for other programs, and to a shell that completes.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "cli/progress_line.h"
#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::program;
using testing::Ran;
using testing::run;
using testing::run_in_shell;

std::string train_on_text(const std::string& text) {
    std::ofstream(text) << "the cat sat on the mat, and the other cat, too";
    return "train --layers 1 --heads 2 --channels 16 --context 8 --vocabulary 256 --batch 2 --threads 1 "
           "--text " +
           text;
}

TEST(Progress, ATerminalIsShownABarAndTheTimeLeft) {
    if (run_in_shell("command -v script").status != 0) GTEST_SKIP() << "no script (package bsdutils)";
    const TemporaryDirectory directory;
    const std::string train =
        program + " " + train_on_text((directory / "text").string()) + " --steps 30 --print-every 10";
    const Ran shown = run_in_shell("script -qec '" + train + "' /dev/null");
    ASSERT_EQ(shown.status, 0) << shown.output;
    EXPECT_NE(shown.output.find("] 1 of 30 steps, "), std::string::npos) << shown.output;
    EXPECT_NE(shown.output.find(" left"), std::string::npos) << shown.output;
    // The line of the next step takes the bar's place.
    EXPECT_NE(shown.output.find("\r\033[Kstep    10 | loss"), std::string::npos) << shown.output;
    EXPECT_EQ(run_in_shell("script -qec '" + train + " --quiet' /dev/null").output.find(" left"),
              std::string::npos);
    EXPECT_EQ(run_in_shell(train).output.find(" left"), std::string::npos);
}

TEST(Progress, ASampleSendsNoCommandsToATerminal) {
    const TemporaryDirectory directory;
    const Ran ran = run_in_shell(program + " " + train_on_text((directory / "text").string()) +
                                 " --steps 1 --sample-every 1 --prompt \"$(printf 'a\\023b\\033[2J')\"");
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("| sample | a\\x13b\\x1b[2J"), std::string::npos) << ran.output;
    for (const char c : ran.output) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << int{c};
}

TEST(Progress, ABarIsAsLongAsWhatIsDone) {
    EXPECT_EQ(cli::bar_text(0), "[--------------------]");
    EXPECT_EQ(cli::bar_text(0.26), "[#####---------------]");
    EXPECT_EQ(cli::bar_text(1), "[####################]");
}

std::vector<std::string> lines_of(const std::string& path) {
    std::vector<std::string> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
}

TEST(TableOfSteps, HasItsColumnsOnceAndALineAStep) {
    const TemporaryDirectory directory;
    const std::string kept = (directory / "kept").string(), log = (directory / "steps.csv").string();
    const Ran first = run(train_on_text((directory / "text").string()) + " --steps 2 --checkpoint " + kept +
                          " --log " + log);
    ASSERT_EQ(first.status, 0) << first.output;
    const Ran resumed = run("train --resume " + kept + " --steps 3 --log " + log);
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    const std::vector<std::string> lines = lines_of(log);
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_EQ(
        lines[0],
        "step,loss,learning_rate,gradient_norm,applied,ms,tokens_per_second,mfu,loss_scale,validation_loss,"
        "validation_top1,validation_top5");
    for (std::size_t i = 1; i < lines.size(); ++i) {
        EXPECT_EQ(lines[i].substr(0, 2), std::to_string(i - 1) + ",");
        EXPECT_EQ(std::ranges::count(lines[i], ','), std::ranges::count(lines[0], ',')) << lines[i];
    }
}

TEST(Completion, AShellCompletesCommandsAndOptions) {
    const auto completed = [](const std::string& words) {
        const std::string script =
            "source <(" + program + " completion bash); COMP_WORDS=(" + words +
            "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _mantissa; echo \"${COMPREPLY[@]}\"";
        return run_in_shell("bash -c " + testing::quoted(script)).output;
    };
    EXPECT_EQ(completed("mantissa to"), "tokenize\n");
    EXPECT_EQ(completed("mantissa train --validate-e"), "--validate-every\n");
    EXPECT_EQ(completed("mantissa train tex"), "\n");  // files are the shell's
    // A command within another, and its own options.
    EXPECT_EQ(completed("mantissa numerics con"), "converge\n");
    EXPECT_EQ(completed("mantissa numerics converge --toler"), "--tolerance\n");
    EXPECT_EQ(completed("mantissa numerics --toler"), "\n");
    // Values, where an option takes certain words.
    EXPECT_EQ(completed("mantissa train --policy b"), "bf16\n");
    EXPECT_EQ(completed("mantissa explain --emulate t"), "tf32\n");
    EXPECT_EQ(completed("mantissa completion f"), "fish\n");
    EXPECT_EQ(completed("mantissa help pe"), "peaks\n");
    EXPECT_EQ(completed("mantissa train --policy --sequ"), "--sequence\n");
    EXPECT_NE(run("completion fish").output.find(" -l optimizer -x -a 'adamw sgd muon' "), std::string::npos);
    EXPECT_NE(
        run("completion fish")
            .output.find("complete -c mantissa -n '__fish_seen_subcommand_from converge' -l tolerance "),
        std::string::npos);
    EXPECT_NE(run("completion fish")
                  .output.find("complete -c mantissa -n '__fish_seen_subcommand_from train' -l steps "),
              std::string::npos);
    EXPECT_EQ(run("completion ksh").status, 2);
}

// On a CPU without AVX-512, and on one without AVX, as an emulator plays them: what is compiled for a level
// may not run where the level was not asked for, not even to make a table of it.
TEST(OlderCpus, ATrainingStepRunsOnThem) {
    if (run_in_shell("command -v qemu-x86_64").status != 0)
        GTEST_SKIP() << "no qemu-x86_64 (package qemu-user)";
    const TemporaryDirectory directory;
    const std::string train = program + " " + train_on_text((directory / "text").string()) + " --steps 1";
    for (const auto& [cpu, level] : {std::pair{"Haswell", "avx2"}, std::pair{"Nehalem", "generic"}}) {
        const Ran ran = run_in_shell(std::string("qemu-x86_64 -cpu ") + cpu + " " + train);
        EXPECT_EQ(ran.status, 0) << ran.output;
        EXPECT_NE(ran.output.find(std::string(", ") + level + ", 1 thread\n"), std::string::npos)
            << ran.output;
        EXPECT_NE(ran.output.find("step     0 | loss"), std::string::npos) << ran.output;
    }
}

}  // namespace
}  // namespace mantissa
