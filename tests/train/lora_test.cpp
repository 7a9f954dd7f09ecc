// Adapters of low rank: they alone are trained, the trunk is kept once in the policy's format, and nothing of
// the step computes what only a trained trunk would need. Numbers beside PEFT's: lora_fixture_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/nn/layers.h"
#include "mantissa/nn/lora.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::error_of;

/// Two layers and a head.
nn::Model lora_network() {
    nn::Model model{.name = "network", .inputs = {{"x", DType::f32, {12}}, {"y", DType::i32, {}}}};
    model.loss = [](Tensor x, Tensor y) {
        x = gelu(nn::linear(x, "first", {.outputs = 16, .standard_deviation = 0.4}));
        x = gelu(nn::linear(x, "second", {.outputs = 24, .standard_deviation = 0.4}));
        return cross_entropy(nn::linear(x, "head", {.outputs = 4, .standard_deviation = 0.4}), y);
    };
    return model;
}

struct LoraData {
    std::vector<float> x;
    std::vector<std::int32_t> y;
    explicit LoraData(std::int64_t examples, int seed = 0) {
        for (std::int64_t i = 0; i < 12 * examples; ++i)
            x.push_back(static_cast<float>((i * 37 + seed * 11) % 23) / 11.0f - 1.0f);
        for (std::int64_t i = 0; i < examples; ++i) y.push_back(static_cast<std::int32_t>((i + seed) % 4));
    }
    Batch batch() const { return {x, y}; }
};

TEST(Lora, AdaptersAloneAreTrained) {
    const auto device = make_cpu_device({.threads = 2});
    for (const char* policy : {"fp32", "bf16", "fp16"})
        for (const std::int64_t accumulate : {1, 3}) {
            Trainer trainer(*device, lora_network(),
                            {.batch = 4,
                             .accumulate = accumulate,
                             .policy = policy,
                             .lora = nn::LoraOptions{.rank = 3, .alpha = 6, .dropout = 0.1},
                             .ema_decay = 0.9});
            const auto before = testing::states_of(trainer, is_weight);
            int applied = 0;
            for (int step = 0; step < 5; ++step)
                applied += trainer.step(LoraData(4 * accumulate, step).batch(), 1e-2).applied;
            ASSERT_GT(applied, 1) << policy;
            for (const auto& [name, bytes] : testing::states_of(trainer, is_weight))
                EXPECT_EQ(bytes != before.at(name), name.find(".lora_") != name.npos) << name << policy;
            std::set<std::string> moments;
            for (const State& state : trainer.state().states())
                if (state.name.starts_with("adamw.m.")) moments.insert(state.name.substr(8));
            EXPECT_EQ(moments, (std::set<std::string>{"first.lora_A.weight", "first.lora_B.weight",
                                                      "second.lora_A.weight", "second.lora_B.weight"}));
        }
}

TEST(Lora, BeginsAsTheModelItself) {
    const auto device = make_cpu_device({.threads = 1});
    const LoraData data(4);
    const Evaluation own = Trainer(*device, lora_network(), {.batch = 4}).evaluate(data.batch());
    Trainer adapted(*device, lora_network(), {.batch = 4, .lora = nn::LoraOptions{.rank = 3}});
    EXPECT_FLOAT_EQ(adapted.evaluate(data.batch()).loss, own.loss);
    for (int step = 0; step < 40; ++step) adapted.step(data.batch(), 1e-2);
    EXPECT_LT(adapted.evaluate(data.batch()).loss, 0.7f * own.loss);
}

/// Norms of the rows of a matrix in FP64.
std::vector<double> row_norms(const std::vector<float>& values, std::size_t rows) {
    std::vector<double> norms(rows);
    const std::size_t inputs = values.size() / rows;
    for (std::size_t i = 0; i < values.size(); ++i)
        norms[i / inputs] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    for (double& norm : norms) norm = std::sqrt(norm);
    return norms;
}

TEST(Lora, MagnitudesBeginAsTheNormsOfWeightsHoweverTheseCameThere) {
    const auto device = make_cpu_device({.threads = 1});
    const LoraData data(4);
    const nn::LoraOptions lora{.rank = 3, .magnitudes = true};
    const Evaluation own = Trainer(*device, lora_network(), {.batch = 4}).evaluate(data.batch());
    Trainer adapted(*device, lora_network(), {.batch = 4, .lora = lora});
    EXPECT_NEAR(adapted.evaluate(data.batch()).loss, own.loss, 1e-6 * own.loss);
    const auto expect_norms = [&] {
        const std::vector<float> magnitudes = adapted.state().read_f32("first.lora_magnitude_vector");
        const std::vector<double> norms = row_norms(adapted.state().read_f32("first.weight"), 16);
        for (std::size_t i = 0; i < norms.size(); ++i)
            EXPECT_FLOAT_EQ(magnitudes[i], static_cast<float>(norms[i]));
    };
    expect_norms();
    // Others, and a row of zeros, which stays one.
    std::vector<float> weight = adapted.state().read_f32("first.weight");
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = i < 12 ? 0 : 2 * weight[i];
    adapted.state().write("first.weight", std::as_bytes(std::span(weight)));
    expect_norms();
    for (int step = 0; step < 40; ++step) EXPECT_TRUE(adapted.step(data.batch(), 1e-2).applied);
    EXPECT_LT(adapted.evaluate(data.batch()).loss, 0.7f * own.loss);
    EXPECT_EQ(adapted.state().read_f32("first.weight"), weight);
}

