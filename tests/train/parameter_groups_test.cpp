// Frozen parameters, groups with their own rate and decay, and averaged weights: 50 steps of AdamW against
// the same in FP64, written here by the papers' formulas, on gradients of the reference evaluator; and
// against PyTorch.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/nn/layers.h"
#include "mantissa/passes/differentiate.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/ema.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/largest_difference.h"
#include "tests/support/torch_fixture.h"
#include "tests/train/torch_drift.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::tolerance;

/// How large the network is, and how it is trained.
struct ThreeLayers {
    static constexpr std::int64_t steps = 50, batch = 6, inputs = 5, outputs = 3;
    static constexpr double learning_rate = 0.02;
};

/// mean((W3 tanh(W2 tanh(W1 x)) - y)^2), with biases.
nn::Model three_layers() {
    nn::Model model{
        .name = "three",
        .inputs = {{"x", DType::f32, {ThreeLayers::inputs}}, {"y", DType::f32, {ThreeLayers::outputs}}}};
    model.loss = [](Graph&, std::span<const Tensor> in, const nn::Mode&) {
        const auto layer = [](Tensor x, const char* name, std::int64_t count) {
            return nn::linear(x, name, {.outputs = count, .standard_deviation = 0.5});
        };
        const Tensor hidden = tanh(layer(tanh(layer(in[0], "first", 8)), "second", 7));
        const Tensor error = layer(hidden, "head", ThreeLayers::outputs) - in[1];
        return mean(error * error, {0, 1});
    };
    return model;
}

std::vector<float> sines_of_squares(std::int64_t count, double phase) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i)
        values.push_back(static_cast<float>(std::sin(0.9 * static_cast<double>(i * i % 101) + phase)));
    return values;
}

struct RegressionData {
    std::vector<float> x, y;
    explicit RegressionData(std::int64_t step)
        : x(sines_of_squares(ThreeLayers::batch * ThreeLayers::inputs, 0.3 * static_cast<double>(step))),
          y(sines_of_squares(ThreeLayers::batch * ThreeLayers::outputs,
                             1 + 0.2 * static_cast<double>(step))) {}
};

using Weights = std::map<std::string, std::vector<double>>;

/// How one parameter is trained.
struct GroupSetting {
    double factor = 1, decay = 0;
    bool frozen = false;
};

GroupSetting setting_of(const std::string& name) {
    if (name.starts_with("first.")) return {.frozen = true};
    if (name.starts_with("head.")) return {.factor = 3, .decay = 0.05};
    if (name.ends_with(".bias")) return {.factor = 0.5, .decay = 0};
    return {.factor = 1, .decay = 0.1};
}

TrainerOptions chosen() {
    return {.optimizer = grouped(adamw({.weight_decay = 0.1}),
                                 {{.pattern = "head.*", .learning_rate_factor = 3, .weight_decay = 0.05},
                                  {.pattern = "*.bias", .learning_rate_factor = 0.5}}),
            .batch = ThreeLayers::batch,
            .frozen = {"first.*"},
            .ema_decay = 0.8};
}

/// AdamW as Loshchilov and Hutter have it, and the average as torch.optim.swa_utils.AveragedModel.
class InFp64 {
  public:
    explicit InFp64(Weights weights) : weights_(std::move(weights)) {
        gradients_ = differentiate(graph_, nn::trace_loss(three_layers(), graph_, ThreeLayers::batch));
    }

    void step(const RegressionData& data, GroupSetting (*setting)(const std::string&)) {
        ReferenceFeed feed(weights_.begin(), weights_.end());
        feed["x"] = {data.x.begin(), data.x.end()};
        feed["y"] = {data.y.begin(), data.y.end()};
        const ReferenceRun run(graph_, feed);
        ++steps_;
        for (const ParameterGradient& each : gradients_) {
            const std::string& name = graph_.state(each.state).name;
            if (!setting(name).frozen) update(name, setting(name), run[each.gradient.value()].values);
        }
    }

    const Weights& weights() const { return weights_; }
    const Weights& averages() const { return averages_; }

  private:
    void update(const std::string& name, const GroupSetting& setting, const std::vector<double>& gradient) {
        constexpr double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, kept = 0.8;
        std::vector<double>&p = weights_[name], &m = m_[name], &v = v_[name], &average = averages_[name];
        m.resize(p.size()), v.resize(p.size());
        const double rate = ThreeLayers::learning_rate * setting.factor;
        for (std::size_t i = 0; i < p.size(); ++i) {
            m[i] = beta1 * m[i] + (1 - beta1) * gradient[i];
            v[i] = beta2 * v[i] + (1 - beta2) * gradient[i] * gradient[i];
            p[i] -= rate * setting.decay * p[i];
            p[i] -= rate * (m[i] / (1 - std::pow(beta1, steps_))) /
                    (std::sqrt(v[i] / (1 - std::pow(beta2, steps_))) + epsilon);
        }
        if (steps_ == 1) average = p;
        for (std::size_t i = 0; i < p.size(); ++i) average[i] = kept * average[i] + (1 - kept) * p[i];
    }

