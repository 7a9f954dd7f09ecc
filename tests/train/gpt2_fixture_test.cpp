// GPT-2 against PyTorch: logits, loss, every gradient, and 20 steps of AdamW of a small GPT-2 with odd sizes
// (3 heads, T = 37, V = 211), as computed in FP64 by bench/peers/gpt2_fixture.py. This oracle shares nothing
// with the op table.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/nn/models/gpt2.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"
#include "tests/support/nan_memory.h"
#include "tests/support/torch_fixture.h"

namespace mantissa {
namespace {

const nn::Gpt2Config config{
    .name = "fixture", .layers = 2, .heads = 3, .channels = 36, .vocabulary = 211, .context = 37};

/// The promise of the project: within this of PyTorch's FP64, relative to the largest element of a tensor.
constexpr double tolerance = 1e-5;

/// Gradients that are zero but for rounding (the bias of the keys) are held against the largest gradients.
constexpr double gradient_floor = 1e-2;

/// Forward and backward pass, with the logits and all gradients as results.
Graph gradients_graph() {
    Graph graph;
    const Type ids{DType::i32, {2, config.context}};
    const Tensor tokens(graph, graph.add_input("tokens", ids)),
        targets(graph, graph.add_input("targets", ids));
    const Tensor logits = nn::gpt2_logits(config, tokens);
    const Tensor loss = cross_entropy(logits, targets);
    graph.add_result("logits", logits.value());
    graph.add_result("loss", loss.value());
    for (const ParameterGradient& parameter : differentiate(graph, loss))
        graph.add_result("grad." + graph.states()[static_cast<std::size_t>(parameter.state)].name,
                         parameter.gradient.value());
    return graph;
}

void load_parameters(StateBlock& state, const TorchFixture& fixture) {
    for (const State& entry : state.states())
        if (entry.kind == State::Kind::parameter)
            state.write(entry.name, std::as_bytes(std::span<const float>(fixture.values<float>(entry.name))));
}

TEST(Gpt2AgainstPyTorch, TheReferenceAgrees) {
    const TorchFixture fixture("gpt2_tiny");
    const Graph graph = gradients_graph();
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
    const Plan plan(gradients_graph(), *device);
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

/// Losses and final parameters after 20 steps, the worst of each, with the given learning rate.
struct Drift {
    double losses = 0, parameters = 0;
};
Drift drift_after_twenty_steps(const TorchFixture& fixture, double learning_rate) {
    const auto device = make_cpu_device({.threads = 2});
    Trainer trainer(*device, nn::gpt2_model(config, config.context),
                    {.optimizer = adamw({.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1}),
                     .batch = 2});
    load_parameters(trainer.state(), fixture);
    const auto tokens = fixture.values<std::int32_t>("tokens"),
               targets = fixture.values<std::int32_t>("targets");
    const auto losses = fixture.values<double>("losses");
    Drift drift;
    for (double expected : losses) {
        const StepResult result = trainer.step({tokens, targets}, learning_rate);
        EXPECT_TRUE(result.applied);
        drift.losses =
            std::max(drift.losses, std::abs(static_cast<double>(result.loss) - expected) / expected);
    }
    for (const State& state : trainer.state().states()) {
        if (state.kind != State::Kind::parameter) continue;
        const std::vector<float> got = trainer.state().read_f32(state.name);
        drift.parameters =
            std::max(drift.parameters,
                     relative_error({got.begin(), got.end()}, fixture.f32("after." + state.name), 1.0));
    }
    return drift;
}

TEST(Gpt2AgainstPyTorch, TwentyStepsOfAdamW) {
    const Drift drift = drift_after_twenty_steps(TorchFixture("gpt2_tiny"), 1e-3);
    EXPECT_LE(drift.losses, tolerance);
    EXPECT_LE(drift.parameters, tolerance);
}

TEST(Gpt2AgainstPyTorch, ALearningRateOffByOnePercentIsCaught) {
    const Drift drift = drift_after_twenty_steps(TorchFixture("gpt2_tiny"), 1.01e-3);
    EXPECT_GT(drift.losses, tolerance);
    EXPECT_GT(drift.parameters, tolerance);
}

}  // namespace
}  // namespace mantissa
