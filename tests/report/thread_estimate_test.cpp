// The estimated time of a step on more threads: loops that are handed out by hand, and a real step.
#include "mantissa/report/thread_estimate.h"
#include "mantissa/base/function_ref.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"

namespace mantissa {
namespace {

RecordedLoop loop_of(std::vector<double> blocks, std::vector<RecordedLoop::Wait> waits = {}) {
    RecordedLoop loop{.seconds = 0, .blocks = std::move(blocks), .waits = std::move(waits)};
    for (const double block : loop.blocks) loop.seconds += block;
    return loop;
}

/// Blocks of a second but for two long ones, which lie in one ticket if two blocks do.
std::vector<double> late_pair() {
    std::vector<double> seconds(257, 1);
    seconds[254] = seconds[255] = 10;
    return seconds;
}

TEST(ThreadEstimate, BlocksGoInOrderToWhicheverThreadIsFree) {
    EXPECT_DOUBLE_EQ(seconds_on(loop_of({1, 1, 1, 1}), 1, 0), 4);
    EXPECT_DOUBLE_EQ(seconds_on(loop_of({1, 1, 1, 1}), 2, 0), 2);
    EXPECT_DOUBLE_EQ(seconds_on(loop_of({1, 1, 1}), 2, 0), 2);
    EXPECT_DOUBLE_EQ(seconds_on(loop_of({3, 1, 1, 1}), 2, 0), 3);
    EXPECT_DOUBLE_EQ(seconds_on(loop_of({1, 1, 1, 3}), 2, 0), 4);  // the long one comes last
    EXPECT_DOUBLE_EQ(seconds_on(loop_of({1, 1}), 64, 0), 1);
    // 256 blocks on 2 threads are taken two at a time: 128 tickets.
    EXPECT_DOUBLE_EQ(seconds_on(loop_of(std::vector<double>(256, 1)), 2, 0), 128);
    EXPECT_DOUBLE_EQ(seconds_on(loop_of(late_pair()), 2, 0), 126 + 20);
}

TEST(ThreadEstimate, ABlockThatWaitsHoldsItsThread) {
    // The second block needs the first, and the third thread-second is lost.
    const RecordedLoop chain = loop_of({2, 1, 1}, {{1, 0}});
    EXPECT_DOUBLE_EQ(seconds_on(chain, 2, 0), 3);
    EXPECT_DOUBLE_EQ(seconds_on(chain, 2, 0, false), 2);
    EXPECT_DOUBLE_EQ(seconds_on(chain, 1, 0), 4);
    // Blocks that may wait are taken one at a time, however many there are.
    EXPECT_DOUBLE_EQ(seconds_on(loop_of(late_pair(), {{1, 0}}), 2, 0), 128 + 10);
}

TEST(ThreadEstimate, TicketsAreTakenOneAfterAnother) {
    EXPECT_DOUBLE_EQ(seconds_on(loop_of({1, 1, 1, 1}), 4, 0.25), 4 * 0.25 + 1);
    EXPECT_DOUBLE_EQ(seconds_on(loop_of({0, 0, 0, 0}), 4, 0.25), 1);
}

TEST(ThreadEstimate, SharesOfALaunchAddUp) {
    const PlannedMachine machine{.pool = {.meeting = 0.5, .ticket = 0.125}, .memory = {.one = 4, .all = 12}};
    const RecordedLaunch launch{.seconds = 10, .loops = {loop_of({2, 2, 2, 2}), loop_of({1})}};
    const LaunchEstimate one = estimate_launch(launch, 1000, 1, machine);
    EXPECT_DOUBLE_EQ(one.computing, 10);
    EXPECT_DOUBLE_EQ(one.barriers + one.memory, 0);
    const LaunchEstimate four = estimate_launch(launch, 0, 4, machine);
    EXPECT_DOUBLE_EQ(four.computing, 1 + 2 + 1);  // between loops, the loop of four, that of one
    EXPECT_DOUBLE_EQ(four.barriers, 0.5 + 2 * 0.125 + 4 * 0.125);
    EXPECT_DOUBLE_EQ(four.memory, 0);
    // More than is copied in 10 seconds lies in caches: 40 bytes, at 12 a second.
    const LaunchEstimate wide =
        estimate_launch({.seconds = 10, .loops = {loop_of(std::vector<double>(16, 0.625))}}, 1000, 16,
                        {.pool = {}, .memory = {.one = 4, .all = 12}});
    EXPECT_DOUBLE_EQ(wide.computing, 0.625);
    EXPECT_DOUBLE_EQ(wide.computing + wide.memory, 40.0 / 12);
}

TEST(ThreadEstimate, SaysWhyALaunchDoesNotScale) {
    const auto cause = [](const RecordedLaunch& launch) { return lost_time(launch, 4).greatest(); };
    EXPECT_EQ(cause({.seconds = 4, .loops = {loop_of({1, 1, 1, 1})}}), Hindrance::none);
    EXPECT_EQ(cause({.seconds = 4, .loops = {loop_of({4})}}), Hindrance::serial);
    EXPECT_EQ(cause({.seconds = 9, .loops = {loop_of({1, 1, 1, 1})}}), Hindrance::serial);
    EXPECT_EQ(cause({.seconds = 5, .loops = {loop_of({1, 1, 1, 1, 1})}}), Hindrance::few_blocks);
    EXPECT_EQ(cause({.seconds = 13, .loops = {loop_of({1, 1, 1, 1, 1, 8})}}), Hindrance::long_block);
    EXPECT_EQ(cause({.seconds = 4, .loops = {loop_of({1, 1, 1, 1}, {{1, 0}, {2, 1}, {3, 2}})}}),
              Hindrance::waits);
    EXPECT_DOUBLE_EQ(lost_time({.seconds = 9, .loops = {loop_of({1, 1, 1, 1})}}, 4).all(), 5 * 0.75);
}

TEST(ThreadEstimate, DisturbedBlocksCountAsTheOthersDo) {
    const auto step = [](double second) {
        return RecordedStep{.seconds = 0,
                            .launches = {{.seconds = 1 + second, .loops = {loop_of({1, second})}}}};
    };
    const RecordedStep typical =
        typical_step({step(1), step(50), step(1)}, {.profile = {6}, .wall_seconds = 7});
    EXPECT_DOUBLE_EQ(typical.seconds, 7);
    EXPECT_DOUBLE_EQ(typical.launches[0].seconds, 6);
    EXPECT_DOUBLE_EQ(typical.launches[0].loops[0].blocks[1], 3);
}

TEST(ThreadEstimate, CountsDoubleUpToTheMost) {
    EXPECT_EQ(thread_counts(1), (std::vector<int>{1}));
    EXPECT_EQ(thread_counts(6), (std::vector<int>{1, 2, 4, 6}));
    EXPECT_EQ(thread_counts(8), (std::vector<int>{1, 2, 4, 8}));
}

TEST(ThreadEstimate, OfARealStepHasEveryLaunchAndFallsWithTheThreads) {
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer =
        gpt2_trainer(*device, {.model = nn::gpt2_config("gpt2-tiny"), .batch = 2, .sequence = 64});
    const std::vector<std::int32_t> tokens(128, 7);
    trainer.step({tokens, tokens}, 1e-4);
    RecordedStep step;
    LoopRecorder recorder;
    const StepResult result = trainer.step_run_by({tokens, tokens}, 1e-4, [&](Execution& execution, bool) {
        double since = 0;
        const auto begin = [&](NodeId) {
            since = LoopRecorder::seconds_on_core();
            return true;
        };
        execution.run_while(begin, [&](NodeId) {
            const double seconds = LoopRecorder::seconds_on_core() - since;
            step.launches.push_back({.seconds = seconds, .loops = recorder.take()});
            return true;
        });
    });
    for (const RecordedLaunch& launch : step.launches) step.seconds += launch.seconds;
    EXPECT_LE(step.seconds, result.seconds);
    const Plan& plan = trainer.plan().step();
    const PlannedMachine machine{.pool = {.meeting = 1e-9, .ticket = 1e-12}, .memory = {}};
    ThreadReport report = estimate_threads(plan, step, {1, 2, 8}, machine);
    report.title = "gpt2-tiny";
    EXPECT_NEAR(report.estimates[0].seconds(), step.seconds, 0.01 * step.seconds);
    EXPECT_LT(report.estimates[1].computing, 0.9 * report.estimates[0].computing);
    EXPECT_LT(report.estimates[2].computing, report.estimates[1].computing);
    EXPECT_GE(report.estimates[2].computing, report.estimates[0].computing / 8);
    int launches = 0;
    double lost = 0;
    for (const UnscaledLaunches& each : report.unscaled) {
        launches += each.launches;
        lost += each.lost.all();
    }
    EXPECT_EQ(launches, static_cast<int>(plan.nodes().size()));
    EXPECT_NEAR(lost, report.estimates[2].computing - report.estimates[0].computing / 8,
                0.02 * report.estimates[2].computing);
    const std::string table = thread_table(report);
    EXPECT_NE(table.find("what does not scale to 8 threads"), std::string::npos) << table;
    const auto json = nlohmann::json::parse(json_of("explain", fields_of(report)));
    EXPECT_EQ(json["estimates"].size(), 3u);
    EXPECT_EQ(json["estimates"][2]["threads"], 8);
}

}  // namespace
}  // namespace mantissa