    Graph graph_;
    std::vector<ParameterGradient> gradients_;
    Weights weights_, m_, v_, averages_;
    double steps_ = 0;
};

Weights weights_of(const StateBlock& state) {
    Weights weights;
    for (const State& each : state.states()) {
        if (each.kind != State::Kind::parameter) continue;
        const std::vector<float> values = state.read_f32(each.name);
        weights[each.name] = {values.begin(), values.end()};
    }
    return weights;
}

double difference_of_weights(const Weights& got, const Weights& expected) {
    double worst = 0;
    for (const auto& [name, values] : expected)
        worst = std::max(worst, testing::largest_difference(got.at(name), values));
    return worst;
}

struct GroupDrift {
    double weights = 0, averages = 0;
};

/// The largest differences from FP64 in fifty steps; `setting`: what the FP64 side does.
GroupDrift drift(Device& device, TrainerOptions options,
                 GroupSetting (*setting)(const std::string&) = setting_of) {
    Trainer trainer(device, three_layers(), std::move(options));
    InFp64 oracle(weights_of(trainer.state()));
    GroupDrift worst;
    for (std::int64_t step = 0; step < ThreeLayers::steps; ++step) {
        const RegressionData data(step);
        EXPECT_TRUE(trainer.step({data.x, data.y}, ThreeLayers::learning_rate).applied);
        oracle.step(data, setting);
        worst.weights =
            std::max(worst.weights, difference_of_weights(weights_of(trainer.state()), oracle.weights()));
        const AveragedWeights averaged(trainer.state());
        worst.averages =
            std::max(worst.averages, difference_of_weights(weights_of(trainer.state()), oracle.averages()));
    }
    return worst;
}

TEST(ParameterGroups, FiftyStepsAreThoseOfFp64) {
    const auto device = make_cpu_device({.threads = 2});
    const GroupDrift plain = drift(*device, chosen());
    EXPECT_LE(plain.weights, tolerance);
    EXPECT_LE(plain.averages, tolerance);
    TrainerOptions all = chosen();
    all.passes = runnable_passes(device->target(), all.policy);
    const GroupDrift passes = drift(*device, all);
    EXPECT_LE(passes.weights, tolerance);
    EXPECT_LE(passes.averages, tolerance);
}

TEST(ParameterGroups, TheToleranceBites) {
    const auto device = make_cpu_device({.threads = 2});
    const auto otherwise = [](const std::string& name) {
        GroupSetting setting = setting_of(name);
        if (name == "head.weight") setting.decay = 0.051;
        return setting;
    };
    EXPECT_GT(drift(*device, chosen(), otherwise).weights, tolerance);
    TrainerOptions slower = chosen();
    slower.optimizer.groups[1].learning_rate_factor = 0.51;
    EXPECT_GT(drift(*device, slower).weights, tolerance);
    TrainerOptions longer = chosen();
    longer.ema_decay = 0.801;
    const GroupDrift averages = drift(*device, longer);
    EXPECT_LE(averages.weights, tolerance);
    EXPECT_GT(averages.averages, tolerance);
    TrainerOptions thawed = chosen();
    thawed.frozen = {"first.bias"};
    EXPECT_GT(drift(*device, thawed).weights, tolerance);
}

/// The largest differences from PyTorch's FP64 (bench/peers/groups_fixture.py) in the losses of fifty steps,
/// and in weights and averages after the last.
struct PeerDrift {
    double losses = 0, weights = 0, averages = 0;
};

PeerDrift drift_from_pytorch(const std::string& name, const TrainerOptions& options) {
    const TorchFixture fixture("groups");
    const auto device = make_cpu_device({.threads = 2});
    Trainer trainer(*device, three_layers(), options);
    const auto in_file = [&](const std::string& prefix) {
        Weights weights = weights_of(trainer.state());
        for (auto& [parameter, values] : weights) values = fixture.f32(prefix + parameter);
        return weights;
    };
    for (const auto& [parameter, values] : in_file(""))
        trainer.state().write(parameter,
                              std::as_bytes(std::span<const float>(fixture.values<float>(parameter))));
    const auto x = fixture.values<float>("x"), y = fixture.values<float>("y");
    const auto losses = fixture.values<double>("losses." + name);
    PeerDrift worst;
    for (std::size_t step = 0; step < static_cast<std::size_t>(ThreeLayers::steps); ++step) {
        constexpr std::size_t of_x = ThreeLayers::batch * ThreeLayers::inputs,
                              of_y = ThreeLayers::batch * ThreeLayers::outputs;
        const StepResult result =
            trainer.step({std::span(x).subspan(step * of_x, of_x), std::span(y).subspan(step * of_y, of_y)},
                         ThreeLayers::learning_rate);
        EXPECT_TRUE(result.applied);
        worst.losses = std::max(worst.losses, std::abs(static_cast<double>(result.loss) - losses[step]));
    }
    worst.weights = difference_of_weights(weights_of(trainer.state()), in_file(name + "."));
    const AveragedWeights averaged(trainer.state());
    worst.averages = difference_of_weights(weights_of(trainer.state()), in_file(name + ".average."));
    return worst;
}

