// A run that goes on from another: resumed with what it was asked for, begun with published weights, sampled
// with the tokenizer that it was trained with.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;
using testing::steps_of;

/// With options that matter to every later step.
std::string train_with_options(const TemporaryDirectory& directory) {
    return "train --batch 2 --sequence 16 --learning-rate 2e-3 --warmup 3 --clip 0.5 --weight-decay 0.3 "
           "--betas 0.8 0.9 --validate-every 4 --accumulate 2 --seed 5 --text " +
           testing::write_sentences(directory / "my.txt") + " ";
}

TEST(TrainAgain, AResumeNeedsNoOptionRepeatedAndSavesWhereItCameFrom) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string(), whole = (directory / "whole").string();
    const Ran straight = run(train_with_options(directory) + "--steps 8 --checkpoint " + whole);
    ASSERT_EQ(straight.status, 0) << straight.output;
    ASSERT_EQ(
        run(train_with_options(directory) + "--steps 8 --checkpoint " + place + " --print-every 3").status,
        0);
    std::filesystem::remove_all(place);
    ASSERT_EQ(run(train_with_options(directory) + "--steps 4 --checkpoint " + place).status, 0);
    const Ran resumed = run("train --resume " + place + " --steps 8");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_NE(resumed.output.find("saved " + place + " after step 7"), std::string::npos) << resumed.output;
    // The schedule of the first four steps knew four steps, so the learning rate is what differs from there
    // on.
    EXPECT_NE(resumed.output.find("validation loss"), std::string::npos) << resumed.output;
    EXPECT_NE(resumed.output.find("2 x 2 x 16 tokens a step"), std::string::npos) << resumed.output;
    EXPECT_EQ(resumed.output.find("was trained with adamw"), std::string::npos) << resumed.output;
}

TEST(TrainAgain, GoesOnAsIfItHadNeverStopped) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string();
    const Ran straight = run(train_with_options(directory) + "--steps 8");
    // The same run, interrupted by its own save after four steps, as a copy of what it saved then.
    const Ran saved = run(train_with_options(directory) + "--steps 8 --save-every 4 --checkpoint " + place);
    ASSERT_EQ(saved.status, 0) << saved.output;
    const Ran resumed =
        run("train --resume " + place + ".previous --checkpoint " + (directory / "other").string());
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    const std::string all = steps_of(straight.output), last = steps_of(resumed.output);
    ASSERT_NE(last.find("step     4"), std::string::npos) << resumed.output;
    EXPECT_TRUE(all.ends_with(last)) << all << "\n" << last;
}

TEST(TrainAgain, OptionsThatAreGivenTakeThePlaceOfThoseRemembered) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string();
    ASSERT_EQ(run(train_with_options(directory) + "--steps 2 --checkpoint " + place).status, 0);
    const Ran changed =
        run("train --resume " + place + " --steps 3 --batch 3 --weight-decay 0.1 --policy fp32");
    ASSERT_EQ(changed.status, 0) << changed.output;
    for (const char* part : {"batch = 2, this run has 3", "adamw.weight_decay = 0.3, this run has 0.1",
                             "as asked", "2 x 3 x 16 tokens a step"})
        EXPECT_NE(changed.output.find(part), std::string::npos) << part << ": " << changed.output;
    const Ran other = run("train --resume " + place + " --steps 4 --layers 3");
    EXPECT_EQ(other.status, 1) << other.output;
    EXPECT_NE(last_line(other.output).find("model.layers = 4, this run has 3"), std::string::npos)
        << other.output;
}

