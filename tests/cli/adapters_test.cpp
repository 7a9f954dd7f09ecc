// Adapters from the command line: trained beside codes, resumed, merged, and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

class AdaptersCommand : public ::testing::Test {
  protected:
    AdaptersCommand() {
        succeed("train --model llama-tiny --layers 1" + text_ + " --checkpoint " + at("base"));
    }

    std::string at(const std::string& name) const { return (directory_ / name).string(); }
    std::string beside_base() const { return "train --from " + at("base") + text_; }
    static void succeed(const std::string& arguments) {
        const Ran ran = run(arguments);
        EXPECT_EQ(ran.status, 0) << arguments << "\n" << ran.output;
    }
    static std::string refusal(const std::string& arguments) {
        const Ran ran = run(arguments);
        EXPECT_NE(ran.status, 0) << arguments << "\n" << ran.output;
        return last_line(ran.output);
    }

    const TemporaryDirectory directory_;
    const std::string text_ =
        " --text /usr/share/common-licenses/BSD --batch 2 --sequence 32 --steps 3 --quiet";
};

TEST_F(AdaptersCommand, BesideCodesAreTrainedResumedMergedAndUsed) {
    succeed(beside_base() + " --lora 2 --lora-magnitudes --trunk nf4 --checkpoint " + at("mine"));
    const std::string merge = "train --resume " + at("mine") + " --steps 4 --quiet --merge " + at("whole");
    succeed(merge);
    for (const std::string& model : {at("whole"), at("base") + " --adapter " + at("mine")})
        succeed("generate --tokenizer bytes --prompt a --length 2 --checkpoint " + model);
    // Known before a step is trained: nothing else is printed.
    EXPECT_EQ(run(merge).output,
              "mantissa: " + at("whole") +
                  ": is there already; a merged model is written to a folder of its own\n");
}

TEST_F(AdaptersCommand, WhatFitsIsChosenWhereNothingIsGiven) {
    const std::string plan = beside_base() + " --lora 2 --policy bf16 --plan";
    const std::string taken = "; what is not given changes where a step does not fit\n";
    EXPECT_NE(run(plan).output.find("trunk bf16, batch 2, recompute nothing" + taken), std::string::npos);
    EXPECT_NE(run(plan + " --trunk nf4 --recompute block")
                  .output.find("trunk nf4, batch 2, recompute block" + taken),
              std::string::npos);
}

TEST_F(AdaptersCommand, WhatWasNotGivenChangesUntilTheStepFits) {
    const std::string plan = "ulimit -v 3000000; " + testing::program +
                             " train --model llama-110m --lora 2 --policy bf16 --threads 1 --plan --text "
                             "/usr/share/common-licenses/GPL-3";
    const std::string chosen = "chosen, since the step as given does not fit: ", fits = "\nit fits: ";
    const std::string output = testing::run_in_shell(plan).output;
    EXPECT_EQ(output.find(chosen + "--batch "), 0u) << output;
    EXPECT_NE(output.find(fits), std::string::npos) << output;
    const std::string given = testing::run_in_shell(plan + " --batch 8").output;
    EXPECT_EQ(given.find(chosen + "--recompute block, "), 0u) << given;
    EXPECT_NE(given.find(fits), std::string::npos) << given;
    const std::string all = testing::run_in_shell(plan + " --batch 64 --recompute norm --trunk int4").output;
    EXPECT_EQ(all.find(chosen), std::string::npos) << all;
    EXPECT_NE(all.find("\nit does not fit: "), std::string::npos) << all;
}

TEST_F(AdaptersCommand, WrongUseIsRefused) {
    succeed(beside_base() + " --lora 2 --lora-on 'model.layers.0.*' --checkpoint " + at("mine"));
    succeed("train --model gpt2-tiny --layers 1 --channels 32 --heads 1" + text_ + " --checkpoint " +
            at("other"));
    const std::string foreign = refusal("train --from " + at("other") + text_ + " --adapter " + at("mine"));
    EXPECT_TRUE(foreign.starts_with("mantissa: " + at("mine/adapter_model.safetensors") + ": '")) << foreign;
    EXPECT_NE(foreign.find("' names no layer for an adapter; those that"), std::string::npos) << foreign;
    for (const std::string& option :
         std::vector<std::string>{"--trunk nf4", "--lora-magnitudes", "--lora-alpha 3", "--merge x"})
        EXPECT_EQ(refusal(beside_base() + " " + option), "mantissa: " + option.substr(0, option.find(' ')) +
                                                             " belongs to --lora: give a rank, such as 16");
    EXPECT_EQ(refusal(beside_base() + " --lora 2 --trunk nf3"),
              "mantissa: --trunk: no format of frozen weights is called 'nf3'; there are nf4, int4 and int8");
    const std::string unknown = refusal(beside_base() + " --lora 2 --lora-on '*.nothing'");
    EXPECT_TRUE(unknown.starts_with("mantissa: LoRA: '*.nothing' names no layer for an adapter; those that"))
        << unknown;
}

}  // namespace
}  // namespace mantissa
