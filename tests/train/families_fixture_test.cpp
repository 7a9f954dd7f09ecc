// Families of models against transformers: loss, every gradient, 20 steps of AdamW in FP32 and BF16 and 64
// tokens chosen greedily, of a small model or two of each with odd sizes, as bench/peers/families_fixture.py
// computed them in FP64. This oracle shares nothing with the op table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/formats/safetensors_write.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/trainer.h"
#include "tests/support/drawn_weights.h"
#include "tests/support/random_draws.h"
#include "tests/support/rank_threads.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tested_gpu.h"
#include "tests/support/torch_fixture.h"
#include "tests/train/torch_drift.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using testing::drawn;
using testing::tolerance;
using testing::uniform;

constexpr std::size_t samples = 16;

/// Theirs has cosines and sines in FP32, by 6e-8, of which each layer passes on what it amplifies.
constexpr double reference_tolerance = 5e-6;

/// The distance of a tensor from what is stored of it: of some elements and the largest, over the largest
/// (but at least `floor`); and of the sum of all times drawn numbers, for its size.
double far_from(const std::string& name, const std::vector<double>& got, std::span<const double> stored,
                double floor) {
    double most = 0, sum = 0;
    const std::vector<double> probe = uniform("probe " + name, got.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        most = std::max(most, std::abs(got[i]));
        sum += got[i] * probe[i];
    }
    std::vector<double> found;
    for (std::size_t i = 0; i < samples; ++i) found.push_back(got[i * got.size() / samples]);
    found.push_back(most);
    const double size = std::max(stored[samples], floor);
    const double elements = testing::largest_difference(found, std::vector(stored.begin(), stored.end() - 1));
    return std::max(elements / size,
                    std::abs(sum - stored[samples + 1]) / size / std::sqrt(static_cast<double>(got.size())));
}

