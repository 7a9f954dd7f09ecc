// Judgements: the lowest loss is of one set of data, another run's best checkpoint is not lost in
// silence, a loss that is no number is no success, and nothing is predicted beyond what was trained.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "mantissa/base/checksum.h"
#include "mantissa/base/file.h"
#include "mantissa/train/checkpoint.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::last_line;
using testing::Ran;
using testing::run;

bool says(const Ran& ran, const std::string& text) { return ran.output.find(text) != std::string::npos; }

/// Puts another state.json into a checkpoint, as a version that wrote it so would have.
void replace_state(const std::string& checkpoint, const json& state) {
    const std::string text = state.dump();
    std::ofstream(checkpoint + "/state.json") << text;
    Manifest manifest = parse_manifest(read_file(checkpoint + "/manifest.json"), "");
    manifest["state.json"].bytes = text.size();
    manifest["state.json"].checksum = checksum_of(std::as_bytes(std::span(text)));
    std::ofstream(checkpoint + "/manifest.json") << manifest_text(manifest);
}

/// A small GPT-2 on sentences, beside which lie texts to validate on.
class Judged : public ::testing::Test {
  protected:
    Judged() {
        testing::write_sentences(text_, 60);
        std::ofstream(easy_) << std::string(200, 'a');
        std::ofstream hard(hard_);
        for (int i = 0; i < 300; ++i) hard << static_cast<char>('!' + i * 37 % 90);
    }
    json state_of(const std::string& checkpoint) const {
        return json::parse(read_file(checkpoint + "/state.json"));
    }

    TemporaryDirectory directory_;
    std::string text_ = directory_ / "text.txt", easy_ = directory_ / "easy.txt",
                hard_ = directory_ / "hard.txt", mine_ = directory_ / "my", best_ = mine_ + ".best";
    std::string train_ =
        "train --policy fp32 --layers 1 --heads 2 --channels 16 --context 16 --batch 2 --text " + text_ + " ";
};

TEST_F(Judged, AnotherRunsBestHasTheWayBackThatItsCheckpointHas) {
    const std::string keep = train_ + "--quiet --keep-best --validate-every 2 --checkpoint " + mine_;
    ASSERT_EQ(run(keep + " --steps 2").status, 0);
    const std::string before = read_file(best_ + "/model.safetensors");
    const std::string line = "mantissa: " + best_ +
                             " holds a checkpoint of another run; the first save moves it to " + best_ +
                             ".previous, the second replaces it there\n";
    const Ran other = run(keep + " --steps 2 --seed 5");
    ASSERT_EQ(other.status, 0) << other.output;
    EXPECT_TRUE(says(other, line)) << other.output;
    EXPECT_TRUE(read_file(best_ + ".previous/model.safetensors") == before);
    // The run's own best goes once a better one is saved, and so nothing is said of it.
    const Ran more = run("train --quiet --steps 8 --resume " + mine_);
    ASSERT_EQ(more.status, 0) << more.output;
    EXPECT_FALSE(says(more, "another run")) << more.output;
    EXPECT_FALSE(fs::exists(best_ + ".previous"));
    // A checkpoint that this run does not remember is another run's, whatever it goes on from.
    const std::string elsewhere = directory_ / "other";
    fs::copy(best_, elsewhere + ".best");
    const Ran fork = run("train --quiet --steps 10 --resume " + mine_ + " --checkpoint " + elsewhere);
    EXPECT_FALSE(says(fork, "another run")) << fork.output;
    fs::remove_all(elsewhere + ".best");
    ASSERT_EQ(run(keep + "2 --steps 2").status, 0);
    fs::rename(mine_ + "2.best", elsewhere + ".best");
    EXPECT_TRUE(says(run("train --quiet --steps 10 --resume " + mine_ + " --checkpoint " + elsewhere),
                     elsewhere + ".best holds a checkpoint of another run"));
    EXPECT_TRUE(says(run(train_ + "--steps 1 --checkpoint " + mine_),
                     "mantissa: " + best_ +
                         " is the best checkpoint of another run, and stays: without "
                         "--keep-best this one keeps none\n"));
}

