// GPT-2 against PyTorch: logits, loss, every gradient, and 20 steps of AdamW of a small GPT-2 with odd sizes
// (3 heads, T = 37, V = 211), as computed in FP64 by bench/peers/gpt2_fixture.py. This oracle shares nothing
// with the op table.
#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"
#include "tests/support/gpt2.h"
#include "tests/support/nan_memory.h"
#include "tests/support/torch_fixture.h"
#include "tests/train/torch_drift.h"

namespace mantissa {
namespace {

using testing::Drift;
using testing::tolerance;

const nn::Gpt2Config fixture_gpt2{
    .name = "fixture", .layers = 2, .heads = 3, .channels = 36, .vocabulary = 211, .context = 37};

/// Gradients that are zero but for rounding (the bias of the keys) are held against the largest gradients.
constexpr double gradient_floor = 1e-2;

Graph gpt2_gradients() {
    return testing::gradients_graph(fixture_gpt2.context,
                                    [](Tensor tokens) { return nn::gpt2_logits(fixture_gpt2, tokens); });
}

void load_parameters(StateBlock& state, const TorchFixture& fixture) {
    for (const State& entry : state.states())
        if (entry.kind == State::Kind::parameter)
            state.write(entry.name, std::as_bytes(std::span<const float>(fixture.values<float>(entry.name))));
}

TEST(Gpt2AgainstPyTorch, TheReferenceAgrees) {
    const TorchFixture fixture("gpt2_tiny");
    const Graph graph = gpt2_gradients();
    ReferenceFeed feed;
    for (const State& state : graph.states()) feed[state.name] = fixture.f32(state.name);
    for (const char* name : {"tokens", "targets"}) {
        const auto ids = fixture.values<std::int32_t>(name);
        feed[name] = {ids.begin(), ids.end()};
    }
    const ReferenceRun run(graph, feed);
    EXPECT_NEAR(run.result("loss").values[0], fixture.values<double>("loss")[0], 1e-12);
    for (const Result& result : graph.results()) {
        if (result.name == "loss") continue;
        // Both are in FP64; the fixture is stored in FP32: 2^-24 of each element.
        EXPECT_LE(relative_error(run[result.value].values, fixture.f32(result.name), 1e-6), 1e-7)
            << result.name;
    }
}

TEST(Gpt2AgainstPyTorch, LogitsLossAndEveryGradient) {
    const TorchFixture fixture("gpt2_tiny");
    const auto device = make_cpu_device({.threads = 2});
    const Plan plan(gpt2_gradients(), *device);
    StateBlock state(*device, plan.graph().states());
    load_parameters(state, fixture);
    const auto arena = testing::nan_memory(*device, plan.memory().arena_bytes);
    Execution execution(plan, state, *arena);
    for (const char* name : {"tokens", "targets"})
        execution.set_input(name, std::span<const std::int32_t>(fixture.values<std::int32_t>(name)));
    execution.run();
    for (const Result& result : plan.graph().results()) {
        const std::vector<std::byte> bytes = execution.read_result(result.name);
        std::vector<float> values(bytes.size() / sizeof(float));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        const std::vector<double> expected =
            result.name == "loss" ? fixture.values<double>("loss") : fixture.f32(result.name);
        EXPECT_LE(relative_error({values.begin(), values.end()}, expected, gradient_floor), tolerance)
            << result.name;
    }
}

Drift drift_of_gpt2(double learning_rate) {
    const TorchFixture fixture("gpt2_tiny");
    const auto device = make_cpu_device({.threads = 2});
    Trainer trainer(*device, nn::gpt2_model(fixture_gpt2, fixture_gpt2.context),
                    {.optimizer = adamw({.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1}),
                     .batch = 2});
    load_parameters(trainer.state(), fixture);
    return testing::drift_of_steps(trainer, fixture, learning_rate, 1.0);
}

TEST(Gpt2AgainstPyTorch, TwentyStepsOfAdamW) {
    const Drift drift = drift_of_gpt2(1e-3);
    EXPECT_LE(drift.losses, tolerance);
    EXPECT_LE(drift.parameters, tolerance);
}

TEST(Gpt2AgainstPyTorch, ALearningRateOffByOnePercentIsCaught) {
    const Drift drift = drift_of_gpt2(1.01e-3);
    EXPECT_GT(drift.losses, tolerance);
    EXPECT_GT(drift.parameters, tolerance);
}

}  // namespace
}  // namespace mantissa