/// A learning rate of 0: losses tell what was read.
TEST(TrainAgain, ReadsOnWhereItStoppedWithStepsOfAnotherSize) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string(),
                      still =
                          "train --layers 1 --heads 1 --channels 8 --context 32 --sequence 16 "
                          "--learning-rate 0 --policy fp32 --order sequential --text " +
                          testing::write_sentences(directory / "my.txt") + " ";
    ASSERT_EQ(run(still + "--batch 2 --steps 3 --checkpoint " + place).status, 0);
    // Steps 0 to 2 read six windows, so the next step of six is the second of a run of such steps.
    const Ran resumed = run("train --resume " + place + " --steps 4 --batch 6");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    const Ran straight = run(still + "--batch 6 --steps 2");
    const auto loss_of = [](const Ran& ran, const std::string& step) {
        const std::string lines = steps_of(ran.output);
        const std::size_t at = lines.find("step     " + step + " | loss ");
        return at == std::string::npos ? "none in " + ran.output : lines.substr(at + 18, 7);
    };
    EXPECT_EQ(loss_of(resumed, "3"), loss_of(straight, "1"));
    const Ran longer = run("train --resume " + place + " --steps 5 --sequence 32");
    ASSERT_EQ(longer.status, 0) << longer.output;
    EXPECT_NE(longer.output.find(" of 32 tokens in their order now, so a new one begins"), std::string::npos)
        << longer.output;
}

TEST(TrainAgain, ACheckpointCarriesItsTokenizer) {
    const TemporaryDirectory directory;
    const std::string text = testing::write_sentences(directory / "my.txt"),
                      tokenizer = (directory / "tok").string(), place = (directory / "ck").string();
    ASSERT_EQ(run("tokenize --train " + text + " --vocabulary 300 --out " + tokenizer).status, 0);
    ASSERT_EQ(run("train --batch 1 --sequence 16 --steps 2 --text " + text + " --tokenizer " + tokenizer +
                  " --checkpoint " + place)
                  .status,
              0);
    std::filesystem::remove_all(tokenizer);
    const Ran generated =
        run("generate --checkpoint " + place + " --prompt 'the cat' --length 4 --temperature 0");
    EXPECT_EQ(generated.status, 0) << generated.output;
    EXPECT_NE(generated.output.find("300 tokens; policy"), std::string::npos) << generated.output;
    const Ran resumed = run("train --steps 3 --resume " + place);
    EXPECT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_EQ(resumed.output.find("warning"), std::string::npos) << resumed.output;
}

TEST(TrainAgain, BeginsWithPublishedWeights) {
    const TemporaryDirectory directory;
    const std::string text = testing::write_sentences(directory / "my.txt"),
                      tokenizer = (directory / "tok").string(),
                      published = (directory / "published").string(), place = (directory / "ck").string();
    ASSERT_EQ(run("tokenize --train " + text + " --vocabulary 300 --out " + tokenizer).status, 0);
    const std::string train =
        "train --batch 1 --sequence 16 --steps 30 --learning-rate 1e-3 --text " + text + " ";
    ASSERT_EQ(run(train + "--tokenizer " + tokenizer + " --checkpoint " + published).status, 0);
    // As others publish weights: no checkpoint of ours, but the two files that everybody reads.
    for (const char* name : {"manifest.json", "state.json", "optimizer.safetensors"})
        std::filesystem::remove(std::filesystem::path(published) / name);
    const Ran begun = run(train + "--from " + published + " --checkpoint " + place);
    ASSERT_EQ(begun.status, 0) << begun.output;
    EXPECT_NE(begun.output.find("begun with the weights of " + published), std::string::npos);
    // A model that has seen the text begins below the 5.7 of one that knows nothing.
    EXPECT_EQ(begun.output.find("step     0 | loss 5"), std::string::npos) << begun.output;
    const Ran resumed = run("train --resume " + place + " --steps 31");
    EXPECT_EQ(resumed.status, 0) << resumed.output;
    std::filesystem::remove(std::filesystem::path(published) / "tokenizer.json");
    for (const auto& [arguments, complaint] :
         {std::pair{std::string("--from "), "there is no tokenizer beside the weights"},
          {std::string("--layers 3 --from "), "give it without --layers"},
          {std::string("--from /nowhere"), "/nowhere"}}) {
        const Ran refused = run("train --steps 1 " + arguments + published);
        EXPECT_NE(refused.status, 0) << refused.output;
        EXPECT_NE(refused.output.find(complaint), std::string::npos) << refused.output;
    }
}