/// The same groups for SGD.
TrainerOptions chosen_for_sgd() {
    TrainerOptions options = chosen();
    const std::vector<ParameterGroup> groups = options.optimizer.groups;
    options.optimizer = grouped(sgd({.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}), groups);
    options.optimizer.groups[1].weight_decay = 0;
    return options;
}

TEST(ParameterGroupsAgainstPyTorch, FiftyStepsOfAdamWAndSgd) {
    for (const auto& [name, chosen] : {std::pair("adamw", chosen()), std::pair("sgd", chosen_for_sgd())}) {
        for (const bool with_passes : {false, true}) {
            TrainerOptions options = chosen;
            if (!with_passes) options.passes = std::vector<std::string>{"simplify"};
            const PeerDrift drift = drift_from_pytorch(name, options);
            EXPECT_LE(drift.losses, tolerance) << name;
            EXPECT_LE(drift.weights, tolerance) << name;
            EXPECT_LE(drift.averages, tolerance) << name;
        }
    }
}

TEST(ParameterGroupsAgainstPyTorch, TheToleranceBites) {
    const auto otherwise = [](const auto& change) {
        TrainerOptions options = chosen_for_sgd();
        change(options);
        return drift_from_pytorch("sgd", options);
    };
    EXPECT_GT(otherwise([](auto& o) { o.frozen = {"first.weight"}; }).weights, tolerance);
    EXPECT_GT(otherwise([](auto& o) { o.ema_decay = 0.81; }).averages, tolerance);
    EXPECT_GT(otherwise([](auto& o) { o.optimizer.groups[0].weight_decay = 0.051; }).weights, tolerance);
    EXPECT_GT(otherwise([](auto& o) { o.optimizer.groups[1].learning_rate_factor = 0.51; }).weights,
              tolerance);
}

TEST(ParameterGroups, OfEachOptimizerDecayAsTheySay) {
    // With a rate of 0 for its gradient's part nothing is left but what decay does: nothing.
    const auto device = make_cpu_device({.threads = 1});
    for (const Optimizer& optimizer : {adamw(), sgd({.momentum = 0.9, .weight_decay = 0.1}), muon({})}) {
        Trainer trainer(
            *device, three_layers(),
            {.optimizer = grouped(optimizer, {{.pattern = "second.weight", .learning_rate_factor = 0},
                                              {.pattern = "*.weight", .weight_decay = 40}}),
             .batch = ThreeLayers::batch});
        const Weights before = weights_of(trainer.state());
        const RegressionData data(0);
        ASSERT_TRUE(trainer.step({data.x, data.y}, 1.0 / 40).applied);
        const Weights after = weights_of(trainer.state());
        EXPECT_EQ(after.at("second.weight"), before.at("second.weight")) << optimizer.name;
        // 1 - rate times decay is 0: what is left is the step alone, which is far smaller than the weights.
        double largest = 0;
        for (const double x : after.at("head.weight")) largest = std::max(largest, std::abs(x));
        EXPECT_LT(largest, 0.2) << optimizer.name;
        EXPECT_GT(largest, 0) << optimizer.name;
    }
}

TEST(ParameterGroups, WhatBelongsToNobodyIsRefused) {
    const auto device = make_cpu_device({.threads = 1});
    const auto error = [&](std::vector<ParameterGroup> groups) {
        return error_of<UserError>([&] {
            TrainingPlan(*device, three_layers(),
                         {.optimizer = grouped(adamw(), std::move(groups)), .frozen = {"first.*"}});
        });
    };
    EXPECT_EQ(error({{.pattern = "tail.*"}}),
              "group 'tail.*': no parameter that is trained belongs to it, and to no group before it");
    EXPECT_EQ(error({{.pattern = "first.*"}}),
              "group 'first.*': no parameter that is trained belongs to it, and to no group before it");
    EXPECT_EQ(error({{.pattern = "head.*"}, {.pattern = "head.bias"}}),
              "group 'head.bias': no parameter that is trained belongs to it, and to no group before it");
    EXPECT_EQ(error({{.pattern = "head.*", .learning_rate_factor = -1}}),
              "group 'head.*': the factor of the learning rate must be 0 or more and finite in FP32, got -1");
    EXPECT_EQ(error({{.pattern = "head.*", .weight_decay = INFINITY}}),
              "group 'head.*': weight decay must be 0 or more and finite in FP32, got inf");
}

}  // namespace
}  // namespace mantissa
