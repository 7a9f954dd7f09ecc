// The views of `train` while it goes on: a trace, event files, a page.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/support/event_file.h"
#include "tests/support/html_page.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trace_file.h"

namespace mantissa {
namespace {

using testing::event_file_in;
using testing::events_of;
using testing::last_line;
using testing::Message;
using testing::Ran;
using testing::run;
using testing::values_of;

const std::string train_on_little = "train --batch 1 --sequence 16 ";

std::string traced_step(const nlohmann::json& trace) {
    for (const nlohmann::json& event : trace["traceEvents"])
        if (event["ph"] == "X" && event["tid"] == track_named(trace, "step")) return event["name"];
    return "";
}

TEST(TrainViews, TheTraceIsOfTheFourthStepOrTheLast) {
    const TemporaryDirectory directory;
    const std::string file = directory / "trace.json";
    for (const auto& [steps, traced] : {std::pair{"1", "step 0"}, {"3", "step 2"}, {"6", "step 3"}}) {
        const Ran ran = run(train_on_little + "--threads 2 --profile --steps " + steps + " --trace " + file);
        EXPECT_EQ(ran.status, 0) << ran.output;
        const auto trace = nlohmann::json::parse(read_file(file));
        EXPECT_EQ(fault_of_trace(trace), "");
        EXPECT_EQ(traced_step(trace), traced);
        EXPECT_GT(track_named(trace, "launches"), 0);
        EXPECT_GT(track_named(trace, "thread 0"), 0);
        EXPECT_NE(ran.output.find("the last step:\noperation"), std::string::npos) << ran.output;
    }
}

TEST(TrainViews, EventFilesHoldWhatWasPrinted) {
    const TemporaryDirectory directory;
    const std::string place = directory / "runs" / "one", report = directory / "report.json";
    const Ran ran = run(train_on_little +
                        "--policy fp16 --loss-scale 1024 --steps 5 --validate-every 5 --validate-batches 2 "
                        "--sample-every 5 --histogram-every 3 --tensorboard " +
                        place + " --trace " + std::string(directory / "t.json") + " --json " + report);
    ASSERT_EQ(ran.status, 0) << ran.output;
    const auto steps = nlohmann::json::parse(read_file(report))["steps"];
    const std::vector<Message> events = events_of(event_file_in(place));
    ASSERT_EQ(events.size(), 2 + steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const Message& event = events[2 + i];
        EXPECT_EQ(event.as<std::int64_t>(2), static_cast<std::int64_t>(i));
        for (const auto& [tag, member] : {std::pair{"loss/training", "loss"},
                                          {"optimizer/learning_rate", "learning_rate"},
                                          {"optimizer/gradient_norm", "gradient_norm"},
                                          {"optimizer/loss_scale", "loss_scale"},
                                          {"speed/tokens_per_second", "tokens_per_second"},
                                          {"speed/mfu", "mfu"}})
            EXPECT_EQ(values_of(event, tag).at(0).as<float>(2), steps[i][member].get<float>()) << tag;
        EXPECT_EQ(values_of(event, "loss/validation").size(), i == 4 ? 1u : 0u);
        EXPECT_EQ(values_of(event, "sample").size(), i == 4 ? 1u : 0u);
        // Histograms of steps 0 and 3; but step 3 is traced, so the one after it is looked into.
        EXPECT_EQ(values_of(event, "gradients/wte.weight").size(), i == 0 || i == 4 ? 1u : 0u) << i;
    }
    EXPECT_EQ(values_of(events.back(), "loss/validation")[0].as<float>(2),
              steps[4]["validation_loss"].get<float>());
}

TEST(TrainViews, HistogramsAreOfTheGradientsWhoseNormIsPrinted) {
    const TemporaryDirectory directory;
    for (const std::string how : {"--policy fp32", "--policy fp32 --accumulate 3", "--policy fp16"}) {
        const std::string place = directory / how.substr(9), report = directory / "report.json";
        const Ran ran = run(train_on_little + how + " --steps 1 --profile --tensorboard '" + place +
                            "' --json " + report);
        ASSERT_EQ(ran.status, 0) << ran.output;
        const Message summary = events_of(event_file_in(place)).back().message(5);
        double squares = 0, numbers = 0;
        for (const std::string& bytes : summary.all(1)) {
            const Message value(bytes);
            if (value.bytes(1).rfind("gradients/", 0) != 0) continue;
            squares += value.message(5).as<double>(5);
            numbers += value.message(5).as<double>(3);
        }
        EXPECT_EQ(numbers, 891648) << how;  // all parameters
        const double norm = nlohmann::json::parse(read_file(report))["steps"][0]["gradient_norm"];
        EXPECT_NEAR(std::sqrt(squares), norm, 1e-4 * norm) << how;
    }
}

TEST(TrainViews, ARunThatGoesOnSaysFromWhere) {
    const TemporaryDirectory directory;
    const std::string checkpoint = directory / "ck", place = directory / "tb";
    ASSERT_EQ(run(train_on_little + "--steps 2 --checkpoint " + checkpoint).status, 0);
    const Ran ran = run(train_on_little + "--steps 4 --resume " + checkpoint + " --html " +
                        std::string(directory / "page.html") + " --tensorboard " + place);
    ASSERT_EQ(ran.status, 0) << ran.output;
    const std::vector<Message> events = events_of(event_file_in(place));
    ASSERT_EQ(events.size(), 4u);
    EXPECT_EQ(events[1].as<std::int64_t>(2), 2);
    EXPECT_EQ(events[2].as<std::int64_t>(2), 2);
    const std::string page = read_file(directory / "page.html");
    EXPECT_NE(page.find("<title>loss, step 3: "), std::string::npos);
    EXPECT_EQ(page.find("<title>loss, step 1: "), std::string::npos);
}

TEST(TrainViews, ThePageShowsTheRun) {
    const TemporaryDirectory directory;
    const std::string file = directory / "page.html";
    const Ran ran = run(train_on_little +
                        "--steps 3 --validate-every 3 --validate-batches 1 --sample-every 3 "
                        "--html " +
                        file);
    ASSERT_EQ(ran.status, 0) << ran.output;
    const std::string page = read_file(file);
    EXPECT_EQ(fault_of_page(page), "");
    for (const char* part :
         {"Training gpt2-tiny", "3 of 3 steps are done", "the run has ended",
          "loss, step 2: ", "validation loss, step 2: ", "gradient norm, step 0: ", "<h2>Samples</h2>",
          "after step 2", "gpt2-tiny, 891,648 parameters", "--validate-batches 1"})
        EXPECT_NE(page.find(part), std::string::npos) << part;
    // While a run goes on, the page is there from its first step.
    const Ran cut = testing::run_in_shell("(" MANTISSA_BINARY_DIR "/mantissa " + train_on_little +
                                          "--steps 100000000 --html " + file + ".2 > /dev/null & run=$!; " +
                                          "until [ -s " + file + ".2 ]; do sleep 0.1; done; cp " + file +
                                          ".2 " + file + ".3; kill -INT $run; wait $run)");
    EXPECT_NE(read_file(file + ".3").find("http-equiv='refresh'"), std::string::npos) << cut.output;
    EXPECT_NE(read_file(file + ".2").find("the run has ended"), std::string::npos) << cut.output;
}

TEST(TrainViews, PlacesThatCannotBeWrittenAreOneLineBeforeTheRun) {
    const TemporaryDirectory directory;
    const std::string file = directory / "file", none = directory / "none";
    std::ofstream(file) << "x";
    for (const auto& [options, line] :
         {std::pair{"--trace " + none + "/t.json", "--trace " + none + "/t.json: there is no folder " + none},
          {"--html " + none + "/p.html", "--html " + none + "/p.html: there is no folder " + none},
          {"--tensorboard " + file,
           "--tensorboard '" + file + "': " + file + " is no folder; name one for the event files"},
          {"--tensorboard " + none + " --histogram-every -1",
           std::string("--histogram-every must be 0 (never) or more steps, got -1")}}) {
        const Ran ran = run(train_on_little + "--steps 1 " + options);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_EQ(ran.output, "mantissa: " + line + "\n");
    }
    const Ran ran = run(train_on_little + "--steps 1 --histogram-every 5");
    EXPECT_NE(ran.output.find("--histogram-every requires --tensorboard"), std::string::npos) << ran.output;
    EXPECT_EQ(ran.status, 2);
}

TEST(TrainViews, EventFilesOnAFullDiskLoseNoStep) {
    const SmallDisk disk(32 << 10);
    if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
    const TemporaryDirectory directory;
    const std::string place = directory / "ck";
    const Ran ran = run(train_on_little + "--steps 4 --tensorboard " + std::string(disk.path()) +
                        " --checkpoint " + place);
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_NE(last_line(ran.output).find(": cannot be written: No space left on device"), std::string::npos)
        << ran.output;
    EXPECT_NE(ran.output.find("saved " + place + " after step 3"), std::string::npos) << ran.output;
}

TEST(TrainViews, APageThatCannotBeWrittenLosesNoStep) {
    const TemporaryDirectory directory;
    const std::string place = directory / "ck";
    const Ran ran = run(train_on_little + "--steps 2 --html /dev/full --checkpoint " + place);
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_NE(ran.output.find("saved " + place + " after step 1"), std::string::npos) << ran.output;
    EXPECT_EQ(last_line(ran.output), "mantissa: /dev/full: cannot be written") << ran.output;
}

}  // namespace
}  // namespace mantissa