TEST(TrainAgain, DropsAsPublishedWeightsDidWhereThatIsAskedFor) {
    const TemporaryDirectory directory;
    const std::string text = testing::write_sentences(directory / "my.txt"),
                      place = (directory / "ck").string(), next = (directory / "next").string();
    const std::string train = "train --batch 1 --sequence 16 --steps 1 --text " + text + " --checkpoint ";
    ASSERT_EQ(run(train + place + " --dropout 0.25").status, 0);
    EXPECT_NE(read_file(place + "/config.json").find("\"attn_pdrop\": 0.25"), std::string::npos);
    const std::string note = "the config.json of " + place +
                             " tells of dropout 0.25, and this run has none; --dropout 0.25 drops as much\n";
    const Ran without = run(train + next + " --from " + place);
    EXPECT_NE(without.output.find(note), std::string::npos) << without.output;
    const Ran with = run(train + next + " --dropout 0.25 --from " + place);
    EXPECT_EQ(with.output.find(note), std::string::npos) << with.output;
    EXPECT_NE(read_file(next + "/state.json").find("\"dropout\": 0.25"), std::string::npos);
    const Ran resumed = run("train --steps 2 --resume " + next);
    EXPECT_EQ(resumed.status, 0) << resumed.output;
}

TEST(TrainAgain, ALlamasDropoutIsToldOf) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string(), published = (directory / "published").string();
    const std::string rest = " --batch 1 --sequence 16 --steps 1 --policy fp32 --passes none --text " +
                             testing::write_sentences(directory / "my.txt");
    ASSERT_EQ(run("train --model llama-tiny --layers 1 --channels 32 --checkpoint " + place + rest).status,
              0);
    std::filesystem::create_directory(published);
    std::filesystem::copy_file(place + "/model.safetensors", published + "/model.safetensors");
    nlohmann::json config = nlohmann::json::parse(read_file(place + "/config.json"));
    config["attention_dropout"] = 0.125;
    std::ofstream(published + "/config.json") << config.dump();
    const Ran ran = run("train --tokenizer bytes --from " + published + rest);
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("the config.json of " + published +
                              " tells of dropout 0.125, and this run has none; models of this family are "
                              "trained without\n"),
              std::string::npos)
        << ran.output;
}

TEST(TrainAgain, BeginsWithAModelOfBytes) {
    const TemporaryDirectory directory;
    const std::string text = testing::write_sentences(directory / "my.txt"),
                      place = (directory / "ck").string();
    const std::string rest = " --batch 1 --sequence 16 --steps 1 --quiet --text " + text;
    ASSERT_EQ(run("train --checkpoint " + place + rest).status, 0);
    const Ran begun = run("train --from " + place + rest);
    EXPECT_EQ(begun.status, 0) << begun.output;
    EXPECT_NE(begun.output.find(" tokens, a byte each"), std::string::npos) << begun.output;
}

TEST(TrainAgain, ReportsTakeAModelFromItsCheckpoint) {
    const TemporaryDirectory directory;
    const std::string text = testing::write_sentences(directory / "my.txt"),
                      place = (directory / "ck").string();
    ASSERT_EQ(
        run("train --layers 1 --heads 2 --channels 16 --context 16 --vocabulary 256 --batch 1 --steps 40 "
            "--learning-rate 1e-2 --quiet --text " +
            text + " --checkpoint " + place)
            .status,
        0);
    for (const char* command : {"explain --batch 1 --from ", "lint --no-measure --from "}) {
        const Ran ran = run(command + place);
        EXPECT_EQ(ran.status, 0) << ran.output;
        EXPECT_EQ(ran.output.find("ck"), 0u) << ran.output;
        EXPECT_EQ(run(command + place + " --layers 2").status, 2);
    }
    // The weights that were drawn do not matter where others take their place.
    const std::string numerics = "numerics --batch 1 --steps 1 --quiet --text " + text + " --from " + place;
    const Ran one = run(numerics + " --seed 1"), other = run(numerics + " --seed 2");
    EXPECT_EQ(one.status, 0) << one.output;
    EXPECT_NE(one.output.find("ck, step 1: "), std::string::npos) << one.output;
    EXPECT_EQ(one.output, other.output);
}

