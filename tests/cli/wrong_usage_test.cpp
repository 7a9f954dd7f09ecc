// The program's answers to a command line that is wrong.
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
        "mantissa: train has no option --stpes; did you mean --steps? `mantissa train --help` lists them");
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

TEST(WrongUsage, ACountOfValuesThatIsWrongIsSaidInPlainWords) {
    for (const auto& [words, said] :
         {std::pair{"train --steps 3 --steps 4", "--steps: was given 2 times; give it once;"},
          {"train --betas 0.9", "--betas: takes 2 values, got 1;"},
          {"train --betas 0.9 0.9 --betas 0.9 0.9", "--betas: takes 2 values, got 4;"}}) {
        const Ran ran = run(words);
        EXPECT_EQ(ran.status, 2);
        EXPECT_EQ(ran.output.find(std::string("mantissa: ") + said), 0u) << ran.output;
    }
}

TEST(WrongUsage, ZeroIsNoSequenceAndNoThread) {
    for (const char* arguments :
         {"train --sequence 0", "train --threads 0", "ladder --threads 00", "explain --ranks 0"}) {
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

TEST(WrongUsage, AWrongValueOfAnyOptionEndsAsOfAnyOther) {
    const std::pair<const char*, const char*> wrong[] = {
        {"bench --policy fp33", "--policy: there is no policy 'fp33'"},
        {"train --clip -1", "--clip: clip must be 0 (off)"},
        {"train --recompute nothing", "--recompute: 'nothing' cannot be recomputed"},
        {"train --passes all,fuse", "--passes all,fuse: all stands alone"},
        {"train --loss-scale 1e40", "--loss-scale: the loss scale must lie between"},
        {"train --policy fp16 --loss-scale-interval 0", "--loss-scale-interval: the interval"},
        {"explain --diff fp32 fp33", "--diff: there is no policy 'fp33'"},
        {"ladder --repeats 0", "--repeats must be 1 or more, got 0"},
        {"explain --ranks 2 --on h999", "--on: there is no accelerator 'h999'"},
        {"explain --roofline --for v100", "--for: there is no accelerator 'v100'"},
        {"generate --prompt x --checkpoint x --temperature -1", "--temperature: the temperature"},
        {"tokenize --train .", "--out DIR is missing"},
        {"train --images x --std 1,2,3", "--std: expected a number, got '1,2,3'; write 0.5 with a point"},
        {"tokenize --count .", "--tokenizer DIR is missing"},
    };
    for (const auto& [arguments, says] : wrong) {
        const Ran ran = run(arguments);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_EQ(last_line(ran.output).find(std::string("mantissa: ") + says), 0u) << ran.output;
    }
}

TEST(WrongUsage, WhatDoesNothingIsRefused) {
    const std::pair<const char*, const char*> wrong[] = {
        {"--min-learning-rate -1",
         "--min-learning-rate must lie between 0 and --learning-rate 0.001, got -1"},
        {"--momentum 0.9", "--momentum belongs to --optimizer sgd"},
        {"--nesterov", "--nesterov belongs to --optimizer sgd"},
        {"--optimizer sgd --betas 0.9 0.9", "--betas belongs to --optimizer adamw"},
        {"--policy fp32 --loss-scale-start 8", "--loss-scale-start belongs to a dynamic loss scale"},
        {"--policy fp16 --loss-scale 8 --loss-scale-floor 2",
         "--loss-scale-floor belongs to a dynamic loss scale"},
        {"--validate-batches 3", "--validate-batches belongs to validations; give --validate-every, too"},
        {"--prompt x", "--prompt belongs to samples; give --sample-every, too"},
        {"--tokens-format raw", "--tokens-format says how --tokens are stored: give --tokens FILE"},
    };
    const std::pair<const char*, const char*> of_others[] = {
        {"tokenize --count . --tokenizer . --vocabulary 300",
         "--vocabulary belongs to --train; leave it out"},
        {"tokenize --train . --out x --tokenizer .",
         "--tokenizer belongs to --encode, --decode, --count and --chats"},
        {"tokenize --decode 1 --tokenizer . --out x", "--out belongs to --train and --encode"},
        {"generate --checkpoint x --validation . --temperature 0.5",
         "--temperature says how a text is written: give --prompt, too"},
        {"numerics converge --seeds 2 --tolerance 1", "--seeds finds what --tolerance says"},
        {"numerics converge --policies fp32,bf16 --loss-scale 8", "--loss-scale belongs to fp16"},
    };
    for (const auto& [arguments, says] : of_others) {
        const Ran ran = run(arguments);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_EQ(last_line(ran.output).find(std::string("mantissa: ") + says), 0u) << ran.output;
    }
    for (const auto& [arguments, says] : wrong) {
        const Ran ran = run(std::string("train --steps 1 ") + arguments);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_EQ(last_line(ran.output).find(std::string("mantissa: ") + says), 0u) << ran.output;
    }
}

TEST(WrongUsage, NamesTheCommandThatWasProbablyMeant) {
    EXPECT_EQ(last_line(run("trian --steps 1").output),
              "mantissa: there is no command 'trian'; did you mean train?");
    EXPECT_EQ(last_line(run("tokenize --trian my.txt").output),
              "mantissa: tokenize has no option --trian; did you mean --train? `mantissa tokenize --help` "
              "lists them");
    EXPECT_EQ(last_line(run("numerics converge --polices fp32").output),
              "mantissa: converge has no option --polices; did you mean --policies? `mantissa numerics "
              "converge --help` lists them");
    EXPECT_EQ(last_line(run("--vresion").output),
              "mantissa: mantissa has no option --vresion; did you mean --version? `mantissa --help` lists "
              "them");
}

TEST(WrongUsage, HelpAndVersionMayBeAskedForInEachWay) {
    EXPECT_EQ(run("help").output, run("--help").output);
    EXPECT_EQ(run("help").status, 0);
    EXPECT_EQ(run("help train").output, run("train --help").output);
    EXPECT_EQ(run("help numerics converge").output, run("numerics converge --help").output);
    EXPECT_EQ(run("help trian").status, 2);
    EXPECT_EQ(run("-V").output, run("--version").output);
}

/// Memory that a limit refuses is an error with words, wherever it is asked for.
TEST(WrongUsage, ALimitOfTheAddressSpaceIsNoCrash) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "under a sanitizer: it takes terabytes of address space";
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
