// Families other than GPT-2 and LLaMA by the commands: trained, resumed to the same bits, continued in every
// format, explained, linted, looked at.
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/random_draws.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::Ran;
using testing::run;

class FamilyCommands : public ::testing::TestWithParam<const char*> {
  protected:
    std::string sizes() const {
        return std::string("--model ") + GetParam() +
               " --layers 2 --heads 4 --channels 64 --context 48 --vocabulary 300 ";
    }
    static Ran good(const std::string& words) {
        Ran ran = run(words);
        EXPECT_EQ(ran.status, 0) << words << ": " << ran.output;
        return ran;
    }
    /// The last step's line, but for its time.
    static std::string last_step(const std::string& output) {
        const std::size_t begin = output.rfind("\nstep ");
        return begin == output.npos ? "" : output.substr(begin, output.find(" ms", begin) - 6 - begin);
    }
};

TEST_P(FamilyCommands, TrainAndGoOn) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string();
    const std::string training = "train --batch 2 --sequence 40 --threads 1 --text " +
                                 testing::write_sentences(directory / "my.txt") + " " + sizes();
    const Ran straight = good(training + "--steps 4");
    good(training + "--steps 2 --checkpoint " + place);
    const Ran resumed = good("train --threads 1 --resume " + place + " --steps 4");
    const auto loss = [](const Ran& ran) {
        const std::string line = last_step(ran.output);
        return line.substr(0, line.find("| lr"));
    };
    EXPECT_NE(loss(straight), "");
    EXPECT_EQ(loss(resumed), loss(straight));
    good(training + "--steps 1 --recompute norm,softmax --freeze *embed*");
    for (const char* policy : {"fp32", "bf16", "int8", "int4"})
        good(
            "generate --threads 1 --length 60 --full-context slide --temperature 0 --prompt \"the cat\" "
            "--checkpoint " +
            place + " --policy " + policy);
}

TEST_P(FamilyCommands, ExplainLintAndNumbers) {
    for (const char* command : {"explain ", "lint ", "explain --roofline --for h100 ", "numerics --steps 1 "})
        good(command + sizes() + "--batch 1 --sequence 40");
}

INSTANTIATE_TEST_SUITE_P(
    Models, FamilyCommands,
    ::testing::ValuesIn(testing::some_of<const char*>({"qwen3-0.6b", "pythia-70m", "opt-125m", "gemma3-270m",
                                                       "gemma2-2b", "phi-1.5", "phi3-mini", "smollm3-3b"},
                                                      3)),
    [](const auto& model) {
        std::string name = model.param;
        for (char& c : name)
            if (c == '-' || c == '.') c = '_';
        return name;
    });

}  // namespace
}  // namespace mantissa
