// What the program says of a command line that is wrong.
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/run_program.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

TEST(WrongUsage, NamesTheOptionThatWasProbablyMeant) {
    const Ran ran = run("train --stpes 3");
    EXPECT_EQ(ran.status, 2);
    EXPECT_EQ(
        last_line(ran.output),
        "mantissa: train has no option --stpes; did you mean --steps?; `mantissa train --help` lists them");
    EXPECT_NE(run("train --learing-rate=3").output.find("did you mean --learning-rate?"), std::string::npos);
    EXPECT_EQ(run("ladder --xyzzyplugh").output.find("did you mean"), std::string::npos);
    EXPECT_NE(run("train my.txt").output.find("takes no word 'my.txt'"), std::string::npos);
}

TEST(WrongUsage, NumbersOutOfRangeAreRefused) {
    for (const char* arguments :
         {"train --steps 99999999999999999999999", "train --seed 99999999999999999999",
          "generate --checkpoint x --prompt x --length 99999999999999999999"}) {
        const Ran ran = run(arguments);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_NE(ran.output.find("out of range"), std::string::npos) << ran.output;
    }
}

TEST(WrongUsage, ZeroIsNoSequenceAndNoThread) {
    for (const char* arguments : {"train --sequence 0", "train --threads 0", "ladder --threads 00"}) {
        const Ran ran = run(arguments);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_NE(ran.output.find("must be 1 or more, got 0"), std::string::npos) << ran.output;
    }
}

TEST(WrongUsage, AValueThatIsWrongEndsAsAWordThatIsWrong) {
    EXPECT_EQ(run("train --batch 0").status, 2);
    EXPECT_EQ(run("train --btach 1").status, 2);
    EXPECT_EQ(run("train --text /nowhere/at/all").status, 1);
}

/// Memory that a limit refuses is an error with words, wherever it is asked for.
TEST(WrongUsage, ALimitOfTheAddressSpaceIsNoCrash) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer takes terabytes of address space for itself";
#endif
    const Ran ran =
        testing::run_in_shell("ulimit -v 300000; " MANTISSA_BINARY_DIR
                              "/mantissa train --model gpt2-124m --steps 1 --batch 1 --sequence 16");
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_TRUE(last_line(ran.output).starts_with("mantissa: ")) << ran.output;
    EXPECT_EQ(ran.output.find("terminate"), std::string::npos) << ran.output;
}

TEST(WrongUsage, JsonGoesToStandardOutputForADash) {
    const Ran ran = run("peaks --of a100 --json -");
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("\"command\": \"peaks\""), std::string::npos) << ran.output;
}

}  // namespace
}  // namespace mantissa
