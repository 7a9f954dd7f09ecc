// The loss of a validation does not depend on the batch: every target counts, once.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

TEST(Validation, IsTheSameForAnyBatch) {
    const TemporaryDirectory directory;
    const std::string text = directory / "text.txt", checkpoint = directory / "made";
    testing::write_sentences(text, 300);
    const std::string small = "train --policy fp32 --text " + text + " ";
    const testing::Ran made = testing::run(
        small + "--layers 1 --heads 2 --channels 16 --context 32 --steps 1 --checkpoint " + checkpoint);
    ASSERT_EQ(made.status, 0) << made.output;
    double first = 0;
    // A learning rate of 0: all validate the same weights.
    for (const char* batch : {"1", "3", "8", "64"}) {
        const std::string report = directory / (std::string(batch) + ".json");
        const testing::Ran ran = testing::run(small + "--from " + checkpoint +
                                              " --learning-rate 0 --steps 1 --validate-every 1 --batch " +
                                              batch + " --json " + report);
        ASSERT_EQ(ran.status, 0) << ran.output;
        const double loss = nlohmann::json::parse(read_file(report)).at("validation").at(0).at("loss");
        if (first == 0) first = loss;
        EXPECT_NEAR(loss, first, 1e-6) << batch;
    }
    // `generate` counts all but the first token of a text that is no multiple of the context, too.
    const std::string report = directory / "perplexity.json";
    const testing::Ran ran = testing::run("generate --checkpoint " + checkpoint + " --validation " + text +
                                          " --policy fp32 --json " + report);
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_EQ(nlohmann::json::parse(read_file(report)).at("validation").at(0).at("tokens"),
              read_file(text).size() - 1);
}

TEST(Validation, OfATextShorterThanASequenceTakesItWhole) {
    const TemporaryDirectory directory;
    const std::string text = directory / "text.txt", short_text = directory / "short.txt";
    std::ofstream(text) << std::string(300, 'x') << "the cat sat on the mat";
    const std::string train =
        "train --quiet --layers 1 --heads 2 --channels 16 --context 32 --batch 2 --steps 1 "
        "--validate-every 1 --text " +
        text + " --validation " + short_text;
    std::ofstream(short_text) << "abcdef";
    const testing::Ran ran = testing::run(train);
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find(" over 1 batch\n"), std::string::npos) << ran.output;
    EXPECT_EQ(ran.output.find("warning"), std::string::npos) << ran.output;
    const testing::Ran same = testing::run(train + " --validation " + text);
    EXPECT_NE(same.output.find("mantissa: warning: --validation " + text + ": it is trained on, too, so "),
              std::string::npos)
        << same.output;
    std::ofstream(short_text) << "a";
    EXPECT_EQ(testing::run(train).output,
              "mantissa: --validation " + short_text + ": 1 token, but a loss needs 2; give more text\n");
}

}  // namespace
}  // namespace mantissa
