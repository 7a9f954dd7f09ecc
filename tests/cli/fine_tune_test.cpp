// `train --images --from`: a network that goes on learning, of other classes, with its trunk frozen or not;
// averaged weights; the best checkpoint, and a run that stops when nothing gets better.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "mantissa/base/file.h"
#include "mantissa/formats/safetensors.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::last_line;
using testing::pictures;
using testing::Ran;
using testing::run;

std::vector<std::byte> bytes_in(const std::string& file, const std::string& name) {
    const SafetensorsFile opened(file);
    for (const TensorView& view : opened.views())
        if (view.name == name) return {view.data, view.data + byte_count(view.dtype, view.shape)};
    ADD_FAILURE() << file << " has no " << name;
    return {};
}

class FineTune : public ::testing::Test {
  protected:
    /// The network of three colours.
    void SetUp() override {
        const Ran ran = run(
            "train --images " + pictures +
            " --model ResNet20 --width 4 --batch 8 --steps 12 --policy fp32 --quiet --checkpoint " + three_);
        ASSERT_EQ(ran.status, 0) << ran.output;
        for (const char* colour : {"blue", "red"})
            fs::copy(pictures + "/" + colour, two_ + "/" + colour, fs::copy_options::recursive);
    }
    void TearDown() override {}
    FineTune() { fs::create_directories(two_); }

    static double accuracy_of(const Ran& ran) {
        std::smatch found;
        EXPECT_TRUE(std::regex_search(ran.output, found, std::regex("top-1 ([0-9.]+) %"))) << ran.output;
        return found.empty() ? -1 : std::stod(found[1]);
    }

    const TemporaryDirectory directory_;
    const std::string three_ = (directory_ / "three").string(), two_ = (directory_ / "two").string(),
                      mine_ = (directory_ / "mine").string();
};

TEST_F(FineTune, OfOtherClassesFrozenAndNot) {
    for (const std::string freeze : {"", " --freeze trunk"}) {
        const Ran ran =
            run("train --images " + two_ + " --from " + three_ + freeze +
                " --batch 5 --steps 40 --policy fp32 --learning-rate 0.02 --quiet --checkpoint " + mine_);
        ASSERT_EQ(ran.status, 0) << ran.output;
        EXPECT_NE(
            ran.output.find("begun with the weights of " + three_ +
                            "; the head for 2 classes, fc.bias and fc.weight, is made anew: that network "
                            "tells 3 apart\n"),
            std::string::npos)
            << ran.output;
        const bool is_frozen = !freeze.empty();
        EXPECT_EQ(ran.output.find(" frozen), 5 images a step") != std::string::npos, is_frozen) << ran.output;
        for (const char* weight : {"conv1.weight", "bn1.running_mean"})
            EXPECT_EQ(bytes_in(mine_ + "/model.safetensors", weight) ==
                          bytes_in(three_ + "/model.safetensors", weight),
                      is_frozen)
                << weight;
        const Ran predicted = run("predict --checkpoint " + mine_ + " --policy fp32 --quiet " + two_);
        EXPECT_EQ(predicted.status, 0) << predicted.output;
        EXPECT_GE(accuracy_of(predicted), 95) << freeze;
        // The checkpoint that it was begun with is not needed any more.
        fs::rename(three_, three_ + ".away");
        const Ran resumed = run("train --resume " + mine_ + " --steps 41 --quiet");
        EXPECT_EQ(resumed.status, 0) << resumed.output;
        EXPECT_EQ(resumed.output.find(" frozen), 5 images a step") != std::string::npos, is_frozen);
        EXPECT_EQ(resumed.output.find("warning"), std::string::npos) << resumed.output;
        fs::rename(three_ + ".away", three_);
    }
}

TEST_F(FineTune, OfTheSameClassesKeepsTheHeadAndReadsImagesAsBefore) {
    const std::string train = "train --images " + pictures + " --from ",
                      rest = " --batch 8 --steps 1 --policy fp32 ";
    const Ran same = run(train + three_ + rest);
    ASSERT_EQ(same.status, 0) << same.output;
    EXPECT_NE(same.output.find("begun with the weights of " + three_ + "\n"), std::string::npos)
        << same.output;
    const std::string named = (directory_ / "named").string();
    fs::copy(pictures, named, fs::copy_options::recursive);
    fs::rename(named + "/blue", named + "/azure");
    const Ran other = run("train --images " + named + " --from " + three_ + rest);
    EXPECT_NE(other.output.find("is made anew: those of that network have other names"), std::string::npos)
        << other.output;
    // A file under torchvision's names does not say which network it is of.
    const std::string file = three_ + "/model.safetensors";
    const Ran of_file = run(train + file + " --model ResNet20 --width 4" + rest);
    EXPECT_NE(of_file.output.find("begun with the weights of " + file + "\n"), std::string::npos)
        << of_file.output;
    const Ran two = run("train --images " + two_ + " --from " + file + " --model ResNet20 --width 4" + rest);
    EXPECT_NE(two.output.find("is made anew: the file has none, or one for other classes"), std::string::npos)
        << two.output;
}