TEST_F(Judged, TheLowestLossIsOfTheDataThatWasJudged) {
    const std::string keep =
        train_ + "--quiet --keep-best --patience 2 --validate-every 2 --learning-rate 0.01 --checkpoint " +
        mine_;
    ASSERT_EQ(run(keep + " --steps 4 --validation " + easy_).status, 0);
    const json first = state_of(mine_)["validations"];
    ASSERT_TRUE(first["best_loss"].is_number());
    // The same sequences in other batches are the same data.
    const Ran same = run("train --quiet --steps 6 --batch 3 --resume " + mine_);
    ASSERT_EQ(same.status, 0) << same.output;
    EXPECT_FALSE(says(same, "looked for anew")) << same.output;
    EXPECT_EQ(state_of(mine_)["validations"]["judged"], first["judged"]);
    const json easy = state_of(mine_)["validations"];
    const Ran hard = run("train --quiet --steps 12 --resume " + mine_ + " --validation " + hard_);
    ASSERT_EQ(hard.status, 0) << hard.output;
    EXPECT_TRUE(says(hard, "mantissa: warning: the lowest validation loss of " + mine_ + ", "))
        << hard.output;
    EXPECT_TRUE(says(hard, " is of other data than this run validates on: the lowest is looked for anew\n"));
    EXPECT_TRUE(says(hard, best_ + " holds a checkpoint of another validation; the first save moves it to " +
                               best_ + ".previous"))
        << hard.output;
    const json anew = state_of(mine_)["validations"];
    EXPECT_NE(anew["judged"], first["judged"]);
    EXPECT_GT(anew["best_loss"].get<double>(), easy["best_loss"].get<double>());
    EXPECT_EQ(state_of(best_)["validations"]["best_loss"], anew["best_loss"]);
    // Fewer batches of it are other data, too.
    EXPECT_TRUE(says(run("train --quiet --steps 14 --resume " + mine_ + " --validate-batches 1"),
                     "is of other data than this run validates on"));
}

TEST_F(Judged, ACheckpointThatDoesNotSayItGoesOnAsItDid) {
    ASSERT_EQ(
        run(train_ + "--quiet --sequence 8 --keep-best --validate-every 2 --steps 4 --checkpoint " + mine_)
            .status,
        0);
    json state = state_of(mine_);
    const json lowest = state["validations"]["best_loss"];
    state["validations"].erase("judged");
    state.erase("longest_sequence");
    replace_state(mine_, state);
    EXPECT_TRUE(says(run("generate --length 40 --prompt the --checkpoint " + mine_), "context (16 tokens)"));
    const Ran same = run("train --quiet --steps 5 --resume " + mine_);
    ASSERT_EQ(same.status, 0) << same.output;
    EXPECT_FALSE(says(same, "anew") || says(same, "another")) << same.output;
    EXPECT_EQ(state_of(mine_)["validations"]["best_loss"], lowest);
    EXPECT_NE(state_of(mine_)["validations"]["judged"], "");
    EXPECT_FALSE(state_of(mine_).contains("longest_sequence"));
    replace_state(mine_, state);
    EXPECT_TRUE(says(run("train --quiet --steps 6 --resume " + mine_ + " --validation " + hard_),
                     "does not say which data it is of, and data are given anew"));
}