/// A fixture, and the directory that transformers would have saved.
class FamiliesAgainstTransformers : public ::testing::TestWithParam<std::string> {
  protected:
    FamiliesAgainstTransformers()
        : fixture_("families/" + GetParam()),
          file_(MANTISSA_SOURCE_DIR "/tests/fixtures/families/" + GetParam() + ".safetensors") {
        std::ofstream(directory_ / "config.json") << file_.metadata().at("config.json");
        config_ = nn::decoder_config_of(directory_.path());
        const Graph graph = gradients();
        std::vector<std::vector<float>> values;
        for (const State& state : graph.states())
            values.push_back(drawn(state.name, static_cast<std::size_t>(state.type.shape.elements()),
                                   config_.parts.one_plus));
        std::vector<TensorView> weights;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const State& state = graph.states()[i];
            weights.push_back({.name = state.name,
                               .shape = state.type.shape.extents(),
                               .data = reinterpret_cast<const std::byte*>(values[i].data())});
        }
        write_safetensors(directory_ / "model.safetensors", weights, {{"format", "pt"}});
        std::istringstream names(file_.metadata().at("names"));
        for (std::string name; names >> name;) names_.push_back(name);
    }

    /// Values of parameters and inputs.
    ReferenceFeed feed_of(const Graph& graph) const {
        ReferenceFeed feed;
        for (const State& state : graph.states()) {
            const auto values = drawn(state.name, static_cast<std::size_t>(state.type.shape.elements()),
                                      config_.parts.one_plus);
            feed[state.name] = {values.begin(), values.end()};
        }
        for (const char* name : {"tokens", "targets"}) {
            const auto values = ids(name);
            feed[name] = {values.begin(), values.end()};
        }
        return feed;
    }
    /// The loss by the reference, of other parts.
    double loss_of(const nn::DecoderConfig& config) const {
        Graph graph;
        const Tensor loss =
            nn::trace_loss(nn::decoder_model(config, std::ssize(ids("tokens")) / 2), graph, 2);
        graph.add_result("loss", loss.value());
        return ReferenceRun(graph, feed_of(graph)).result("loss").values[0];
    }

    Graph gradients() const {
        const std::int64_t T = std::ssize(ids("tokens")) / 2;
        return testing::gradients_graph(T,
                                        [&](Tensor tokens) { return nn::decoder_logits(config_, tokens); });
    }
    double number(const std::string& name) const { return std::stod(file_.metadata().at(name)); }
    std::vector<std::int32_t> ids(const char* name) const { return fixture_.values<std::int32_t>(name); }
    /// Smaller tensors are held to this: gradients of keys' biases are zero but for rounding.
    double floor_of(const char* table) const {
        const std::vector<double> all = fixture_.f32(table);
        double most = 0;
        for (std::size_t row = 0; row < names_.size(); ++row)
            most = std::max(most, all[row * (samples + 2) + samples]);
        return most / 100;
    }
    /// The row of a parameter in a table of samples.
    std::vector<double> stored(const char* table, const std::string& name) const {
        const std::vector<double> all = fixture_.f32(table);
        const auto row = std::ranges::find(names_, name) - names_.begin();
        if (row == std::ssize(names_)) {
            ADD_FAILURE() << "theirs has no " << name;
            return std::vector<double>(samples + 2);
        }
        const auto begin = all.begin() + row * static_cast<std::ptrdiff_t>(samples + 2);
        return {begin, begin + static_cast<std::ptrdiff_t>(samples + 2)};
    }

    TrainerOptions options() const {
        return {.optimizer = adamw({.beta1 = number("beta1"),
                                    .beta2 = number("beta2"),
                                    .epsilon = number("epsilon"),
                                    .weight_decay = number("weight_decay")}),
                .batch = 2};
    }
    /// The model in training from the folder's weights.
    Trainer trainer_on(Device& device, const TrainerOptions& options) const {
        Trainer trainer(device, nn::decoder_model(config_, std::ssize(ids("tokens")) / 2), options);
        ModelFile(directory_.path()).load(trainer.state());
        return trainer;
    }

    /// Losses: the root of the mean square of how far each is.
    testing::Drift drift_of_steps(const char* policy, double floor) const {
        const auto device = make_cpu_device({.threads = 2});
        TrainerOptions options = this->options();
        options.policy = policy;
        if (std::string_view(policy) == "bf16") options.passes = {"simplify"};  // autocast alone, as theirs
        const auto tokens = ids("tokens"), targets = ids("targets");
        Trainer trainer = trainer_on(*device, options);
        testing::Drift drift;
        const std::vector<double> losses = fixture_.values<double>("losses");
        for (const double expected : losses) {
            const StepResult result = trainer.step({tokens, targets}, number("learning_rate"));
            EXPECT_TRUE(result.applied);
            const double off = (static_cast<double>(result.loss) - expected) / expected;
            drift.losses += off * off;
        }
        drift.losses = std::sqrt(drift.losses / static_cast<double>(losses.size()));
        for (const State& state : trainer.state().states()) {
            if (state.kind != State::Kind::parameter) continue;
            const std::vector<float> got = trainer.state().read_f32(state.name);
            drift.parameters = std::max(drift.parameters, far_from(state.name, {got.begin(), got.end()},
                                                                   stored("after", state.name), floor));
        }
        return drift;
    }

    TorchFixture fixture_;
    SafetensorsFile file_;
    TemporaryDirectory directory_;
    nn::DecoderConfig config_;
    std::vector<std::string> names_;
};

TEST_P(FamiliesAgainstTransformers, LossAndEveryGradient) {
    const Graph graph = gradients();
    EXPECT_EQ(graph.states().size(), names_.size());
    EXPECT_EQ(nn::facts_of(nn::decoder_model(config_, 8)).parameters, config_.parameters());
    const ReferenceRun run(graph, feed_of(graph));
    for (const Result& result : graph.results()) {
        const std::vector<double>& got = run[result.value].values;
        if (result.name == "loss") {
            EXPECT_NEAR(got[0], fixture_.values<double>("losses")[0], reference_tolerance);
        }
        if (!result.name.starts_with("grad.")) continue;
        const std::string name = result.name.substr(5);
        EXPECT_LE(far_from(name, got, stored("grads", name), floor_of("grads")), reference_tolerance) << name;
    }
}

