// Muon against PyTorch: 50 steps of a small network with each option, as computed in FP64 by
// bench/peers/muon_fixture.py, whose copy of the algorithm runs in any format. And which parameters it takes.
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/optimizer_update.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/passes/expand.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/gpt2.h"
#include "tests/support/largest_difference.h"
#include "tests/support/passes.h"
#include "tests/support/torch_fixture.h"
#include "tests/train/torch_drift.h"

namespace mantissa {
namespace {

using testing::Drift;
using testing::largest_difference;
using testing::part;
using testing::tolerance;

/// mean((tanh(x A^T + bias) B^T - y)^2)
struct TwoLayers {
    static constexpr std::int64_t steps = 50, batch = 24, inputs = 11, hidden = 6, outputs = 9;
    static constexpr float learning_rate = 0.02f;

    static Tensor loss(Graph& graph) {
        const auto parameter = [&](const char* name, Shape shape) {
            return Tensor(graph,
                          graph.add_state({.name = name, .type = {DType::f32, shape}, .initializer = {}}));
        };
        const Tensor x(graph, graph.add_input("x", {DType::f32, {batch, inputs}}));
        const Tensor y(graph, graph.add_input("y", {DType::f32, {batch, outputs}}));
        const Tensor a = parameter("a", {hidden, inputs}), b = parameter("b", {outputs, hidden});
        const Tensor bias = parameter("bias", {hidden});
        const Tensor inner = tanh(matmul(x, a, {.transpose_b = true, .bias = bias}));
        const Tensor error = matmul(inner, b, {.transpose_b = true}) - y;
        return mean(error * error, {0, 1});
    }
};

MuonOptions muon_options(double momentum, bool nesterov, double decay, MuonOptions::Rates rates) {
    return {.momentum = momentum,
            .nesterov = nesterov,
            .weight_decay = decay,
            .rates = rates,
            .in_bf16 = false,
            .others = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0}};
}

struct MuonCase {
    const char* name;
    MuonOptions options;
};
std::vector<MuonCase> muon_cases() {
    using enum MuonOptions::Rates;
    return {{"plain", muon_options(0.95, true, 0, original)},
            {"without_nesterov", muon_options(0.9, false, 0, original)},
            {"matching", muon_options(0.95, true, 0.1, like_adamw)}};
}

/// How far losses, and parameters after the last step, are from those of the fixture's case.
Drift drift_of_muon(const std::string& name, const MuonOptions& options) {
    const TorchFixture fixture("muon");
    const auto device = make_cpu_device({.threads = 2});
    const Graph graph = build_training_step(TwoLayers::loss, optimizer_update(muon(options))).graph;
    const Plan plan(
        expand(graph, [&](const Graph& g,
                          const Node& node) { return !machine_for_passes(*device).has_kernel(g, node); }),
        *device);
    StateBlock state(*device, plan.graph().states());
    state.initialize(0);
    for (const char* parameter : {"a", "b", "bias"})
        state.write(parameter, std::as_bytes(std::span<const float>(fixture.values<float>(parameter))));
    const auto arena = device->allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
    Execution execution(plan, state, *arena);
    execution.set_input("learning_rate", std::span<const float>(&TwoLayers::learning_rate, 1));
    const auto x = fixture.values<float>("x"), y = fixture.values<float>("y");
    const auto losses = fixture.values<double>("losses." + name);
    Drift drift;
    for (std::int64_t step = 0; step < TwoLayers::steps; ++step) {
        execution.set_input("x", part(x, step, TwoLayers::batch * TwoLayers::inputs));
        execution.set_input("y", part(y, step, TwoLayers::batch * TwoLayers::outputs));
        execution.run();
        EXPECT_NE(execution.read_result("applied")[0], std::byte{0});
        const double loss = static_cast<double>(execution.read_scalar("loss"));
        drift.losses = std::max(drift.losses, std::abs(loss - losses[static_cast<std::size_t>(step)]));
    }
    for (const std::string parameter : {"a", "b", "bias"})
        drift.parameters =
            std::max(drift.parameters,
                     largest_difference(state.read_f32(parameter), fixture.f32(parameter + "." + name)));
    return drift;
}

TEST(MuonAgainstPyTorch, FiftyStepsInFp32WithEachOption) {
    for (const MuonCase& c : muon_cases()) {
        const Drift drift = drift_of_muon(c.name, c.options);
        EXPECT_LE(drift.losses, tolerance) << c.name;
        EXPECT_LE(drift.parameters, tolerance) << c.name;
    }
}

TEST(MuonAgainstPyTorch, EveryOptionMatters) {
    const auto differs = [](auto alter) {
        MuonOptions options = muon_cases()[2].options;
        alter(options);
        return drift_of_muon("matching", options).parameters > 10 * tolerance;
    };
    EXPECT_TRUE(differs([](MuonOptions& o) { o.momentum = 0.94; }));
    EXPECT_TRUE(differs([](MuonOptions& o) { o.nesterov = false; }));
    EXPECT_TRUE(differs([](MuonOptions& o) { o.weight_decay = 0.09; }));
    EXPECT_TRUE(differs([](MuonOptions& o) { o.iterations = 4; }));
    EXPECT_TRUE(differs([](MuonOptions& o) { o.rates = MuonOptions::Rates::original; }));
    EXPECT_TRUE(differs([](MuonOptions& o) { o.others.beta1 = 0.89; }));
}

TEST(MuonAgainstPyTorch, InBf16NoFurtherFromFp64ThanTwiceTheirs) {
    const SafetensorsFile file(MANTISSA_SOURCE_DIR "/tests/fixtures/muon.safetensors");
    for (MuonCase c : muon_cases()) {
        c.options.in_bf16 = true;
        const Drift drift = drift_of_muon(c.name, c.options);
        EXPECT_LE(drift.parameters, 2 * std::stod(file.metadata().at(std::string("pytorch.") + c.name)))
            << c.name;
        EXPECT_GT(drift.parameters, tolerance) << c.name << ": is it BF16?";
    }
}

/// Names of the states that hold Muon's buffers.
std::set<std::string> taken_by_muon(const nn::Model& model, bool fuse_linear_cross_entropy) {
    const auto device = make_cpu_device({.threads = 1});
    TrainerOptions options{.optimizer = muon(), .batch = 1};
    options.passes = testing::plain_and({{"fuse_linear_cross_entropy", fuse_linear_cross_entropy}});
    const TrainingPlan plan(*device, model, options);
    std::set<std::string> names;
    for (const State& state : plan.step().graph().states())
        if (state.name.starts_with("muon.buffer.")) names.insert(state.name.substr(12));
    return names;
}

TEST(Muon, TakesTheMatricesOfHiddenLayersAlone) {
    nn::DecoderConfig llama = nn::decoder_config("llama-tiny");
    llama.parts.layers = 1;
    const std::string layer = "model.layers.0.";
    const std::set<std::string> expected = {
        layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight",
        layer + "self_attn.v_proj.weight", layer + "self_attn.o_proj.weight",
        layer + "mlp.gate_proj.weight",    layer + "mlp.up_proj.weight",
        layer + "mlp.down_proj.weight"};
    for (const bool tied : {false, true})
        for (const bool fuse_linear_cross_entropy : {false, true}) {
            llama.parts.tied = tied;
            EXPECT_EQ(taken_by_muon(nn::decoder_model(llama, 16), fuse_linear_cross_entropy), expected);
        }
    const nn::Gpt2Config gpt2 = [] {
        nn::Gpt2Config one = nn::gpt2_config("gpt2-tiny");
        one.layers = 1;
        return one;
    }();
    EXPECT_EQ(taken_by_muon(nn::gpt2_model(gpt2, 16), false),
              (std::set<std::string>{"h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight",
                                     "h.0.mlp.c_fc.weight", "h.0.mlp.c_proj.weight"}));
}

TEST(Muon, RefusesWhatMakesNoOptimizer) {
    const auto refusal = [](const MuonOptions& options) { return testing::error_of([&] { muon(options); }); };
    EXPECT_EQ(refusal({.momentum = 1}), "Muon's momentum must lie in [0, 1), got 1");
    EXPECT_EQ(refusal({.epsilon = 0}), "Muon's epsilon must be positive and finite in FP32, got 0");
    EXPECT_EQ(refusal({.iterations = 0}), "Muon's iterations must be between 1 and 20, got 0");
    EXPECT_EQ(refusal({.weight_decay = -1}), "weight decay must be 0 or more and finite in FP32, got -1");
    EXPECT_EQ(refusal({.others = {.beta1 = 1}}), "betas must lie in [0, 1), got 1");
}

}  // namespace
}  // namespace mantissa
