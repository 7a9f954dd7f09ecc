// A program of one's own on several ranks, as the first face has it: groups that meet under a name, examples
// that each rank reads its part of, and the bits of one process that makes all micro-batches.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "mantissa/device/devices.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"
#include "mantissa/nn/losses.h"
#include "mantissa/ranks/ranks.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

nn::Model curve_model() {
    return {.name = "curve",
            .inputs = {{"x", DType::f32, {4}}, {"y", DType::f32, {1}}},
            .loss = [](Tensor x, Tensor y) {
                const Tensor hidden =
                    tanh(nn::linear(x, "hidden", {.outputs = 600, .standard_deviation = 0.5}));
                const Tensor error = nn::linear(hidden, "output", {.outputs = 1}) - y;
                nn::metric("greatest", max(abs(error)));
                return mean(error * error);
            }};
}

using Parameters = std::map<std::string, std::vector<float>>;

struct Curve {
    std::vector<float> losses, metrics;
    Parameters parameters;
    friend bool operator==(const Curve&, const Curve&) = default;
};

Curve trained_curve(RankGroup& group, std::int64_t accumulate) {
    std::vector<float> x(40 * 4), y(40);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * i));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[4 * i] * x[4 * i + 1];
    Trainer trainer(group.cpu(1), curve_model(),
                    {.batch = 2, .accumulate = accumulate, .ranks = group, .states = States::whole});
    const Examples examples = trainer.examples({x, y});
    Curve run;
    for (int step = 0; step < 30; ++step) {
        const StepResult result = trainer.step(examples, 0.01);
        run.losses.push_back(result.loss);
        run.metrics.push_back(result.metrics["greatest"]);
    }
    for (const State& state : trainer.state().states())
        if (is_weight(state)) run.parameters[state.name] = trainer.state().read_f32(state.name);
    return run;
}

/// A name that no other test run has.
std::string name_of(const char* what) { return std::string(what) + std::to_string(::getpid()); }

TEST(RankGroup, AloneIsTheOnlyRank) {
    RankGroup group;
    EXPECT_EQ(group.rank(), 0);
    EXPECT_EQ(group.size(), 1);
    EXPECT_EQ(static_cast<Ranks*>(group), nullptr);
    EXPECT_EQ(&group.cpu(1), &group.cpu(1));
}

TEST(RankGroup, TrainsToTheBitsOfOneProcess) {
    RankGroup one;
    const Curve alone = trained_curve(one, 4);
    EXPECT_NE(alone.losses.back(), alone.losses.front());
    for (const int ranks : {2, 4}) {
        const std::string name = name_of("group");
        std::vector<Curve> all(static_cast<std::size_t>(ranks));
        std::vector<std::string> errors(all.size());
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank)
            threads.emplace_back([&, rank] {
                try {
                    RankGroup group({.seconds = 60, .name = name, .rank = rank, .ranks = ranks});
                    EXPECT_EQ(group.rank(), rank);
                    EXPECT_EQ(group.size(), ranks);
                    all[static_cast<std::size_t>(rank)] = trained_curve(group, 4 / ranks);
                } catch (const std::exception& error) {
                    errors[static_cast<std::size_t>(rank)] = error.what();
                }
            });
        for (std::thread& thread : threads) thread.join();
        for (int rank = 0; rank < ranks; ++rank) {
            EXPECT_EQ(errors[static_cast<std::size_t>(rank)], "");
            const Curve& run = all[static_cast<std::size_t>(rank)];
            EXPECT_EQ(run.losses, alone.losses) << rank << " of " << ranks;
            EXPECT_EQ(run.metrics.size(), alone.metrics.size());
            for (std::size_t i = 0; i < run.metrics.size(); ++i)
                EXPECT_FLOAT_EQ(run.metrics[i], alone.metrics[i]);
            EXPECT_EQ(run.parameters, alone.parameters) << rank << " of " << ranks;
        }
    }
}

TEST(RankGroup, SaysWhatIsWrong) {
    EXPECT_EQ(testing::error_of<UserError>([] { RankGroup({.name = "a", .rank = 2, .ranks = 2}); }),
              "a rank must be 0 or more and below the number of ranks, got 2 of 2");
    EXPECT_THROW(RankGroup({.seconds = 0.2, .name = name_of("nobody"), .rank = 1, .ranks = 2}), LostRank);
}

}  // namespace
}  // namespace mantissa
