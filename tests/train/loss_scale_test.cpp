// The loss scale as a graph: it grows, backs off and stops at its floor as written.
#include "mantissa/train/loss_scale.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/graph/reference.h"
#include "mantissa/graph/tensor.h"

namespace mantissa {
namespace {

using Kind = LossScaleOptions::Kind;

/// Lets the scale see good ('+') and bad ('-') steps and tells its value after each.
std::vector<double> scales_after(const std::string& steps, const LossScaleOptions& options,
                                 ReferenceFeed* last = nullptr) {
    Graph graph;
    const Tensor applied(graph, graph.add_input("applied", {DType::boolean, {}}));
    update_loss_scale(graph, applied, options);
    ReferenceFeed feed;
    for (const State& state : graph.states()) feed[state.name] = {state.initializer.mean};
    std::vector<double> scales;
    for (char step : steps) {
        feed["applied"] = {step == '+' ? 1.0 : 0.0};
        feed = ReferenceRun(graph, feed).next(feed);
        scales.push_back(feed["loss_scale.scale"][0]);
    }
    if (last) *last = feed;
    return scales;
}

TEST(LossScale, GrowsAfterSoManyGoodStepsInARow) {
    const LossScaleOptions options{.kind = Kind::dynamic, .initial = 8, .interval = 3};
    EXPECT_EQ(scales_after("+++++++", options), (std::vector<double>{8, 8, 16, 16, 16, 32, 32}));
    // A bad step starts the count anew.
    EXPECT_EQ(scales_after("++-++++", options), (std::vector<double>{8, 8, 4, 4, 4, 8, 8}));
}

/// A run that goes on with a shorter interval has counted beyond it.
TEST(LossScale, GrowsThoughMoreGoodStepsWereCountedThanItWaitsFor) {
    Graph graph;
    const Tensor applied(graph, graph.add_input("applied", {DType::boolean, {}}));
    update_loss_scale(graph, applied, {.kind = Kind::dynamic, .initial = 8, .interval = 3});
    ReferenceFeed feed;
    for (const State& state : graph.states()) feed[state.name] = {state.initializer.mean};
    feed["loss_scale.good_steps"] = {7};
    feed["applied"] = {1};
    feed = ReferenceRun(graph, feed).next(feed);
    EXPECT_EQ(feed["loss_scale.scale"][0], 16);
    EXPECT_EQ(feed["loss_scale.good_steps"][0], 0);
}

TEST(LossScale, HalvesAtABadStepAndNeverFallsBelowItsFloor) {
    const LossScaleOptions options{.kind = Kind::dynamic, .initial = 8, .floor = 2};
    ReferenceFeed last;
    EXPECT_EQ(scales_after("----+-", options, &last), (std::vector<double>{4, 2, 2, 2, 2, 2}));
    EXPECT_EQ(last["loss_scale.skipped"][0], 5);
    EXPECT_EQ(last["loss_scale.good_steps"][0], 0);
}

TEST(LossScale, StaysWhereFp32HoldsItsReciprocalToo) {
    LossScaleOptions options{.kind = Kind::dynamic, .initial = 0x1p98, .interval = 1};
    EXPECT_EQ(scales_after("++++", options), (std::vector<double>{0x1p99, 0x1p100, 0x1p100, 0x1p100}));
    options.growth = 0x1p60;  // beyond FP32
    EXPECT_EQ(scales_after("++", options), (std::vector<double>{0x1p98, 0x1p98}));
}

TEST(LossScale, FixedAndNoneHaveNoState) {
    Graph graph;
    EXPECT_FALSE(loss_scale(graph, {.kind = Kind::none}));
    const Tensor fixed = loss_scale(graph, {.kind = Kind::fixed, .initial = 512});
    EXPECT_EQ(graph.node(fixed.value().node).attributes.number("value"), 512.0);
    EXPECT_TRUE(graph.states().empty());
}

TEST(LossScale, RefusesNumbersThatMeanNothing) {
    const auto message = [](LossScaleOptions options) -> std::string {
        if (options.kind == Kind::by_policy) options.kind = Kind::dynamic;
        try {
            validate(options);
        } catch (const UserError& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_EQ(message({.initial = 0}), "the loss scale must lie between 2^-100 and 2^100, got 0");
    EXPECT_EQ(message({.initial = -1}), "the loss scale must lie between 2^-100 and 2^100, got -1");
    EXPECT_EQ(message({.initial = NAN}), "the loss scale must lie between 2^-100 and 2^100, got nan");
    EXPECT_EQ(message({.kind = Kind::fixed, .initial = INFINITY}),
              "the loss scale must lie between 2^-100 and 2^100, got inf");
    // FP32 holds it, but not as a normal number.
    EXPECT_EQ(message({.kind = Kind::fixed, .initial = 1e-40}),
              "the loss scale must lie between 2^-100 and 2^100, got 1e-40");
    EXPECT_EQ(message({.growth = 0.5}), "the growth of the loss scale must be 1 or more, got 0.5");
    EXPECT_EQ(message({.backoff = 1}), "the backoff of the loss scale must lie between 0 and 1, got 1");
    EXPECT_EQ(message({.interval = 0}), "the interval of the loss scale must be 1 step or more, got 0");
    EXPECT_EQ(message({.initial = 0.5}),
              "the floor of the loss scale must be 2^-100 or more and not above the initial scale, got 1");
}

}  // namespace
}  // namespace mantissa