TEST(TrainAgain, SaysWhatIsNotKept) {
    const TemporaryDirectory directory;
    const std::string train = "train --batch 1 --sequence 16 --steps 1 ", place = (directory / "ck").string();
    EXPECT_NE(run(train).output.find("will not be saved; --checkpoint DIR"), std::string::npos);
    ASSERT_EQ(run(train + "--checkpoint " + place).status, 0);
    const Ran again = run(train + "--checkpoint " + place);
    const std::string log = (directory / "log.jsonl").string();
    EXPECT_EQ(run(train + "--log " + log).output.find("lines of another run"), std::string::npos);
    const std::string lines = read_file(log);
    EXPECT_NE(
        run(train + "--log " + log)
            .output.find(log + " holds the lines of another run, which are now in " + log + ".previous\n"),
        std::string::npos);
    EXPECT_EQ(read_file(log + ".previous"), lines);
    EXPECT_NE(again.output.find("holds a checkpoint of another run; the first save moves it to"),
              std::string::npos)
        << again.output;
}

TEST(TrainAgain, SaysWhichOptionsDoNothing) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string();
    const Ran ran =
        run("train --batch 1 --sequence 16 --steps 2 --validate-every 3 --save-every 3 --keep-best "
            "--threads 500 --checkpoint " +
            place);
    for (const std::string option : {"--save-every", "--validate-every"})
        EXPECT_NE(ran.output.find("mantissa: " + option + " 3 does nothing here: the run ends at step 2\n"),
                  std::string::npos)
            << ran.output;
    EXPECT_NE(ran.output.find("mantissa: --threads 500: there "), std::string::npos) << ran.output;
    // The next run may have other cores.
    EXPECT_EQ(read_file(place + "/state.json").find("--threads"), std::string::npos);
}

TEST(TrainAgain, ReadsATextFromAPipe) {
    const TemporaryDirectory directory;
    const std::string text = testing::write_sentences(directory / "my.txt");
    const std::string train = MANTISSA_BINARY_DIR "/mantissa train --batch 1 --sequence 16 --steps 1 --text ";
    const Ran ran = testing::run_in_shell("cat " + text + " | " + train + "-");
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find(" tokens, a byte each"), std::string::npos) << ran.output;
    const Ran ladder = testing::run_in_shell(
        "cat " + text + " | " MANTISSA_BINARY_DIR "/mantissa ladder --model gpt2-tiny --text -");
    EXPECT_EQ(ladder.status, 1);
    EXPECT_NE(last_line(ladder.output).find("standard input can be read but once"), std::string::npos)
        << ladder.output;
}

TEST(TrainAgain, PrintsEverySoManySteps) {
    const Ran ran = run("train --batch 1 --sequence 16 --steps 6 --print-every 4");
    EXPECT_NE(ran.output.find("step     0"), std::string::npos);
    EXPECT_EQ(ran.output.find("step     1"), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("step     4"), std::string::npos);
    EXPECT_NE(ran.output.find("step     5"), std::string::npos) << "the last step is always printed";
    EXPECT_NE(ran.output.find("6 steps in "), std::string::npos) << ran.output;
    const Ran quiet = run("train --batch 1 --sequence 16 --steps 2 --quiet");
    EXPECT_EQ(quiet.output.find("step     0"), std::string::npos) << quiet.output;
}

}  // namespace
}  // namespace mantissa
