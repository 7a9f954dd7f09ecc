// LLaMA against transformers: logits, loss, every gradient, 20 steps of AdamW and 64 tokens chosen greedily,
// of two small LLaMAs and a Mistral with odd sizes, as computed in FP64 by bench/peers/llama_fixture.py. This
// oracle shares nothing with the op table.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/formats/safetensors_write.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/trainer.h"
#include "tests/support/nan_memory.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/torch_fixture.h"
#include "tests/train/torch_drift.h"

namespace mantissa {
namespace {

using testing::Drift;
using testing::tolerance;

/// Three heads of queries to one of keys, a head of its own, positions as LLaMA 3's; and heads in pairs, a
/// tied head, positions stretched linearly; and a window of eleven tokens.
const char* const llama_fixtures[] = {"llama_grouped", "llama_tied", "mistral"};

/// A fixture, and the directory that transformers would have saved.
struct Published {
    TorchFixture fixture;
    SafetensorsFile file;
    TemporaryDirectory directory;
    nn::DecoderConfig config;

    explicit Published(const std::string& name)
        : fixture(name), file(MANTISSA_SOURCE_DIR "/tests/fixtures/" + name + ".safetensors") {
        std::ofstream(directory / "config.json") << file.metadata().at("config.json");
        std::vector<TensorView> weights;
        for (const TensorView& tensor : file.views())
            if (tensor.name.starts_with("model.") || tensor.name.starts_with("lm_head."))
                weights.push_back(tensor);
        write_safetensors(directory / "model.safetensors", weights, {{"format", "pt"}});
        config = nn::decoder_config_of(directory.path());
    }
    double number(const std::string& name) const { return std::stod(file.metadata().at(name)); }
    std::vector<std::int32_t> ids(const char* name) const { return fixture.values<std::int32_t>(name); }
};

Graph llama_gradients(const nn::DecoderConfig& config) {
    return testing::gradients_graph(37, [&](Tensor tokens) { return nn::decoder_logits(config, tokens); });
}

std::vector<double> expected_of(const Published& published, const std::string& result) {
    return result == "loss" ? published.fixture.values<double>("loss") : published.fixture.f32(result);
}

/// The largest relative error of all results, by the reference.
double reference_error(const Published& published, const nn::DecoderConfig& config) {
    const Graph graph = llama_gradients(config);
    ReferenceFeed feed;
    for (const State& state : graph.states()) feed[state.name] = published.fixture.f32(state.name);
    for (const char* name : {"tokens", "targets"}) {
        const auto ids = published.ids(name);
        feed[name] = {ids.begin(), ids.end()};
    }
    const ReferenceRun run(graph, feed);
    double worst = 0;
    for (const Result& result : graph.results())
        worst =
            std::max(worst, relative_error(run[result.value].values, expected_of(published, result.name)));
    return worst;
}

TEST(LlamaAgainstTransformers, TheReferenceAgrees) {
    for (const char* name : llama_fixtures) {
        const Published published(name);
        // Theirs has cosines and sines in FP32, by 6e-8, of which each layer passes on what it amplifies.
        EXPECT_LE(reference_error(published, published.config), 2e-6) << name;
    }
}

TEST(LlamaAgainstTransformers, EveryPartOfTheConfigurationMatters) {
    const Published published("llama_grouped");
    const auto altered = [&](auto alter) {
        nn::DecoderConfig config = published.config;
        alter(config.parts);
        return reference_error(published, config);
    };
    EXPECT_GT(altered([](nn::Decoder& s) { s.epsilon = 2e-5; }), tolerance);
    EXPECT_GT(altered([](nn::Decoder& s) { s.rotary.theta *= 1.01; }), tolerance);
    EXPECT_GT(altered([](nn::Decoder& s) { s.rotary.factor *= 1.01; }), tolerance);
    EXPECT_GT(altered([](nn::Decoder& s) { s.rotary.low_frequency_factor *= 1.01; }), tolerance);
    EXPECT_GT(altered([](nn::Decoder& s) { s.rotary.high_frequency_factor *= 1.01; }), tolerance);
    EXPECT_GT(altered([](nn::Decoder& s) { s.rotary.original_context += 1; }), tolerance);
    EXPECT_GT(altered([](nn::Decoder& s) { s.rotary.kind = nn::Rotary::Kind::linear; }), tolerance);
    const Published mistral("mistral");
    EXPECT_EQ(mistral.config.parts.window, 11);
    for (const std::int64_t window : {0, 10, 12}) {
        nn::DecoderConfig other = mistral.config;
        other.parts.window = window;
        EXPECT_GT(reference_error(mistral, other), tolerance) << window;
    }
    const Published linear("llama_tied");
    nn::DecoderConfig config = linear.config;
    config.parts.rotary.factor *= 1.01;
    EXPECT_GT(reference_error(linear, config), tolerance);
}

TEST(LlamaAgainstTransformers, LogitsLossAndEveryGradient) {
    for (const char* name : llama_fixtures) {
        const Published published(name);
        const auto device = make_cpu_device({.threads = 2});
        const Plan plan(expand(llama_gradients(published.config),
                               [&](const Graph& graph, const Node& node) {
                                   return !machine_for_passes(*device).has_kernel(graph, node);
                               }),
                        *device);
        StateBlock state(*device, plan.graph().states());
        ModelFile(published.directory.path()).load(state);
        const auto arena = testing::nan_memory(*device, plan.memory().arena_bytes);
        Execution execution(plan, state, *arena);
        for (const char* input : {"tokens", "targets"})
            execution.set_input(input, std::span<const std::int32_t>(published.ids(input)));
        execution.run();
        for (const Result& result : plan.graph().results()) {
            const std::vector<std::byte> bytes = execution.read_result(result.name);
            std::vector<float> values(bytes.size() / sizeof(float));
            std::memcpy(values.data(), bytes.data(), bytes.size());
            EXPECT_LE(relative_error({values.begin(), values.end()}, expected_of(published, result.name)),
                      tolerance)
                << name << ": " << result.name;
        }
    }
}

/// As after twenty steps of GPT-2, parameters of less than 1 are held to its own size.
constexpr double parameter_floor = 1;
Drift drift_of_llama(const Published& published, double learning_rate, const char* policy, double floor) {
    const auto device = make_cpu_device({.threads = 2});
    TrainerOptions options{.optimizer = adamw({.beta1 = published.number("beta1"),
                                               .beta2 = published.number("beta2"),
                                               .epsilon = published.number("epsilon"),
                                               .weight_decay = published.number("weight_decay")}),
                           .batch = 2};
    options.policy = policy;
    options.passes = {"simplify"};  // autocast alone, as theirs
    Trainer trainer(*device, nn::decoder_model(published.config, 37), options);
    ModelFile(published.directory.path()).load(trainer.state());
    return testing::drift_of_steps(trainer, published.fixture, learning_rate, floor);
}

TEST(LlamaAgainstTransformers, TwentyStepsOfAdamW) {
    for (const char* name : llama_fixtures) {
        const Published published(name);
        const Drift drift = drift_of_llama(published, 1e-3, "fp32", parameter_floor);
        EXPECT_LE(drift.losses, tolerance) << name;
        EXPECT_LE(drift.parameters, tolerance) << name;
    }
}

TEST(LlamaAgainstTransformers, ALearningRateOffByOnePercentIsCaught) {
    const Drift drift = drift_of_llama(Published("llama_grouped"), 1.01e-3, "fp32", parameter_floor);
    EXPECT_GT(drift.losses, tolerance);
    EXPECT_GT(drift.parameters, tolerance);
}

TEST(LlamaAgainstTransformers, TwentyStepsInBf16AreNoFurtherThanTwiceTheirs) {
    for (const char* name : llama_fixtures) {
        const Published published(name);
        const Drift drift = drift_of_llama(published, 1e-3, "bf16", 0);
        EXPECT_LE(drift.losses, 2 * published.number("bf16_losses")) << name;
        EXPECT_LE(drift.parameters, 2 * published.number("bf16_after")) << name;
        EXPECT_GT(drift.losses, tolerance) << name << ": is it BF16?";
    }
}

std::vector<std::int32_t> continued(const Published& published, const ModelFile& file) {
    const auto device = make_cpu_device({.threads = 2});
    const std::vector<std::int32_t> prompt = published.ids("prompt");
    TokenGenerator generator(*device, file.model(), static_cast<std::int64_t>(prompt.size()));
    StateBlock parameters(*device, generator.parameters());
    file.load(parameters);
    generator.allocate(parameters);
    return generate(generator, prompt, {.sampling = {.temperature = 0}, .length = 64},
                    [](std::int32_t) { return true; })
        .tokens;
}

TEST(LlamaAgainstTransformers, SixtyFourTokensChosenGreedily) {
    for (const char* name : llama_fixtures) {
        const Published published(name);
        EXPECT_EQ(continued(published, ModelFile(published.directory.path())), published.ids("generated"))
            << name;
    }
}

}  // namespace
}  // namespace mantissa