TEST_F(Judged, ALossThatIsNoNumberIsNoSuccess) {
    const std::string wild = directory_ / "wild";
    ASSERT_EQ(
        run(train_ + "--quiet --learning-rate 300 --warmup 0 --clip 0 --steps 2 --checkpoint " + wild).status,
        0);
    const std::string judge = "train --quiet --batch 2 --text " + text_ + " --from " + wild +
                              " --learning-rate 0 --steps 4 --validate-every 2 --bad-steps 0 ";
    const Ran single = run(judge + "--policy fp32");
    EXPECT_EQ(single.status, 0) << single.output;
    const Ran half = run(judge + "--policy fp16 --keep-best --patience 2 --checkpoint " + mine_);
    EXPECT_EQ(half.status, 1) << half.output;
    const std::string why =
        "step 1: the validation loss is nan under fp16, in batch 1 of 10: a number left the range of its "
        "formats, or the parameters are damaged or diverged in training; --policy fp32 tells which";
    EXPECT_TRUE(says(half, "mantissa: warning: " + why + "\n")) << half.output;
    EXPECT_TRUE(
        says(half, "stopped early: 2 validations in a row had no loss that is a number (--patience 2)\n"))
        << half.output;
    EXPECT_EQ(
        last_line(half.output),
        "mantissa: 2 of 2 validations had no loss that is a number, and --keep-best kept none of them; " +
            why);
    EXPECT_TRUE(fs::exists(mine_ + "/state.json"));
    EXPECT_FALSE(fs::exists(best_));
}

TEST_F(Judged, ScoresThatAreNoNumbersAreNoSuccess) {
    const Ran ran = run("train --images " + testing::pictures +
                        " --model ResNet20 --width 2 --batch 8 --policy fp32 --learning-rate 1e30 --warmup 0 "
                        "--clip 0 --steps 2 --bad-steps 0 --validate-every 2 --quiet --checkpoint " +
                        mine_);
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_TRUE(says(ran,
                     "step 1: the validation loss is nan under fp32, of 2 of 2 images: the parameters are "
                     "damaged, or diverged in training\n"))
        << ran.output;
    const Ran predicted =
        run("predict --quiet --policy fp32 --checkpoint " + mine_ + " " + testing::pictures);
    EXPECT_EQ(predicted.status, 1) << predicted.output;
    EXPECT_TRUE(says(predicted,
                     "mantissa: the scores of 30 of 30 images are no numbers under fp32: the parameters are "
                     "damaged, or diverged in training\n"))
        << predicted.output;
}

TEST_F(Judged, NothingIsPredictedBeyondWhatWasTrained) {
    const std::string ends = "; ended by context (8 tokens)";
    for (const char* model : {"--model gpt2-tiny --layers 1 --heads 2 --channels 16",
                              "--model llama-tiny --layers 1 --heads 2 --channels 16"}) {
        const std::string place = directory_ / ("of" + std::string(model).substr(8, 4));
        const std::string report = directory_ / "train.json", used = directory_ / "used.json";
        const Ran ran =
            run("train --policy fp32 --context 32 --sequence 8 --batch 2 --vocabulary 256 --text " + text_ +
                " --steps 4 --validate-every 4 --validation " + hard_ + " --json " + report +
                " --checkpoint " + place + " " + model);
        ASSERT_EQ(ran.status, 0) << ran.output;
        EXPECT_TRUE(says(ran,
                         "mantissa: no sequence is longer than 8 tokens, of a context of 32: generate stays "
                         "within 8; a longer --sequence trains more\n"))
            << ran.output;
        EXPECT_EQ(state_of(place)["longest_sequence"], 8);
        const Ran written = run("generate --policy fp32 --prompt the --checkpoint " + place);
        EXPECT_TRUE(says(
            written,
            place + ": was trained on sequences of 8 tokens, of a context of 32: texts stay within them\n"))
            << written.output;
        EXPECT_TRUE(says(written, ends)) << written.output;
        EXPECT_TRUE(says(run("generate --prompt 'the cat sat on' --checkpoint " + place),
                         " was trained on sequences of 8; give a shorter prompt\n"));
        // And so `generate` judges as `train` did.
        ASSERT_EQ(
            run("generate --policy fp32 --validation " + hard_ + " --checkpoint " + place + " --json " + used)
                .status,
            0);
        EXPECT_NEAR(json::parse(read_file(used))["validation"][0]["loss"].get<double>(),
                    json::parse(read_file(report))["validation"][0]["loss"].get<double>(), 1e-5);
        // Who goes on with longer sequences trains them; who goes on with shorter ones forgets none.
        for (const auto& [sequence, longest] : {std::pair{"16", 16}, {"4", 8}}) {
            const std::string next = place + sequence;
            ASSERT_EQ(run("train --quiet --from " + place + " --text " + text_ +
                          " --steps 1 --batch 2 --sequence " + sequence + " --checkpoint " + next)
                          .status,
                      0);
            EXPECT_EQ(state_of(next)["longest_sequence"], longest);
        }
        ASSERT_EQ(run("train --quiet --steps 5 --sequence 32 --resume " + place).status, 0);
        const Ran whole = run("generate --policy fp32 --length 100 --prompt the --checkpoint " + place);
        EXPECT_TRUE(says(whole, "; ended by context (32 tokens)")) << whole.output;
        EXPECT_FALSE(says(whole, "was trained on")) << whole.output;
    }
}

