// Training that goes wrong, and says so: what is at fault is named, and nothing that is no number is a
// success.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

std::string small_gpt2(const TemporaryDirectory& directory) {
    return " --threads 1 --layers 2 --heads 4 --channels 64 --context 64 --vocabulary 256 --batch 2 --text " +
           testing::write_sentences(directory / "my.txt") + " ";
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(TrainWrong, ALossScaleThatIsTooGreatIsSaidToBe) {
    const TemporaryDirectory directory;
    const std::string log = directory / "log.csv";
    const std::string train = "train" + small_gpt2(directory) + "--steps 5 --policy fp16 --log " + log;
    for (const auto& [scale, advice] :
         {std::pair{"--loss-scale 1e9",
                    "times the loss scale of 1e+09 the gradients are not: a smaller "
                    "--loss-scale, or --loss-scale dynamic, may help"},
          {"--loss-scale 1e30",
           "times the loss scale of 1e+30 the gradients are not: a smaller --loss-scale"},
          {"--loss-scale-start 1e9 --loss-scale-floor 1e9", "a smaller --loss-scale-floor may help"}}) {
        const Ran ran = run(train + " " + scale);
        EXPECT_EQ(ran.status, 1) << ran.output;
        EXPECT_TRUE(holds(last_line(ran.output), advice)) << ran.output;
        EXPECT_FALSE(holds(ran.output, "--learning-rate")) << ran.output;
        // The fused linear cross-entropy makes logits and gradients; these are of the backward pass.
        EXPECT_FALSE(holds(ran.output, "(forward")) << ran.output;
        EXPECT_TRUE(holds(ran.output, "norm nan ")) << ran.output;
        EXPECT_FALSE(holds(ran.output, "-nan")) << ran.output;
    }
    std::ifstream lines(log);
    std::string line;
    std::getline(lines, line);
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_TRUE(holds(line, ",nan,false,")) << line;
}

TEST(TrainWrong, WeightsThatAreBrokenAreSaidToBe) {
    const TemporaryDirectory directory;
    const std::string place = directory / "ck", published = directory / "published",
                      text = small_gpt2(directory);
    ASSERT_EQ(run("train" + text + "--steps 1 --quiet --checkpoint " + place).status, 0);
    std::filesystem::create_directory(published);
    std::filesystem::copy(place + "/config.json", published);
    std::string weights = read_file(place + "/model.safetensors");
    std::ranges::fill(weights.begin() + static_cast<std::ptrdiff_t>(weights.size() / 2), weights.end(),
                      '\xff');
    testing::write_file(published + "/model.safetensors", weights);
    const Ran ran = run("train --batch 2 --steps 5 --tokenizer bytes --text " +
                        (directory / "my.txt").string() + " --from " + published);
    EXPECT_EQ(ran.status, 1);
    EXPECT_TRUE(holds(ran.output, " | not finite, so skipped:\n    ")) << ran.output;
    EXPECT_TRUE(
        last_line(ran.output)
            .ends_with("; it was so in " + published + ", which is damaged or of a training that broke down"))
        << ran.output;
    const Ran written = run("generate --tokenizer bytes --prompt Hi --checkpoint " + published);
    EXPECT_TRUE(holds(written.output, "\nHi\nmantissa: ")) << written.output;
}

TEST(TrainWrong, AResumeWithALossScaleThatIsTooSmallIsWarnedOf) {
    const TemporaryDirectory directory;
    const std::string place = directory / "ck";
    ASSERT_EQ(
        run("train" + small_gpt2(directory) + "--steps 2 --policy fp16 --quiet --checkpoint " + place).status,
        0);
    const Ran ran = run("train --steps 3 --resume " + place + " --loss-scale 1e-3");
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_TRUE(holds(ran.output, "% of the gradients' elements become zero when they are cast to f16"))
        << ran.output;
}

/// Both are refused before the tokens of a step are read, which would take all memory.
TEST(TrainWrong, AStepOfMoreTokensThanTheMemoryHoldsIsRefusedAtOnce) {
    const TemporaryDirectory directory;
    const Ran batch = run("train --threads 1 --batch 1000000000");
    EXPECT_EQ(batch.status, 1);
    EXPECT_TRUE(holds(batch.output, " at 1000000000 x 256 tokens needs ")) << batch.output;
    EXPECT_TRUE(holds(batch.output, " GB are available; use a smaller --batch, --sequence or --model"))
        << batch.output;
    const Ran accumulated = run("train" + small_gpt2(directory) + "--accumulate 2147483647");
    EXPECT_EQ(accumulated.status, 1);
    EXPECT_EQ(accumulated.output.find("mantissa: the tokens of a step need 2199.02 GB, "), 0u)
        << accumulated.output;
    EXPECT_TRUE(
        holds(accumulated.output, " are available; give a smaller --batch, --sequence or --accumulate"))
        << accumulated.output;
}

TEST(TrainWrong, AWarmUpThatIsLongerThanTheRunIsRemarkedUpon) {
    const TemporaryDirectory directory;
    const std::string train = "train" + small_gpt2(directory) + "--steps 2";
    const std::string remark = ": the run ends at step 2, before the learning rate has risen to 0.001\n";
    EXPECT_TRUE(holds(run(train + " --warmup 1000").output, "mantissa: --warmup 1000" + remark));
    EXPECT_FALSE(holds(run(train + " --warmup 2").output, "before the learning rate"));
    EXPECT_TRUE(holds(run(train).output, "mantissa: --warmup 20" + remark));
}

TEST(TrainWrong, AnOptionForRanksIsRemarkedUponInAProcessAlone) {
    const TemporaryDirectory directory;
    const Ran ran = run("train" + small_gpt2(directory) + "--steps 1 --bucket 3 --states whole");
    EXPECT_EQ(ran.status, 0) << ran.output;
    for (const char* option : {"--bucket", "--states"})
        EXPECT_TRUE(
            holds(ran.output, fmt::format("mantissa: {} does nothing here: it is for ranks", option)));
    EXPECT_FALSE(holds(ran.output, "--compare-every"));
}

TEST(TrainWrong, RecomputingWhatTheModelLacksIsRemarkedUpon) {
    const TemporaryDirectory directory;
    const Ran ran = run("train" + small_gpt2(directory) + "--steps 1 --recompute gelu,softmax");
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_TRUE(holds(ran.output, "mantissa: --recompute softmax: the forward pass has none\n"))
        << ran.output;
    EXPECT_FALSE(holds(ran.output, "--recompute gelu")) << ran.output;
}

TEST(TrainWrong, StepsThatWereSkippedAreCountedThoughNoLineIsPrinted) {
    const TemporaryDirectory directory;
    const std::string train = "train" + small_gpt2(directory) + "--quiet --steps 5 --bad-steps 0";
    const Ran ran = run(train + " --learning-rate 1e38 --warmup 0");
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_TRUE(holds(ran.output, "\n4 of them not finite, and skipped; in the last, ")) << ran.output;
    EXPECT_FALSE(holds(run(train).output, "not finite"));
}

TEST(TrainWrong, ALossThatClimbsIsRemarkedUponOnce) {
    const TemporaryDirectory directory;
    const Ran ran =
        run("train" + small_gpt2(directory) + "--steps 25 --learning-rate 10 --warmup 0 --clip 0");
    EXPECT_EQ(ran.status, 0) << ran.output;
    const std::string remark = "this does not train; a lower --learning-rate may help\n";
    const std::size_t first = ran.output.find(remark);
    ASSERT_NE(first, std::string::npos) << ran.output;
    EXPECT_EQ(ran.output.find(remark, first + 1), std::string::npos) << ran.output;
    EXPECT_TRUE(holds(ran.output, "warning: step 9: the mean of the last ten losses is ")) << ran.output;
}

TEST(TrainWrong, NumbersOfABrokenTrainingProposeNothing) {
    const TemporaryDirectory directory;
    const std::string report = directory / "n.json";
    const std::string numerics = "numerics" + small_gpt2(directory) + "--quiet --json " + report + " ";
    const Ran broken = run(numerics + "--steps 5 --learning-rate 1e6");
    EXPECT_EQ(broken.status, 1) << broken.output;
    EXPECT_TRUE(holds(last_line(broken.output), " numbers are not finite; a lower --learning-rate may help"));
    EXPECT_FALSE(holds(broken.output, "choose this")) << broken.output;
    EXPECT_LT(broken.output.find("loss 5."), broken.output.find("no loss scale is proposed: "));
    EXPECT_LT(broken.output.find("no loss scale is proposed: "), broken.output.find("magnitudes of"));
    EXPECT_TRUE(holds(broken.output, "\n 2^91 ")) << "every power of two has a line\n" << broken.output;
    const auto json = nlohmann::json::parse(std::ifstream(report));
    EXPECT_TRUE(json["proposed_scale"].is_null());
    EXPECT_TRUE(holds(json["fault"], "are not finite")) << json["fault"];
    EXPECT_EQ(json["losses"].size(), 5u);
    const Ran climbed = run(numerics + "--steps 20 --learning-rate 5");
    EXPECT_EQ(climbed.status, 1) << climbed.output;
    EXPECT_TRUE(holds(climbed.output, "no loss scale is proposed: the loss has climbed from "))
        << climbed.output;
    EXPECT_EQ(run(numerics + "--steps 5").status, 0);
}

TEST(TrainWrong, PrecisionsOfABrokenTrainingDoNotAgree) {
    const TemporaryDirectory directory;
    const Ran ran = run("numerics converge" + small_gpt2(directory) +
                        "--policies fp32,bf16 --learning-rate 1 --steps 12 --quiet");
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_TRUE(holds(last_line(ran.output),
                      "fp32 does not train, so there is nothing to agree with: it came from a loss of 5.5"))
        << ran.output;
    EXPECT_FALSE(holds(ran.output, "all agree")) << ran.output;
    EXPECT_LT(ran.output.find("fp32 does not train"), ran.output.find("  step ")) << ran.output;
}

TEST(TrainWrong, APerplexityThatIsNoNumberIsNoSuccess) {
    const TemporaryDirectory directory;
    const std::string place = directory / "ck", options = small_gpt2(directory);
    ASSERT_EQ(run("train" + options +
                  "--policy fp32 --learning-rate 5 --warmup 0 --clip 0 --steps 30 "
                  "--checkpoint " +
                  place)
                  .status,
              0);
    const std::string generate =
        "generate --policy fp16 --checkpoint " + place + " --validation " + std::string(directory / "my.txt");
    const Ran ran = run(generate);
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_TRUE(holds(last_line(ran.output),
                      "the loss of tokens 1 to 64 of the text is nan under fp16, so there is no "
                      "perplexity: a number left the range of its formats"))
        << ran.output;
    const Ran prompted = run(generate + " --prompt 'the cat'");
    EXPECT_EQ(prompted.status, 1) << prompted.output;
    EXPECT_TRUE(holds(last_line(prompted.output),
                      "after 7 tokens is nan: a number left the range of the policy's formats"))
        << prompted.output;
}

/// How far the mean of ten losses in a row comes to lie above its least so far.
double rise_of(const nlohmann::json& steps) {
    constexpr std::size_t together = 10;
    double least = 1e9, most = 0;
    for (std::size_t end = together; end <= steps.size(); ++end) {
        double mean = 0;
        for (std::size_t i = end - together; i < end; ++i) mean += steps[i]["loss"].get<double>() / together;
        least = std::min(least, mean);
        most = std::max(most, mean - least);
    }
    return most;
}

/// The record of bench/recipe.py has three texts, five seeds and 300 steps; this one leapt first.
TEST(TrainWrongSlow, TheDefaultRecipeDoesNotLeap) {
    if (!std::filesystem::exists("/usr/share/common-licenses")) GTEST_SKIP() << "no default text";
    const TemporaryDirectory directory;
    const std::string report = directory / "run.json";
    const std::string train = "train --quiet --steps 45 --json " + report;
    ASSERT_EQ(run(train).status, 0);
    EXPECT_LT(rise_of(nlohmann::json::parse(std::ifstream(report))["steps"]), 0.3);
    ASSERT_EQ(run(train + " --warmup 0 --clip 0").status, 0);
    EXPECT_GT(rise_of(nlohmann::json::parse(std::ifstream(report))["steps"]), 0.3) << "the test can fail";
}

}  // namespace
}  // namespace mantissa