TEST_P(FamiliesAgainstTransformers, EveryPartMatters) {
    using nn::Decoder;
    const double exact = loss_of(config_);
    EXPECT_NEAR(exact, fixture_.values<double>("losses")[0], reference_tolerance);
    const auto altered = [&](const char* what, auto alter) {
        nn::DecoderConfig other = config_;
        alter(other.parts);
        if (other.parts == config_.parts) return;
        EXPECT_GT(std::abs(loss_of(other) - exact), 2 * reference_tolerance) << what;
    };
    const auto scaled = [&](const char* what, double Decoder::*member) {
        altered(what, [&](Decoder& d) { d.*member *= 1.5; });
    };
    scaled("attention_cap", &Decoder::attention_cap);
    scaled("logits_cap", &Decoder::logits_cap);
    scaled("attention_multiplier", &Decoder::attention_multiplier);
    scaled("embedding_multiplier", &Decoder::embedding_multiplier);
    scaled("residual_multiplier", &Decoder::residual_multiplier);
    scaled("logits_divisor", &Decoder::logits_divisor);
    altered("query_scalar", [](Decoder& d) { d.query_scalar *= 3; });
    altered("root_embedding", [](Decoder& d) { d.root_embedding = false; });
    altered("parallel",
            [&](Decoder& d) { d.parallel = !d.parallel && !config_.family->names.before_mlp.empty(); });
    for (bool Decoder::*bias :
         {&Decoder::bias_qkv, &Decoder::bias_output, &Decoder::bias_mlp, &Decoder::bias_head})
        altered("biases", [&](Decoder& d) { d.*bias = false; });
    altered("bias_norm", [](Decoder& d) { d.bias_norm = !d.layer_norms; });
    altered("window", [](Decoder& d) { d.window += d.window > 0 ? 1 : 0; });
    altered("windowed", [](Decoder& d) { d.windowed.flip(); });
    altered("turned", [](Decoder& d) { d.turned.flip(); });
    altered("one_plus", [](Decoder& d) { d.one_plus = false; });
    altered("activation", [](Decoder& d) {
        d.activation = d.activation == nn::Activation::relu ? nn::Activation::silu : nn::Activation::relu;
    });
    if (config_.parts.learned_positions) return;
    altered("theta", [](Decoder& d) { d.rotary.theta /= 100; });
    altered("factor", [](Decoder& d) {
        using Kind = nn::Rotary::Kind;
        const bool counts = d.rotary.kind == Kind::linear || d.rotary.kind == Kind::yarn;
        d.rotary.factor *= counts ? 2 : 1;
    });
    altered("rotary_of_windows", [](Decoder& d) { d.rotary_of_windows.reset(); });
}

TEST_P(FamiliesAgainstTransformers, TwentyStepsOfAdamW) {
    const testing::Drift drift = drift_of_steps("fp32", 1);
    EXPECT_LE(drift.losses, tolerance);
    // Gradients of keys' biases are rounding noise, of which AdamW makes steps: theirs, too.
    EXPECT_LE(drift.parameters, std::max(tolerance, 2 * number("fp32_after")));
}

TEST_P(FamiliesAgainstTransformers, TwentyStepsInBf16AreNoFurtherThanTwiceTheirs) {
    const testing::Drift drift = drift_of_steps("bf16", floor_of("after"));
    EXPECT_LE(drift.losses, 2 * number("bf16_losses"));
    EXPECT_LE(drift.parameters, 2 * number("bf16_after"));
    EXPECT_GT(drift.losses, tolerance) << "is it BF16?";
}

/// Tests of each third family, whose operations others have, and of all where sweeps are whole.
class FamiliesElsewhere : public FamiliesAgainstTransformers {};

TEST_P(FamiliesElsewhere, TwoStepsOnAGpu) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    const testing::TestedGpu gpu;
    Trainer trainer = trainer_on(*gpu, options());
    const std::vector<double> losses = fixture_.values<double>("losses");
    for (std::size_t step = 0; step < 2; ++step) {
        const StepResult result = trainer.step({ids("tokens"), ids("targets")}, number("learning_rate"));
        EXPECT_NEAR(result.loss, losses[step], tolerance * losses[step]) << "step " << step;
    }
    EXPECT_GT(std::abs(losses[1] - losses[0]), 2 * tolerance * losses[0]) << "a step that is not made passes";
}