TEST_F(FineTune, AResumeIsHeldAgainstClassesAndContents) {
    const std::string named = (directory_ / "named").string(),
                      resume = "train --quiet --steps 13 --resume " + three_ + " --checkpoint " + mine_;
    fs::copy(pictures, named, fs::copy_options::recursive);
    const Ran same = run(resume + " --images " + named);
    EXPECT_EQ(same.output.find("warning"), std::string::npos) << same.output;
    const fs::path picture = fs::directory_iterator(named + "/blue")->path();
    std::string bytes = read_file(picture);
    bytes.back() ^= 1;
    testing::write_file(picture, bytes);
    const Ran other =
        run("train --quiet --steps 13 --resume " + three_ + " --checkpoint " + mine_ + "2 --images " + named);
    EXPECT_EQ(other.status, 0) << other.output;
    EXPECT_NE(other.output.find("/state.json: it was trained with contents = \"..., checksum "),
              std::string::npos)
        << other.output;
    EXPECT_EQ(other.output.find("pictures = "), std::string::npos) << other.output;
    fs::rename(named + "/blue", named + "/azure");
    const Ran refused = run(resume + "3 --images " + named);
    EXPECT_EQ(refused.output, "mantissa: --resume " + three_ + ": it tells blue,green,red apart, and " +
                                  named +
                                  " has azure,green,red; give images of the same classes, or begin another "
                                  "run by --from " +
                                  three_ + "\n");
}

TEST_F(FineTune, WhatDoesNotFitIsRefusedInALine) {
    const std::string train = "train --images " + two_ + " --batch 4 --steps 1 --quiet --from ";
    const std::string file = three_ + "/model.safetensors";
    // Refusals of the command line alone, or of it and the files.
    const auto refusal = [](const std::string& command) {
        const Ran ran = run(command);
        EXPECT_TRUE(ran.status == 1 || ran.status == 2) << command << "\n" << ran.output;
        return last_line(ran.output);
    };
    EXPECT_EQ(refusal(train + three_ + " --model ResNet20"),
              "mantissa: --from takes model and weights from files: give it without --model");
    EXPECT_EQ(refusal(train + three_ + " --width 4"),
              "mantissa: --from takes model and weights from files: give it without --width");
    EXPECT_EQ(
        refusal(train + file),
        "mantissa: --from " + file +
            ": with --images it is a checkpoint of such a run, or a safetensors file and --model, which of "
            "ResNet50, ResNet50v1.5, VGG19, DenseNet121, ResNet20, ResNet56 it is of");
    EXPECT_EQ(refusal(train + "nowhere.ckpt"), "mantissa: nowhere.ckpt: does not exist");
    const std::string unlike = refusal(train + file + " --model ResNet20 --width 8");
    EXPECT_TRUE(unlike.starts_with("mantissa: " + file + ": ")) << unlike;
    EXPECT_NE(
        unlike.find(" tensors do not fit: \"conv1.weight\" has shape [4, 3, 3, 3], expected [8, 3, 3, 3]"),
        std::string::npos)
        << unlike;
    const std::string frozen = refusal(train + three_ + " --freeze 'fcc.*'");
    EXPECT_TRUE(
        frozen.starts_with("mantissa: model ResNet20 has no weight that 'fcc.*' names, to be frozen; it "
                           "has conv1.weight, bn1.weight, bn1.bias, "))
        << frozen;
    EXPECT_EQ(refusal("train --freeze trunk"),
              "mantissa: --freeze trunk is all of a network for images but what follows its classes; give "
              "patterns of names for another model");
    EXPECT_EQ(refusal("train --ema 1"), "mantissa: --ema must be 0 (none), or above 0 and below 1, got 1");
    EXPECT_EQ(refusal("train --patience 2"),
              "mantissa: --patience belongs to validations; give --validate-every, too");
    EXPECT_EQ(refusal("train --validate-every 2 --patience -1"),
              "mantissa: --patience must be 0 (any number) or more validations, got -1");
    EXPECT_EQ(refusal("train --validate-every 2 --keep-best"),
              "mantissa: --keep-best keeps a checkpoint beside that of --checkpoint DIR: give that, too");
}

