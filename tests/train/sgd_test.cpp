// SGD against PyTorch: 50 steps of a small network with each option, as computed in FP64 by
// bench/peers/sgd_fixture.py. And what all optimizers promise, with SGD: a bad step leaves no trace.
#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/optimizer_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/reference.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/largest_difference.h"
#include "tests/support/torch_fixture.h"
#include "tests/train/laid_out_training.h"
#include "tests/train/torch_drift.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::Drift;
using testing::is_no_loss_scale;
using testing::largest_difference;
using testing::part;
using testing::states_of;
using testing::step;
using testing::tolerance;

/// mean((tanh(x W^T + b) - y)^2)
struct OneLayer {
    static constexpr std::int64_t steps = 50, batch = 4, inputs = 7, outputs = 5;
    static constexpr float learning_rate = 0.1f;

    static Tensor loss(Graph& graph) {
        const auto parameter = [&](const char* name, Shape shape) {
            return Tensor(graph,
                          graph.add_state({.name = name, .type = {DType::f32, shape}, .initializer = {}}));
        };
        const Tensor x(graph, graph.add_input("x", {DType::f32, {batch, inputs}}));
        const Tensor y(graph, graph.add_input("y", {DType::f32, {batch, outputs}}));
        const Tensor weight = parameter("weight", {outputs, inputs}), bias = parameter("bias", {outputs});
        const Tensor error = tanh(matmul(x, weight, {.transpose_b = true, .bias = bias})) - y;
        return mean(error * error, {0, 1});
    }
};

struct SgdCase {
    const char* name;
    SgdOptions options;
};
const SgdCase sgd_cases[] = {
    {"plain", {}},
    {"momentum", {.momentum = 0.9}},
    {"dampening", {.momentum = 0.9, .dampening = 0.4}},
    {"nesterov", {.momentum = 0.9, .nesterov = true}},
    {"weight_decay", {.weight_decay = 0.1}},
    {"decay_of_matrices", {.momentum = 0.9, .weight_decay = 0.1, .decay_matrices_only = true}},
    {"all_dampened", {.momentum = 0.9, .dampening = 0.4, .weight_decay = 0.1}},
    {"all_nesterov", {.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}},
};

Graph training_step(const SgdOptions& options) {
    return build_training_step(OneLayer::loss, optimizer_update(sgd(options))).graph;
}

/// How far losses, and parameters after the last step, are from those of the fixture's case.
/// `steps_before`: what the count of steps begins with; 0, if the first step shall be the first.
Drift drift_of_sgd(const std::string& name, const SgdOptions& options, double steps_before = 0) {
    const TorchFixture fixture("sgd");
    const auto device = make_cpu_device({.threads = 1});
    const Plan plan(training_step(options), *device);
    EXPECT_EQ(plan.kernels_of("sgd").size(), 1u);  // the row kernel, not primitives
    StateBlock state(*device, plan.graph().states());
    state.initialize(0);
    for (const char* parameter : {"weight", "bias"})
        state.write(parameter, std::as_bytes(std::span<const float>(fixture.values<float>(parameter))));
    if (options.momentum > 0)
        state.write("sgd.step", std::as_bytes(std::span<const double>(&steps_before, 1)));
    const auto arena = device->allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
    Execution execution(plan, state, *arena);
    execution.set_input("learning_rate", std::span<const float>(&OneLayer::learning_rate, 1));
    const auto x = fixture.values<float>("x"), y = fixture.values<float>("y");
    std::vector<double> losses;
    for (std::int64_t step = 0; step < OneLayer::steps; ++step) {
        execution.set_input("x", part(x, step, OneLayer::batch * OneLayer::inputs));
        execution.set_input("y", part(y, step, OneLayer::batch * OneLayer::outputs));
        execution.run();
        EXPECT_NE(execution.read_result("applied")[0], std::byte{0});
        losses.push_back(static_cast<double>(execution.read_scalar("loss")));
    }
    Drift drift{.losses = largest_difference(losses, fixture.values<double>("losses." + name))};
    for (const std::string parameter : {"weight", "bias"}) {
        const double difference =
            largest_difference(state.read_f32(parameter), fixture.f32(parameter + "." + name));
        drift.parameters = std::max(drift.parameters, difference);
    }
    return drift;
}

