// SGD against PyTorch: 50 steps of a small network with each option, as computed in FP64 by
// bench/peers/sgd_fixture.py. And what all optimizers promise, with SGD: a bad step leaves no trace.
#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/reference.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/passes.h"
#include "tests/support/torch_fixture.h"

namespace mantissa {
namespace {

constexpr std::int64_t steps = 50, batch = 4, inputs = 7, outputs = 5;
constexpr float learning_rate = 0.1f;

struct Case {
    const char* name;
    SgdOptions options;
};
const Case cases[] = {
    {"plain", {}},
    {"momentum", {.momentum = 0.9}},
    {"dampening", {.momentum = 0.9, .dampening = 0.4}},
    {"nesterov", {.momentum = 0.9, .nesterov = true}},
    {"weight_decay", {.weight_decay = 0.1}},
    {"decay_of_matrices", {.momentum = 0.9, .weight_decay = 0.1, .decay_matrices_only = true}},
    {"all_dampened", {.momentum = 0.9, .dampening = 0.4, .weight_decay = 0.1}},
    {"all_nesterov", {.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}},
};

/// mean((tanh(x W^T + b) - y)^2)
Tensor network(Graph& graph) {
    const auto parameter = [&](const char* name, Shape shape) {
        return Tensor(graph, graph.add_state({.name = name, .type = {DType::f32, shape}, .initializer = {}}));
    };
    const Tensor x(graph, graph.add_input("x", {DType::f32, {batch, inputs}}));
    const Tensor y(graph, graph.add_input("y", {DType::f32, {batch, outputs}}));
    const Tensor weight = parameter("weight", {outputs, inputs}), bias = parameter("bias", {outputs});
    const Tensor error = tanh(matmul(x, weight, {.transpose_b = true, .bias = bias})) - y;
    return mean(error * error, {0, 1});
}

Graph training_step(const SgdOptions& options) {
    return build_training_step(network, optimizer_update(sgd(options))).graph;
}

/// The largest difference; infinite where a number is none.
double largest_difference(const std::vector<double>& got, const std::vector<double>& expected) {
    EXPECT_EQ(got.size(), expected.size());
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double difference = std::abs(got[i] - expected[i]);
        worst = !(difference <= worst) ? difference : worst;
    }
    return std::isnan(worst) ? INFINITY : worst;
}

/// How far losses, and parameters after the last step, are from those of the fixture's case.
struct Drift {
    double losses = 0, parameters = 0;
};

template <class T>
std::span<const T> part(const std::vector<T>& values, std::int64_t step, std::int64_t size) {
    return std::span(values).subspan(static_cast<std::size_t>(step * size), static_cast<std::size_t>(size));
}

/// `steps_before`: what the count of steps begins with; 0, if the first step shall be the first.
Drift drift_after_fifty_steps(const std::string& name, const SgdOptions& options, double steps_before = 0) {
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
    execution.set_input("learning_rate", std::span<const float>(&learning_rate, 1));
    const auto x = fixture.values<float>("x"), y = fixture.values<float>("y");
    std::vector<double> losses;
    for (std::int64_t step = 0; step < steps; ++step) {
        execution.set_input("x", part(x, step, batch * inputs));
        execution.set_input("y", part(y, step, batch * outputs));
        execution.run();
        EXPECT_NE(execution.read_result("applied")[0], std::byte{0});
        losses.push_back(static_cast<double>(execution.read_scalar("loss")));
    }
    Drift drift{.losses = largest_difference(losses, fixture.values<double>("losses." + name))};
    for (const std::string parameter : {"weight", "bias"}) {
        const std::vector<float> got = state.read_f32(parameter);
        const double difference =
            largest_difference({got.begin(), got.end()}, fixture.f32(parameter + "." + name));
        drift.parameters = std::max(drift.parameters, difference);
    }
    return drift;
}

/// The promise of the project: within this of PyTorch's FP64. PyTorch's own FP32 comes within 1.5e-6.
constexpr double tolerance = 1e-5;

TEST(SgdAgainstPyTorch, FiftyStepsWithEachOption) {
    for (const Case& c : cases) {
        const Drift drift = drift_after_fifty_steps(c.name, c.options);
        EXPECT_LE(drift.losses, tolerance) << c.name;
        EXPECT_LE(drift.parameters, tolerance) << c.name;
    }
}

TEST(SgdAgainstPyTorch, TheReferenceAgrees) {
    const TorchFixture fixture("sgd");
    const auto x = fixture.f32("x"), y = fixture.f32("y");
    for (const Case& c : cases) {
        const Graph graph = training_step(c.options);
        ReferenceFeed feed{
            {"weight", fixture.f32("weight")}, {"bias", fixture.f32("bias")}, {"learning_rate", {0.1}}};
        for (const State& state : graph.states())
            feed.try_emplace(state.name, static_cast<std::size_t>(state.type.shape.elements()));
        for (std::int64_t step = 0; step < steps; ++step) {
            const auto now_x = part(x, step, batch * inputs), now_y = part(y, step, batch * outputs);
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
    const Case altered[] = {
        {"plain", {.weight_decay = 1e-3}},
        {"momentum", {.momentum = 0.901}},
        {"momentum", {.momentum = 0.9, .dampening = 1e-3}},
        {"dampening", {.momentum = 0.9, .dampening = 0.401}},
        {"nesterov", {.momentum = 0.9}},
        {"weight_decay", {.weight_decay = 0.101}},
        {"decay_of_matrices", {.momentum = 0.9, .weight_decay = 0.1}},
    };
    for (const Case& c : altered)
        EXPECT_GT(drift_after_fifty_steps(c.name, c.options).parameters, 10 * tolerance) << c.name;
    // The first buffer is the gradient itself: dampened like those of later steps, it is noticed.
    const double dampened_too = drift_after_fifty_steps("dampening", cases[2].options, 1).parameters;
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
    const auto message = [](const SgdOptions& options) -> std::string {
        try {
            sgd(options);
        } catch (const UserError& error) {
            return error.what();
        }
        return "accepted";
    };
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
    EXPECT_EQ(message({.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}), "accepted");
}

struct Setting {
    std::string policy;
    std::int64_t accumulate;
    SgdOptions options;
};

Gpt2Training options_of(const Setting& setting) {
    Gpt2Training options{
        .model = {.name = "small", .layers = 2, .heads = 2, .channels = 16, .vocabulary = 64, .context = 16},
        .batch = 2,
        .sequence = 16,
        .accumulate = setting.accumulate,
        .optimizer = clipped(sgd(setting.options), 1.0)};
    options.policy = find_policy(setting.policy);
    options.passes = testing::plain_and({{"lay_out", true}});
    options.loss_scale = default_loss_scale(options.policy);
    return options;
}

struct Tokens {
    std::vector<std::int32_t> tokens, targets;

    Tokens(const Trainer& trainer, int shift) {
        for (std::int64_t i = 0; i < trainer.plan().units_per_step(); ++i) {
            tokens.push_back(static_cast<std::int32_t>((i * i / 3 + i + shift) % 64));
            targets.push_back(static_cast<std::int32_t>((i * 5 + shift) % 64));
        }
    }
};

bool applied(Trainer& trainer, int shift) {
    const Tokens given(trainer, shift);
    return trainer.step({given.tokens, given.targets}, 1e-2).applied;
}

/// Everything but the loss scale, which a bad step lowers, and sums of gradients, which mean nothing by then.
std::map<std::string, std::vector<std::byte>> states_of(Trainer& trainer) {
    std::map<std::string, std::vector<std::byte>> values;
    for (const State& state : trainer.state().states())
        if (!state.name.starts_with("loss_scale.") && state.kind != State::Kind::gradient)
            values[state.name] = trainer.state().read(state.name);
    return values;
}

const std::string poisoned = "h.1.mlp.c_fc.weight";

/// Makes gradients infinite or none, and what is derived follow.
void poison(Trainer& trainer) {
    std::vector<float> weight = trainer.state().read_f32(poisoned);
    weight[5] = std::numeric_limits<float>::infinity();
    trainer.state().write(poisoned, std::as_bytes(std::span<const float>(weight)));
    const Tokens given(trainer, 0);
    trainer.look_into({given.tokens, given.targets}, [](Execution&) {});
}

void expect_no_trace_of_a_bad_step(Device& device, const Setting& setting) {
    Trainer trainer = gpt2_trainer(device, options_of(setting)),
            healthy = gpt2_trainer(device, options_of(setting));
    const bool scales = setting.policy == "fp16";
    for (Trainer* each : {&trainer, &healthy}) EXPECT_TRUE(applied(*each, 0));
    const std::vector<std::byte> good = trainer.state().read(poisoned);
    poison(trainer);
    const auto before = states_of(trainer);
    const double scale = trainer.loss_scale().scale;
    EXPECT_FALSE(applied(trainer, 1));
    EXPECT_TRUE(states_of(trainer) == before);
    EXPECT_EQ(trainer.loss_scale().scale, scales ? scale / 2 : scale);
    // The copies of other parameters, and buffers, were there to be spoilt, and a good step changes them.
    const std::string copy = (scales ? "f16." : "bf16.") + std::string("h.0.mlp.c_fc.weight");
    EXPECT_EQ(before.contains(copy), setting.policy != "fp32");
    EXPECT_EQ(before.contains("sgd.momentum." + poisoned), setting.options.momentum > 0);
    trainer.state().write(poisoned, good);
    for (Trainer* each : {&trainer, &healthy}) EXPECT_TRUE(applied(*each, 2));
    const auto after = states_of(trainer);
    for (const auto& [name, bytes] : before)
        EXPECT_EQ(after.at(name) == bytes, name.starts_with("gradient.")) << name;  // zero between steps
    // At another loss scale gradients are rounded otherwise.
    EXPECT_TRUE(scales || after == states_of(healthy));
}

TEST(Sgd, AStepThatIsNotFiniteLeavesNoTrace) {
    const auto device = make_cpu_device({.threads = 2});
    const SgdOptions momentum{.momentum = 0.9, .dampening = 0.1, .weight_decay = 0.1};
    for (const Setting& setting :
         {Setting{"fp32", 1, momentum}, Setting{"bf16", 1, momentum}, Setting{"bf16", 3, momentum},
          Setting{"fp16", 1, momentum}, Setting{"fp16", 2, momentum}, Setting{"bf16", 1, {}}}) {
        SCOPED_TRACE(setting.policy + ", accumulate " + std::to_string(setting.accumulate));
        expect_no_trace_of_a_bad_step(*device, setting);
    }
}

}  // namespace
}  // namespace mantissa
