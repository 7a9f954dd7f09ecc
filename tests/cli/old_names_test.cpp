// Options, and words among their values, under the names that they had in earlier versions: still taken, not
// shown.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::quoted;
using testing::Ran;
using testing::run;

const std::string explain_small = "explain --layers 1 --channels 16 --heads 2 --context 8 --batch 1 ";

TEST(OldNames, AreTakenOnTheCommandLine) {
    const Ran today = run(explain_small + "--emulate tf32");
    EXPECT_EQ(today.status, 0) << today.output;
    EXPECT_NE(today.output.find("policy emulated tf32"), std::string::npos) << today.output;
    EXPECT_EQ(run(explain_small + "--simulate tf32").output, today.output);
    EXPECT_EQ(run(explain_small + "--simulate=tf32").output, today.output);
    const Ran passes = run(explain_small + "--passes simplify,fuse_linear_cross_entropy");
    EXPECT_EQ(passes.status, 0) << passes.output;
    EXPECT_EQ(run(explain_small + "--passes simplify,chunk_loss").output, passes.output);
}

TEST(OldNames, AreTakenInOptionFiles) {
    const TemporaryDirectory folder;
    const auto path = folder / "options.toml";
    std::ofstream(path) << "simulate = \"tf32\"\n";
    EXPECT_EQ(run(explain_small + "--config " + quoted(path.string())).output,
              run(explain_small + "--emulate tf32").output);
}

TEST(OldNames, AreTakenForImages) {
    const TemporaryDirectory folder;
    const std::string train = "train --images " + quoted(MANTISSA_SOURCE_DIR "/examples/shapes") +
                              " --model ResNet20 --width 4 --batch 2 --steps 2 --quiet --checkpoint ";
    const std::string place = quoted((folder / "run").string());
    const Ran before =
        run(train + place + " --augment crop,mirror --deviation 0.2 0.2 0.2 --bad-pictures skip");
    EXPECT_EQ(before.status, 0) << before.output;
    EXPECT_NE(before.output.find("flipped at random"), std::string::npos) << before.output;
    EXPECT_NE(before.output.find("standard deviations 0.2 0.2 0.2"), std::string::npos) << before.output;
}

TEST(OldNames, StandInNoHelp) {
    for (const char* command : {"train", "numerics converge", "explain", "predict"}) {
        const std::string help = run(std::string(command) + " --help").output;
        for (const char* name : {"simulate", "deviation FLOAT", "bad-pictures", "mirror", "chunk_loss"})
            EXPECT_EQ(help.find(name), std::string::npos) << command << "\n" << help;
    }
}

}  // namespace
}  // namespace mantissa