TEST_F(Judged, AWindowThatWasTrainedIsTheSameAnywhere) {
    // mistral-tiny sees 64 tokens, whatever the context.
    const Ran ran =
        run("train --model mistral-tiny --layers 1 --steps 1 --batch 1 --sequence 64 --text " + text_);
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_FALSE(says(ran, "generate stays")) << ran.output;
    EXPECT_TRUE(
        says(run("train --model mistral-tiny --layers 1 --steps 1 --batch 1 --sequence 32 --text " + text_),
             "no sequence is longer than 32 tokens, of a context of 256"));
}

TEST_F(Judged, TrainedWeightsHaveALowRateUnlessAnotherIsGiven) {
    ASSERT_EQ(run(train_ + "--quiet --steps 1 --checkpoint " + mine_).status, 0);
    const std::string tune = "train --policy fp32 --batch 2 --warmup 0 --text " + text_ + " --from " + mine_;
    const std::string next = directory_ / "next";
    const Ran low = run(tune + " --steps 2 --checkpoint " + next);
    EXPECT_TRUE(says(low, "mantissa: the learning rate is 2e-05, since the weights of " + mine_ +
                              " are trained; --learning-rate gives another\n"))
        << low.output;
    EXPECT_TRUE(says(low, "| lr 2.0000e-05 |")) << low.output;
    EXPECT_TRUE(says(run("train --steps 3 --resume " + next), "| lr 2.0000e-05 |"));
    const Ran adapters = run(tune + " --steps 1 --lora 2");
    EXPECT_TRUE(
        says(adapters, "mantissa: the learning rate is 0.0002, since adapters beside the weights of "))
        << adapters.output;
    EXPECT_TRUE(says(adapters, "| lr 2.0000e-04 |")) << adapters.output;
    const Ran given = run(tune + " --steps 1 --learning-rate 0.001");
    EXPECT_FALSE(says(given, "since the weights")) << given.output;
    EXPECT_TRUE(says(given, "| lr 1.0000e-03 |")) << given.output;
    // The default warm-up, too, is remarked on where the run ends within it.
    EXPECT_TRUE(
        says(run(train_ + "--steps 1"),
             "mantissa: --warmup 20: the run ends at step 1, before the learning rate has risen to 0.001\n"));
}

TEST_F(Judged, ACheckpointIsSharedWithoutItsOptimizer) {
    ASSERT_EQ(run(train_ + "--quiet --steps 1 --checkpoint " + mine_).status, 0);
    const std::string write = "generate --quiet --policy fp32 --length 8 --prompt the --checkpoint " + mine_;
    const Ran whole = run(write);
    fs::remove(mine_ + "/optimizer.safetensors");
    const Ran shared = run(write);
    EXPECT_EQ(shared.status, 0) << shared.output;
    EXPECT_EQ(shared.output, whole.output);
    EXPECT_EQ(run("train --quiet --steps 1 --batch 2 --text " + text_ + " --from " + mine_).status, 0);
    EXPECT_EQ(last_line(run("train --steps 2 --resume " + mine_).output),
              "mantissa: " + mine_ +
                  ": optimizer.safetensors is missing, without which no run goes on; the weights are there: "
                  "they can be used, and --from begins another run with them");
}

}  // namespace
}  // namespace mantissa
