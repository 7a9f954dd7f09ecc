// `mantissa predict`: images to classes, by a network that was trained here or by an earlier revision.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using nlohmann::json;
using testing::fixtures;
using testing::pictures;
using testing::Ran;
using testing::run;

class Predict : public ::testing::Test {
  protected:
    json report() const { return json::parse(read_file((directory_ / "report.json").string())); }
    std::string write_report() const { return " --json " + (directory_ / "report.json").string(); }

    const TemporaryDirectory directory_;
    const std::string checkpoint_ = (directory_ / "run").string();
};

TEST_F(Predict, GivesTheClassesThatTrainingSaw) {
    const Ran trained =
        run("train --images " + pictures +
            " --model ResNet20 --width 8 --batch 8 --steps 40 --policy fp32 --validate-every 40 "
            "--checkpoint " +
            checkpoint_);
    ASSERT_EQ(trained.status, 0) << trained.output;
    const Ran ran = run("predict --checkpoint " + checkpoint_ + " --policy fp32 --top 2 " + pictures +
                        write_report() + " --csv " + (directory_ / "list.csv").string());
    ASSERT_EQ(ran.status, 0) << ran.output;
    const json said = report();
    ASSERT_EQ(said["images"].size(), 30U);
    for (const json& image : said["images"]) {
        EXPECT_EQ(image["top"].size(), 2U);
        EXPECT_EQ(image["top"][0]["class"], image["folder_class"]) << image;
    }
    EXPECT_EQ(said["scores"]["top1"], 1.0);
    EXPECT_TRUE(said["scores"]["top5"].is_null());  // of three classes
    EXPECT_NE(ran.output.find("blue 100.00 %"), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("top-1 100.00 % of 30 images in folders named like classes"), std::string::npos)
        << ran.output;
    const std::string csv = read_file((directory_ / "list.csv").string());
    EXPECT_TRUE(csv.starts_with("image,folder_class,class_1,probability_1,class_2,probability_2\n" +
                                pictures + "/blue/0.png,blue,blue,"))
        << csv;
    EXPECT_EQ(std::ranges::count(csv, '\n'), 31);
}

TEST_F(Predict, ReadsACheckpointOfRevision248ad45) {
    // That revision kept no file of how images are cut, and put it into words.
    const Ran ran = run("predict --checkpoint " + fixtures + "/pictures_run --policy fp32 " + pictures +
                        "/green/3.png --quiet" + write_report());
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_EQ(report()["images"][0]["folder_class"], "green");
    EXPECT_EQ(report()["images"][0]["top"].size(), 3U);
}

TEST_F(Predict, LeavesOutWhatCannotBeDecodedAndSaysSo) {
    const std::string damaged = testing::write_file(directory_ / "damaged.png", "not an image");
    const std::string predict = "predict --checkpoint " + fixtures + "/pictures_run ";
    EXPECT_EQ(testing::last_line(run(predict + damaged).output),
              "mantissa: the image could not be decoded, so nothing was predicted");
    const std::string second = testing::write_file(directory_ / "second.png", "no image either");
    EXPECT_EQ(testing::last_line(run(predict + damaged + " " + second).output),
              "mantissa: none of the 2 images could be decoded, so nothing was predicted");
    const Ran ran = run("predict --checkpoint " + fixtures + "/pictures_run " + damaged + " " + pictures +
                        "/red/1.png" + write_report());
    EXPECT_EQ(ran.status, 1);
    EXPECT_NE(ran.output.find("warning: " + damaged + ": neither JPEG nor PNG"), std::string::npos)
        << ran.output;
    EXPECT_NE(ran.output.find("1 of 2 images could not be decoded; the others were predicted"),
              std::string::npos)
        << ran.output;
    ASSERT_EQ(report()["images"].size(), 1U);
    EXPECT_EQ(report()["damaged"].size(), 1U);
}

TEST_F(Predict, SaysWhatIsMissing) {
    const auto error_of = [](const std::string& arguments) {
        const Ran ran = run("predict " + arguments);
        EXPECT_NE(ran.status, 0);
        return ran.output;
    };
    EXPECT_EQ(error_of(pictures),
              "mantissa: --checkpoint DIR is missing: which network, trained by train --images?\n");
    EXPECT_EQ(error_of("--checkpoint " + fixtures + "/pictures_run"),
              "mantissa: predict needs an image, or a folder of them: predict --checkpoint DIR IMAGE\n");
    EXPECT_EQ(error_of("--checkpoint " + fixtures + "/text " + pictures),
              "mantissa: " + fixtures +
                  "/text: its run trained no network for images; expected the checkpoint of one that did\n");
    EXPECT_EQ(error_of("--checkpoint " + fixtures + "/pictures_run --top 0 " + pictures),
              "mantissa: --top must be 1 class or more, got 0\n");
}

}  // namespace
}  // namespace mantissa