TEST(SgdAgainstPyTorch, FiftyStepsWithEachOption) {
    for (const SgdCase& c : sgd_cases) {
        const Drift drift = drift_of_sgd(c.name, c.options);
        EXPECT_LE(drift.losses, tolerance) << c.name;
        EXPECT_LE(drift.parameters, tolerance) << c.name;
    }
}

TEST(SgdAgainstPyTorch, TheReferenceAgrees) {
    const TorchFixture fixture("sgd");
    const auto x = fixture.f32("x"), y = fixture.f32("y");
    for (const SgdCase& c : sgd_cases) {
        const Graph graph = training_step(c.options);
        ReferenceFeed feed{
            {"weight", fixture.f32("weight")}, {"bias", fixture.f32("bias")}, {"learning_rate", {0.1}}};
        for (const State& state : graph.states())
            feed.try_emplace(state.name, static_cast<std::size_t>(state.type.shape.elements()));
        for (std::int64_t step = 0; step < OneLayer::steps; ++step) {
            const auto now_x = part(x, step, OneLayer::batch * OneLayer::inputs),
                       now_y = part(y, step, OneLayer::batch * OneLayer::outputs);
            feed["x"] = {now_x.begin(), now_x.end()};
            feed["y"] = {now_y.begin(), now_y.end()};
            feed = ReferenceRun(graph, feed).next(feed);
        }
        // Both are in FP64; the fixture is stored in FP32, numbers below 4.
        for (const std::string parameter : {"weight", "bias"})
            EXPECT_LE(largest_difference(feed.at(parameter), fixture.f32(parameter + "." + c.name)), 0x1p-23)
                << parameter << "." << c.name;
    }
}

TEST(SgdAgainstPyTorch, EachOptionThatIsAlteredIsCaught) {
    const SgdCase altered[] = {
        {"plain", {.weight_decay = 1e-3}},
        {"momentum", {.momentum = 0.901}},
        {"momentum", {.momentum = 0.9, .dampening = 1e-3}},
        {"dampening", {.momentum = 0.9, .dampening = 0.401}},
        {"nesterov", {.momentum = 0.9}},
        {"weight_decay", {.weight_decay = 0.101}},
        {"decay_of_matrices", {.momentum = 0.9, .weight_decay = 0.1}},
    };
    for (const SgdCase& c : altered)
        EXPECT_GT(drift_of_sgd(c.name, c.options).parameters, 10 * tolerance) << c.name;
    // The first buffer is the gradient itself: dampened like those of later steps, it is noticed.
    const double dampened_too = drift_of_sgd("dampening", sgd_cases[2].options, 1).parameters;
    EXPECT_GT(dampened_too, 10 * tolerance);
}

TEST(Sgd, KeepsABufferWithMomentumOnly) {
    std::vector<std::string> names;
    const Graph with = training_step({.momentum = 0.9}), without = training_step({.weight_decay = 0.1});
    for (const State& state : with.states()) names.push_back(state.name);
    EXPECT_EQ(names, (std::vector<std::string>{"weight", "bias", "sgd.step", "sgd.momentum.weight",
                                               "sgd.momentum.bias"}));
    EXPECT_EQ(without.states().size(), 2u);
}

