// The trace of a training step: a file that its readers open, in which every launch and every thread's work
// has its place.
#include "mantissa/base/function_ref.h"
#include "mantissa/report/trace_events.h"

#include <gtest/gtest.h>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/accumulate.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/trace_file.h"

namespace mantissa {
namespace {

/// One event of a track.
struct Lasting {
    double begin = 0, end = 0;
    nlohmann::json event;
};

std::vector<Lasting> track(const nlohmann::json& trace, const std::string& name) {
    std::vector<Lasting> found;
    for (const nlohmann::json& event : trace["traceEvents"]) {
        if (event["ph"] != "X" || event["tid"] != track_named(trace, name)) continue;
        const double begin = event["ts"];
        found.push_back({begin, begin + event["dur"].get<double>(), event});
    }
    return found;
}

class TraceOfAStep : public ::testing::TestWithParam<std::int64_t> {
  protected:
    TraceOfAStep() {
        Trainer trainer = gpt2_trainer(
            *device_,
            {.model = nn::gpt2_config("gpt2-tiny"), .batch = 1, .sequence = 64, .accumulate = GetParam()});
        const std::vector<std::int32_t> tokens(static_cast<std::size_t>(64 * GetParam()), 7);
        trainer.step({tokens, tokens}, 1e-4);
        TimelineRecorder recorder(*device_);
        result_ =
            trainer.step_run_by({tokens, tokens}, 1e-4, [&](Execution& each, bool) { recorder.run(each); });
        timeline_ = recorder.finish();
        trainer.step({tokens, tokens}, 1e-4);
        launches_ = trainer.plan().step().nodes().size();
        for (int index = 0; index + 1 < GetParam(); ++index)
            launches_ += trainer.plan()
                             .accumulate()[static_cast<std::size_t>(completed_levels(index))]
                             ->nodes()
                             .size();
        first_op_ = trainer.plan().step().graph().node(trainer.plan().step().nodes()[0].node).op->name;
        file_ = step_trace(timeline_, "gpt2-tiny", "step 1");
        trace_ = nlohmann::json::parse(file_);
    }

    std::unique_ptr<Device> device_ = make_cpu_device({.threads = 3});
    StepResult result_;
    Timeline timeline_;
    std::size_t launches_ = 0;
    std::string file_, first_op_;
    nlohmann::json trace_;
};

INSTANTIATE_TEST_SUITE_P(MicroBatches, TraceOfAStep, ::testing::Values(1, 3));

TEST_P(TraceOfAStep, IsATrace) {
    EXPECT_EQ(fault_of_trace(trace_), "");
    EXPECT_EQ(trace_["traceEvents"][0]["args"]["name"], "gpt2-tiny");
    const std::vector<Lasting> steps = track(trace_, "step");
    ASSERT_EQ(steps.size(), GetParam() == 1 ? 1u : 1u + static_cast<std::size_t>(GetParam()));
    EXPECT_EQ(steps[0].event["name"], "step 1");
    EXPECT_EQ(steps[0].begin, 0);
    // The step as it was timed, and what lies around it.
    EXPECT_GE(steps[0].end * 1e-6, result_.seconds * 0.99);
    for (const Lasting& each : steps) EXPECT_LE(each.end, steps[0].end);
}

TEST_P(TraceOfAStep, EveryLaunchIsThereAndNoTwoOverlap) {
    const std::vector<Lasting> launches = track(trace_, "launches");
    ASSERT_EQ(launches.size(), launches_);
    EXPECT_EQ(launches[0].event["name"].get<std::string>().rfind(first_op_ + ": ", 0), 0u);
    double end = 0;
    for (const Lasting& launch : launches) {
        EXPECT_GE(launch.begin, end - 1e-3);
        end = launch.end;
        const nlohmann::json& arguments = launch.event["args"];
        EXPECT_TRUE(arguments["scope"].is_string());
        EXPECT_GE(arguments["bytes"].get<std::int64_t>(), 0);
        if (launch.end > launch.begin) {
            EXPECT_NEAR(arguments["GFLOP/s"].get<double>(),
                        arguments["flops"].get<double>() / (launch.end - launch.begin) / 1e3,
                        1e-3 * arguments["GFLOP/s"].get<double>() + 1e-9);
        }
    }
    EXPECT_LE(end, track(trace_, "step")[0].end);
}

TEST_P(TraceOfAStep, EachThreadWorksWithinTheLaunchThatItWorksFor) {
    const std::vector<Lasting> launches = track(trace_, "launches");
    std::map<std::int64_t, std::int64_t> blocks;  // by launch
    for (const char* name : {"thread 0", "thread 1", "thread 2"}) {
        double end = 0;
        for (const Lasting& work : track(trace_, name)) {
            EXPECT_GE(work.begin, end - 1e-3);  // one loop after another
            end = work.end;
            const std::int64_t index = work.event["args"]["launch"];
            const Lasting& launch = launches.at(static_cast<std::size_t>(index));
            EXPECT_GE(work.begin, launch.begin - 1e-3);
            EXPECT_LE(work.end, launch.end + 1e-3);
            EXPECT_EQ(work.event["args"]["scope"], launch.event["args"]["scope"]);
            EXPECT_EQ(launch.event["name"].get<std::string>().rfind(
                          work.event["name"].get<std::string>() + ": ", 0),
                      0u);
            blocks[index] += work.event["args"]["blocks"].get<std::int64_t>();
        }
    }
    EXPECT_GT(track(trace_, "thread 0").size(), launches_ / 2);
    for (const auto& [launch, done] : blocks) EXPECT_GT(done, 0) << launch;
}

}  // namespace
}  // namespace mantissa