/// With dropout, sums of micro-batches, averages and another format.
TEST(Lora, MagnitudesAreTrained) {
    const auto device = make_cpu_device({.threads = 2});
    for (const char* policy : {"fp32", "bf16", "fp16"}) {
        Trainer trainer(*device, lora_network(),
                        {.batch = 4,
                         .accumulate = 3,
                         .policy = policy,
                         .lora = nn::LoraOptions{.rank = 3, .alpha = 6, .dropout = 0.1, .magnitudes = true},
                         .ema_decay = 0.9});
        const auto before = testing::states_of(trainer, is_weight);
        for (int step = 0; step < 5; ++step) trainer.step(LoraData(12, step).batch(), 1e-2);
        for (const auto& [name, bytes] : testing::states_of(trainer, is_weight))
            EXPECT_EQ(bytes != before.at(name), name.find(".lora_") != name.npos) << name << policy;
    }
}

TEST(Lora, TheTrunkIsKeptOnceInThePolicysFormat) {
    const auto device = make_cpu_device({.threads = 1});
    const nn::Model model = nn::language_model("llama-tiny").on_sequences(16);
    for (const auto& [policy, size] : {std::pair{"fp32", 4}, {"bf16", 2}, {"fp16", 2}}) {
        const TrainingPlan plan(*device, model,
                                {.batch = 1, .policy = policy, .lora = nn::LoraOptions{.rank = 2}});
        for (const State& state : plan.step().graph().states()) {
            if (is_own_weight(state)) {
                EXPECT_EQ(size_of(state.type.dtype), state.type.shape.rank() < 2 ? 4 : size) << state.name;
            } else {
                EXPECT_TRUE(state.name.find("lora_") != state.name.npos || state.type.shape.rank() == 0)
                    << state.name << " " << policy;
            }
        }
    }
}

TEST(Lora, NothingIsMultipliedForTheTrunksGradients) {
    const auto device = make_cpu_device({.threads = 1});
    const TrainingPlan plan(*device, lora_network(),
                            {.batch = 4,
                             .passes = std::vector<std::string>{"simplify"},
                             .lora = nn::LoraOptions{.rank = 2, .layers = {"*"}}});
    // Forward, and the gradient of its input, but for the first layer. An adapter: forward, its two
    // gradients, that of its middle, and that of its input, but for the first layer.
    const double first = 2.0 * 12 * 16, second = 2.0 * 16 * 24, head = 2.0 * 24 * 4;
    const auto ends = [](double inputs, double outputs) { return 2.0 * 2 * (inputs + outputs); };
    const double adapters = 3 * (ends(12, 16) + ends(16, 24) + ends(24, 4)) - 2.0 * 2 * 12;
    EXPECT_EQ(testing::planned_flops(plan), 4 * (first + 2 * second + 2 * head + adapters));
    EXPECT_EQ(plan.facts().flops_per_example, first + 2 * second + 2 * head + adapters);
    EXPECT_EQ(plan.facts().frozen, 12 * 16 + 16 + 16 * 24 + 24 + 24 * 4 + 4);
    EXPECT_EQ(plan.facts().parameters - plan.facts().frozen, 2 * (12 + 16 + 16 + 24 + 24 + 4));
}

TEST(Lora, ScalesAreAlphaByRankOrItsRoot) {
    const nn::LoraOptions options{.rank = 4, .alpha = 8, .others = {{"h.*", 16, 4.0}, {"*.b", 9}}};
    EXPECT_EQ(nn::adapter_of(options, "a").scale, 2);
    EXPECT_EQ(nn::adapter_of(options, "h.b").scale, 0.25);
    EXPECT_EQ(nn::adapter_of(options, "x.b").rank, 9);
    EXPECT_EQ(nn::adapter_of(options, "x.b").scale, 1);
    nn::LoraOptions stabilized = options;
    stabilized.rank_stabilized = true;
    EXPECT_EQ(nn::adapter_of(stabilized, "a").scale, 4);
    EXPECT_EQ(nn::adapter_of(stabilized, "h.b").scale, 1);
}

TEST(Lora, RefusesInOneLineEach) {
    const auto device = make_cpu_device({.threads = 1});
    const auto said = [&](const nn::LoraOptions& lora, std::vector<std::string> frozen = {}) {
        return error_of(
            [&] { TrainingPlan(*device, lora_network(), {.batch = 4, .frozen = frozen, .lora = lora}); });
    };
    EXPECT_EQ(said({.rank = 0}), "`lora` must be a rank of 1 to 65536, got 0");
    EXPECT_EQ(said({.alpha = 0.0}), "`lora_alpha` must be above 0 and finite, got 0");
    EXPECT_EQ(said({.dropout = 1}), "`lora_dropout` must lie in [0, 1), got 1");
    EXPECT_EQ(
        said({.layers = {"first", "attn.*"}}),
        "LoRA: 'attn.*' names no layer for an adapter; those that can have one are first, second, head");
    EXPECT_EQ(said({}, {"first.*"}), "`lora` freezes all weights but the adapters': leave `frozen` out");
    nn::Model one{.name = "one", .inputs = {{"x", DType::f32, {12}}}};
    one.loss = [](Tensor x) { return mean(nn::linear(x, "only", {.outputs = 2})); };
    EXPECT_EQ(error_of([&] { TrainingPlan(*device, one, {.lora = nn::LoraOptions{}}); }),
              "LoRA leaves the last layer out unless it is named: name it; those that can have one are only");
    one.loss = [](Tensor x) { return mean(x * nn::parameter(x.graph(), "weight", {12}, {})); };
    EXPECT_EQ(
        error_of([&] { TrainingPlan(*device, one, {.lora = nn::LoraOptions{}}); }),
        "LoRA adapts linear layers and convolutions, and the model has none but those that an embedding "
        "shares");
}

}  // namespace
}  // namespace mantissa
