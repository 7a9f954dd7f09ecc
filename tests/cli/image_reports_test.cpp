// Reports on a network for images that was trained here: each takes its checkpoint by --from.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using nlohmann::json;
using testing::last_line;
using testing::pictures;
using testing::Ran;
using testing::run;

class ImageReports : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        directory_ = new TemporaryDirectory;
        checkpoint() = (*directory_ / "run").string();
        const Ran ran =
            run("train --images " + pictures +
                " --model ResNet20 --width 4 --batch 8 --steps 30 --policy fp32 --quiet --checkpoint " +
                checkpoint());
        ASSERT_EQ(ran.status, 0) << ran.output;
    }
    static void TearDownTestSuite() {
        delete directory_;
        directory_ = nullptr;
    }
    static std::string& checkpoint() {
        static std::string place;
        return place;
    }
    static std::string from() { return " --from " + checkpoint() + " --quiet "; }

    json report_of(const std::string& command) {
        const std::string file = (*directory_ / "report.json").string();
        const Ran ran = run(command + " --json " + file);
        EXPECT_EQ(ran.status, 0) << command << "\n" << ran.output;
        return json::parse(read_file(file));
    }

    static inline TemporaryDirectory* directory_ = nullptr;
};

TEST_F(ImageReports, ExplainShowsItsStep) {
    const json report = report_of("explain --batch 2 --policy fp32" + from());
    EXPECT_EQ(report["model"], "ResNet20");
    // As many as ResNet20 of width 4 has for three classes.
    const json drawn =
        report_of("explain --batch 2 --policy fp32 --model ResNet20 --width 4 --classes 3 --quiet");
    EXPECT_EQ(report["memory"], drawn["memory"]);
    EXPECT_EQ(last_line(run("explain --width 8" + from()).output),
              "mantissa: --from takes model and weights from files: give it without --width");
    EXPECT_EQ(last_line(run("explain --classes 4" + from()).output),
              "mantissa: --from takes model and weights from files: give it without --classes");
}

TEST_F(ImageReports, LintLooksAtItsSizes) {
    const json report = report_of("lint --no-measure --batch 2" + from());
    EXPECT_EQ(report["model"], "ResNet20");
    ASSERT_FALSE(report["findings"].empty());
    EXPECT_EQ(report["findings"][0]["size"], "classes");
    EXPECT_EQ(report["findings"][0]["is"], 3);  // classes, of the ten that ResNet20 has as published
}

TEST_F(ImageReports, NumericsBeginsWithItsWeightsOnItsImages) {
    const std::string numerics = "numerics --steps 2 --batch 8 --learning-rate 1e-6";
    const auto first_loss = [&](const std::string& rest) {
        return report_of(numerics + rest)["losses"][0].get<double>();
    };
    const double trained = first_loss(" --images " + pictures + from());
    const double drawn = first_loss(" --images " + pictures + " --model ResNet20 --width 4 --quiet");
    EXPECT_LT(trained, 0.3 * drawn);
    // On synthetic images it is another network than a drawn one, too.
    EXPECT_NE(first_loss(from()), first_loss(" --model ResNet20 --width 4 --classes 3 --quiet"));
}

TEST_F(ImageReports, ConvergeBeginsWithItsWeights) {
    const json report =
        report_of("numerics converge --images " + pictures +
                  " --batch 8 --steps 2 --policies fp32,tf32 --tolerance 1 --learning-rate 1e-6" + from());
    ASSERT_EQ(report["runs"].size(), 2U);
    for (const json& each : report["runs"]) EXPECT_LT(each["losses"][0].get<double>(), 0.3);
    EXPECT_EQ(report["spread"]["seeds"].size(), 1U);
}

TEST_F(ImageReports, LadderBeginsWithItsWeights) {
    const std::string ladder = "ladder --batch 2 --steps 2 --repeats 1 --rungs fp32,compiled";
    const json report = report_of(ladder + from());
    const json drawn = report_of(ladder + " --model ResNet20 --width 4 --classes 3 --quiet");
    ASSERT_EQ(report["rungs"].size(), 2U);
    EXPECT_EQ(report["model"]["parameters"], drawn["model"]["parameters"]);
    const double first = report["rungs"][0]["losses"][0];
    EXPECT_NEAR(report["rungs"][1]["losses"][0].get<double>(), first, 0.02 * first);  // the ladder's, of BF16
    EXPECT_NE(report["rungs"][0]["losses"][0], drawn["rungs"][0]["losses"][0]);
}

}  // namespace
}  // namespace mantissa