TEST(Sgd, OptionsThatMeanNothingAreRefused) {
    const auto message = [](const SgdOptions& options) { return testing::error_of([&] { sgd(options); }); };
    EXPECT_EQ(message({.momentum = 1}), "momentum must be 0 (off), or lie in (0, 1) in FP32, got 1");
    EXPECT_EQ(message({.momentum = -0.5}), "momentum must be 0 (off), or lie in (0, 1) in FP32, got -0.5");
    EXPECT_EQ(message({.momentum = NAN}), "momentum must be 0 (off), or lie in (0, 1) in FP32, got nan");
    EXPECT_EQ(message({.momentum = 1e-40}), "momentum must be 0 (off), or lie in (0, 1) in FP32, got 1e-40");
    EXPECT_EQ(message({.momentum = 0.9, .dampening = 1.5}), "dampening must lie in [0, 1], got 1.5");
    EXPECT_EQ(message({.dampening = 0.5}),
              "dampening is of the momentum, which is 0: dampening must be 0, got 0.5");
    EXPECT_EQ(message({.nesterov = true}), "Nesterov's momentum needs a momentum above 0, got 0");
    EXPECT_EQ(message({.momentum = 0.9, .dampening = 0.5, .nesterov = true}),
              "Nesterov's momentum needs a dampening of 0, got 0.5");
    EXPECT_EQ(message({.weight_decay = INFINITY}),
              "weight decay must be 0 or more and finite in FP32, got inf");
    EXPECT_EQ(message({.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}), "no error");
}

struct BadStepSetting {
    std::string policy;
    std::int64_t accumulate;
    SgdOptions options;

    Gpt2Training training() const { return testing::laid_out_training(policy, accumulate, sgd(options)); }
};

const std::string poisoned = "h.1.mlp.c_fc.weight";

/// Makes gradients infinite or none, and what is derived follow.
void poison(Trainer& trainer) {
    std::vector<float> weight = trainer.state().read_f32(poisoned);
    weight[5] = std::numeric_limits<float>::infinity();
    trainer.state().write(poisoned, std::as_bytes(std::span<const float>(weight)));
    const testing::ShiftedTokens given(trainer, 0);
    trainer.look_into({given.tokens, given.targets}, [](Execution&) {});
}

void expect_no_trace_of_a_bad_step(Device& device, const BadStepSetting& setting) {
    Trainer trainer = gpt2_trainer(device, setting.training()),
            healthy = gpt2_trainer(device, setting.training());
    const bool scales = setting.policy == "fp16";
    for (Trainer* each : {&trainer, &healthy}) EXPECT_TRUE(step(*each, 0).applied);
    const std::vector<std::byte> good = trainer.state().read(poisoned);
    poison(trainer);
    const auto before = states_of(trainer, is_no_loss_scale);
    const double scale = trainer.loss_scale().scale;
    EXPECT_FALSE(step(trainer, 1).applied);
    EXPECT_TRUE(states_of(trainer, is_no_loss_scale) == before);
    EXPECT_EQ(trainer.loss_scale().scale, scales ? scale / 2 : scale);
    // The copies of other parameters, and buffers, were there to be spoilt, and a good step changes them.
    const std::string copy = (scales ? "f16." : "bf16.") + std::string("h.0.mlp.c_fc.weight");
    EXPECT_EQ(before.contains(copy), setting.policy != "fp32");
    EXPECT_EQ(before.contains("sgd.momentum." + poisoned), setting.options.momentum > 0);
    trainer.state().write(poisoned, good);
    for (Trainer* each : {&trainer, &healthy}) EXPECT_TRUE(step(*each, 2).applied);
    const auto after = states_of(trainer, is_no_loss_scale);
    for (const auto& [name, bytes] : before)
        EXPECT_EQ(after.at(name) == bytes, name.starts_with("gradient.")) << name;  // zero between steps
    // At another loss scale gradients are rounded otherwise.
    EXPECT_TRUE(scales || after == states_of(healthy, is_no_loss_scale));
}

TEST(Sgd, AStepThatIsNotFiniteLeavesNoTrace) {
    const auto device = make_cpu_device({.threads = 2});
    const SgdOptions momentum{.momentum = 0.9, .dampening = 0.1, .weight_decay = 0.1};
    for (const BadStepSetting& setting :
         {BadStepSetting{"fp32", 1, momentum}, BadStepSetting{"bf16", 1, momentum},
          BadStepSetting{"bf16", 3, momentum}, BadStepSetting{"fp16", 1, momentum},
          BadStepSetting{"fp16", 2, momentum}, BadStepSetting{"bf16", 1, {}}}) {
        SCOPED_TRACE(setting.policy + ", accumulate " + std::to_string(setting.accumulate));
        expect_no_trace_of_a_bad_step(*device, setting);
    }
}

}  // namespace
}  // namespace mantissa