TEST_P(FamiliesElsewhere, TwoRanksTrainToTheBitsOfOne) {
    struct Trained {
        std::vector<float> losses;
        std::map<std::string, std::vector<std::byte>> states;
    };
    // A row of the batch is a micro-batch.
    const auto train = [&](Ranks* ranks) {
        const auto device = make_cpu_device({.threads = 1, .ranks = ranks});
        TrainerOptions options = this->options();
        options.batch = 1;
        options.accumulate = ranks ? 1 : 2;
        options.passes = {"simplify"};
        options.ranks = ranks;
        options.states = States::whole;
        Trainer trainer = trainer_on(*device, options);
        const auto rows = [&](const char* name) {
            const std::vector<std::int32_t> all = ids(name);
            const auto half = std::ssize(all) / 2;
            if (!ranks) return all;
            return std::vector(all.begin() + ranks->rank() * half, all.begin() + (ranks->rank() + 1) * half);
        };
        const std::vector<std::int32_t> tokens = rows("tokens"), targets = rows("targets");
        Trained trained;
        for (int step = 0; step < 2; ++step)
            trained.losses.push_back(trainer.step({tokens, targets}, number("learning_rate")).loss);
        for (const State& state : trainer.state().states())
            if (state.kind != State::Kind::gradient)
                trained.states[state.name] = trainer.state().read(state.name);
        return trained;
    };
    const Trained alone = train(nullptr);
    const std::vector<double> losses = fixture_.values<double>("losses");
    for (std::size_t step = 0; step < 2; ++step)
        EXPECT_NEAR(alone.losses[step], losses[step], tolerance * losses[step]) << "step " << step;
    testing::run_good_ranks(2, [&](Ranks& ranks) {
        const Trained together = train(&ranks);
        EXPECT_EQ(together.losses, alone.losses);
        EXPECT_TRUE(together.states == alone.states) << "rank " << ranks.rank();
    });
}

TEST_P(FamiliesAgainstTransformers, SixtyFourTokensChosenGreedily) {
    const auto device = make_cpu_device({.threads = 2});
    const ModelFile file(directory_.path());
    const std::vector<std::int32_t> prompt = ids("prompt");
    TokenGenerator generator(*device, file.model(), std::ssize(prompt));
    StateBlock parameters(*device, generator.parameters());
    file.load(parameters);
    generator.allocate(parameters);
    EXPECT_EQ(generate(generator, prompt, {.sampling = {.temperature = 0}, .length = 64},
                       [](std::int32_t) { return true; })
                  .tokens,
              ids("generated"));
}

/// config.json as it is written says the same model, and all that theirs says.
TEST_P(FamiliesAgainstTransformers, WhatIsWrittenIsRead) {
    const nn::DecoderConfig again = nn::read_decoder_config(nn::decoder_config_text(config_), "ours");
    EXPECT_EQ(again.parts, config_.parts);
    EXPECT_EQ(again.family, config_.family);
}

std::vector<std::string> fixtures() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(MANTISSA_SOURCE_DIR "/tests/fixtures/families"))
        if (entry.path().extension() == ".safetensors") names.push_back(entry.path().stem().string());
    std::ranges::sort(names);
    return names;
}

const auto name_of_family = [](const auto& name) { return name.param; };
INSTANTIATE_TEST_SUITE_P(Models, FamiliesAgainstTransformers, ::testing::ValuesIn(fixtures()),
                         name_of_family);
INSTANTIATE_TEST_SUITE_P(Models, FamiliesElsewhere, ::testing::ValuesIn(testing::some_of(fixtures(), 3)),
                         name_of_family);

/// A row without a case is not supported.
TEST(Families, EachHasACase) {
    std::set<std::string_view> seen = {"gpt2", "mistral"};  // gpt2_fixture_test.cpp, llama_fixture_test.cpp
    for (const std::string& name : fixtures()) {
        const SafetensorsFile file(MANTISSA_SOURCE_DIR "/tests/fixtures/families/" + name + ".safetensors");
        seen.insert(nn::read_decoder_config(file.metadata().at("config.json"), name).family->model_type);
    }
    for (const nn::DecoderFamily* family : nn::decoder_families())
        EXPECT_TRUE(seen.contains(family->model_type)) << family->model_type;
}

}  // namespace
}  // namespace mantissa