TEST_F(FineTune, TheBestCheckpointIsKeptAndPatienceEndsTheRun) {
    // A rate at which the loss climbs after the first steps.
    const std::string train =
        "train --images " + pictures +
        " --model ResNet20 --width 4 --batch 8 --policy fp32 --quiet --validate-every 2 "
        "--keep-best --patience 3 --learning-rate 0.01 --json ";
    const std::string report = (directory_ / "r.json").string();
    const Ran ran = run(train + report + " --steps 400 --checkpoint " + mine_);
    ASSERT_EQ(ran.status, 0) << ran.output;
    const json said = json::parse(read_file(report));
    double best = INFINITY;
    int best_step = -1, last = 0, since = 0;
    for (const json& step : said["steps"]) {
        last = step["step"];
        if (!step.contains("validation_loss")) continue;
        const double loss =
            step["validation_loss"].is_null() ? INFINITY : step["validation_loss"].get<double>();
        ++since;
        if (loss < best) best = loss, best_step = last, since = 0;
    }
    ASSERT_EQ(since, 3) << ran.output;  // and so it ended
    EXPECT_LT(last, 399);
    EXPECT_NE(ran.output.find("stopped early: 3 validations in a row brought no lower loss than "),
              std::string::npos)
        << ran.output;
    EXPECT_NE(ran.output.find("the best checkpoint, with the validation loss "), std::string::npos);
    const json kept = json::parse(read_file(mine_ + ".best/state.json"));
    EXPECT_EQ(kept["step"], best_step + 1);
    EXPECT_NEAR(kept["validations"]["best_loss"].get<double>(), best, 1e-6 * best);
    EXPECT_FALSE(fs::exists(mine_ + ".best.previous"));
    EXPECT_EQ(json::parse(read_file(mine_ + "/state.json"))["step"], last + 1);
    // Both predict, and a resumed run knows how long it has waited.
    for (const std::string& place : {mine_, mine_ + ".best"})
        EXPECT_EQ(run("predict --quiet --checkpoint " + place + " " + pictures).status, 0);
    const Ran resumed = run("train --resume " + mine_);
    EXPECT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_NE(resumed.output.find("stopped early: 3 validations in a row"), std::string::npos)
        << resumed.output;
    const Ran patient = run("train --quiet --patience 4 --resume " + mine_);
    EXPECT_EQ(patient.status, 0) << patient.output;
    EXPECT_NE(patient.output.find("stopped early: 4 validations in a row"), std::string::npos)
        << patient.output;
    const Ran there = run("train --quiet --resume " + mine_ + ".best");
    EXPECT_EQ(last_line(there.output), "mantissa: --checkpoint " + mine_ +
                                           ".best: that is where the best checkpoint of " + mine_ +
                                           " is kept; name another place");
}

TEST_F(FineTune, AveragesAreValidatedSavedAndResumed) {
    const std::string train =
        "train --images " + pictures +
        " --model ResNet20 --width 4 --batch 8 --policy fp32 --validate-every 6 --ema 0.7 ";
    const Ran straight = run(train + "--steps 12 --checkpoint " + mine_);
    ASSERT_EQ(straight.status, 0) << straight.output;
    const std::string half = (directory_ / "half").string();
    ASSERT_EQ(run(train + "--steps 6 --quiet --checkpoint " + half).status, 0);
    ASSERT_EQ(run("train --quiet --steps 12 --resume " + half).status, 0);
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
        EXPECT_TRUE(read_file(mine_ + file) == read_file(half + file)) << file;
    EXPECT_FALSE(bytes_in(mine_ + "/optimizer.safetensors", "raw.fc.weight") ==
                 bytes_in(mine_ + "/model.safetensors", "fc.weight"));
    // The weights that were validated are those that predict.
    std::smatch found;
    ASSERT_TRUE(
        std::regex_search(straight.output, found, std::regex("step    11 \\| validation loss ([0-9.]+)")))
        << straight.output;
    const std::string report = (directory_ / "p.json").string();
    ASSERT_EQ(
        run("predict --quiet --policy fp32 --json " + report + " --checkpoint " + mine_ + " " + pictures)
            .status,
        0);
    EXPECT_GT(json::parse(read_file(report))["scores"]["loss"].get<double>(), 0);
}

TEST(Freeze, OfAModelOfText) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string();
    const std::string train =
        "train --layers 2 --channels 16 --heads 2 --context 16 --vocabulary 256 --batch 2 "
        "--policy fp32 --quiet --checkpoint " +
        place;
    ASSERT_EQ(run(train + " --steps 1").status, 0);
    const std::string file = place + "/model.safetensors";
    const auto first = bytes_in(file, "h.0.mlp.c_fc.weight"), second = bytes_in(file, "h.1.mlp.c_fc.weight");
    const Ran ran =
        run("train --quiet --batch 2 --policy fp32 --steps 2 --freeze 'wte.*,h.0.*' --ema 0.5 --from " +
            place + " --checkpoint " + (directory / "more").string());
    ASSERT_EQ(ran.status, 0) << ran.output;
    const std::string more = (directory / "more" / "model.safetensors").string();
    EXPECT_TRUE(bytes_in(more, "h.0.mlp.c_fc.weight") == first);
    EXPECT_FALSE(bytes_in(more, "h.1.mlp.c_fc.weight") == second);
}

}  // namespace
}  // namespace mantissa
