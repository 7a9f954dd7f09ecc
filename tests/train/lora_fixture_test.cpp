// Adapters beside PEFT's: gradients of A and B, 50 steps of AdamW and the merged weights of a small GPT-2, a
// LLaMA with ranks and scales of their own and a Qwen2 with rsLoRA, each with DoRA, too, and of a ResNet's
// convolutions, as bench/peers/lora_fixture.py computed them in FP64; and the files of adapters both ways.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/formats/safetensors_write.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/models/networks.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/adapter_files.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/drawn_weights.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/torch_fixture.h"
#include "tests/train/torch_drift.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using testing::drawn;
using testing::error_of;
using testing::uniform;

/// A tensor's sum of products with numbers drawn by its name, as the fixture has it of PEFT's.
void expect_sum(const TensorView& found, const std::string& name, double expected) {
    const auto count = static_cast<std::size_t>(element_count(found.shape));
    std::vector<float> values(count);
    std::memcpy(values.data(), found.data, count * sizeof(float));
    const std::vector<double> probe = uniform("probe " + name, count);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * probe[i];
    EXPECT_NEAR(sum, expected, 1e-6 * std::sqrt(static_cast<double>(count))) << name;
}

class LoraBesidePeft : public ::testing::TestWithParam<std::string> {
  protected:
    LoraBesidePeft()
        : fixture_("lora_" + GetParam()),
          file_(MANTISSA_SOURCE_DIR "/tests/fixtures/lora_" + GetParam() + ".safetensors") {
        fs::create_directories(base());
        fs::create_directories(adapter());
        std::ofstream(base() / "config.json") << file_.metadata().at("config.json");
        std::ofstream(adapter() / "adapter_config.json") << file_.metadata().at("adapter_config.json");
        write_base();
        std::vector<TensorView> parts;
        for (const TensorView& tensor : file_.views())
            if (tensor.name.starts_with("base_model.")) parts.push_back(tensor);
        write_safetensors(adapter() / "adapter_model.safetensors", parts, {{"format", "pt"}});
    }

    fs::path base() const { return directory_ / "base"; }
    fs::path adapter() const { return directory_ / "adapter"; }
    double number(const std::string& name) const { return std::stod(file_.metadata().at(name)); }
    nlohmann::json shapes() const { return nlohmann::json::parse(file_.metadata().at("shapes")); }

    /// The own weights, as their names draw them.
    void write_base() const {
        std::vector<std::vector<float>> values;
        std::vector<TensorView> weights;
        const nlohmann::json all = shapes();
        for (const auto& [name, shape] : all.items()) {
            const std::vector<std::int64_t> extents = shape;
            values.push_back(drawn(name, static_cast<std::size_t>(element_count(extents)), false));
            weights.push_back({.name = name,
                               .shape = extents,
                               .data = reinterpret_cast<const std::byte*>(values.back().data())});
        }
        write_safetensors(base() / "model.safetensors", weights, {{"format", "pt"}});
    }

    Trainer trainer(const nn::LoraOptions& lora, const char* policy = "fp32") {
        const ModelFile model(base());
        Trainer made(*device_, model.model().on_sequences(29),
                     {.optimizer = adamw({.beta1 = number("beta1"),
                                          .beta2 = number("beta2"),
                                          .epsilon = number("epsilon"),
                                          .weight_decay = number("weight_decay")}),
                      .batch = 2,
                      .policy = policy,
                      .lora = lora});
        model.load(made.state());
        return made;
    }
    AdapterFolder folder(const fs::path& of) const {
        return {of, nn::files_of(ModelFile(base()).model().on_sequences(1))};
    }
    Trainer adapted(const char* policy = "fp32") {
        const AdapterFolder adapters = folder(adapter());
        Trainer made = trainer(adapters.options(), policy);
        adapters.load(made.state());
        return made;
    }
    Batch batch() const { return {tokens_, targets_}; }
    /// Tensors of all adapters.
    std::size_t parts() const {
        const nn::LoraOptions options = folder(adapter()).options();
        return options.layers.size() * (options.magnitudes ? 3 : 2);
    }
    /// The name that PEFT gives a part of an adapter.
    std::string in_file(const Trainer& of, const std::string& part) const {
        return adapter_files(nn::files_of(of.model())).prefix + part;
    }

    TemporaryDirectory directory_;
    TorchFixture fixture_;
    SafetensorsFile file_;
    std::vector<std::int32_t> tokens_ = fixture_.values<std::int32_t>("tokens"),
                              targets_ = fixture_.values<std::int32_t>("targets");
    std::unique_ptr<Device> device_ = make_cpu_device({.threads = 2});
};

TEST_P(LoraBesidePeft, GradientsOfAdapters) {
    Trainer made = adapted();
    const Gradients& gradients = made.gradients(batch());
    EXPECT_NEAR(gradients.loss(), fixture_.values<double>("losses")[0], 1e-6 * gradients.loss());
    EXPECT_EQ(gradients.names().size(), parts());
    for (const std::string& name : gradients.names()) {
        const std::vector<float> got = gradients.read(name);
        EXPECT_LE(relative_error({got.begin(), got.end()}, fixture_.f32("grad." + in_file(made, name))),
                  testing::tolerance)
            << name;
    }
}

TEST_P(LoraBesidePeft, LossesOfFiftySteps) {
    for (const auto& [policy, tolerance] : {std::pair{"fp32", testing::tolerance}, {"bf16", 2e-2}}) {
        Trainer made = adapted(policy);
        double worst = 0;
        for (const double expected : fixture_.values<double>("losses")) {
            const StepResult result = made.step(batch(), number("learning_rate"));
            worst = std::max(worst, std::abs(static_cast<double>(result.loss) - expected) / expected);
        }
        EXPECT_LE(worst, tolerance) << policy;
    }
}

TEST_P(LoraBesidePeft, MergedWeights) {
    const Trainer made = adapted();
    made.save_weights(directory_ / "merged.safetensors");
    const SafetensorsFile merged(directory_ / "merged.safetensors");
    const std::vector<double> sums = fixture_.values<double>("merged");
    const nlohmann::json all = shapes();
    std::size_t index = 0;
    const std::string& prefix = nn::files_of(made.model()).prefix;
    for (const auto& [name, shape] : all.items()) {
        const TensorView found = merged.view(name.starts_with(prefix) ? name.substr(prefix.size()) : name);
        expect_sum(found, name, sums[index++]);
    }
    // The way without a trainer makes the same numbers.
    ModelFile model(base());
    model.adapt(adapter());
    std::vector<State> states;
    for (const State& state : made.state().states())
        if (is_own_weight(state)) states.push_back(state);
    StateBlock weights(*device_, states);
    model.load(weights);
    const Trainer plain(*device_, model.model().on_sequences(29), {.batch = 2});
    for (const State& state : states) plain.state().write(state.name, weights.read(state.name));
    plain.save_weights(directory_ / "plain.safetensors");
    EXPECT_EQ(read_file(directory_ / "plain.safetensors"), read_file(directory_ / "merged.safetensors"));
}

TEST_P(LoraBesidePeft, FilesAreWrittenAsTheyWereReadAndResumeToTheSameBits) {
    for (const char* policy : {"fp32", "bf16"}) {
        const fs::path place = directory_ / (std::string("saved ") + policy);
        Trainer whole = adapted(policy);
        for (int step = 0; step < 3; ++step) whole.step(batch(), 1e-2);
        whole.save(place);
        const SafetensorsFile saved(place / "adapter_model.safetensors");
        EXPECT_EQ(saved.tensors().size(), parts());
        EXPECT_FALSE(fs::exists(place / "model.safetensors"));
        EXPECT_FALSE(fs::exists(place / "config.json"));
        const auto theirs = nlohmann::json::parse(file_.metadata().at("adapter_config.json")),
                   ours = nlohmann::json::parse(read_file(place / "adapter_config.json"));
        for (const char* key : {"peft_type", "task_type", "r", "lora_alpha", "use_rslora", "use_dora",
                                "fan_in_fan_out", "bias", "rank_pattern"})
            EXPECT_EQ(ours.at(key), theirs.at(key)) << key;
        const nn::LoraOptions again = folder(place).options(), before = folder(adapter()).options();
        EXPECT_EQ(again.layers, before.layers);
        for (const std::string& layer : before.layers) {
            EXPECT_EQ(nn::adapter_of(again, layer).rank, nn::adapter_of(before, layer).rank) << layer;
            EXPECT_DOUBLE_EQ(nn::adapter_of(again, layer).scale, nn::adapter_of(before, layer).scale);
        }
        Trainer resumed = trainer(before, policy);
        EXPECT_EQ(resumed.resume(place), "");
        for (int step = 0; step < 3; ++step) {
            whole.step(batch(), 1e-2);
            resumed.step(batch(), 1e-2);
        }
        EXPECT_EQ(testing::states_of(whole), testing::states_of(resumed));
        nn::LoraOptions other = before;
        other.dropout = 0.5;
        Trainer differs = trainer(other, policy);
        EXPECT_NE(error_of([&] { differs.resume(place); }).find("adapters.dropout = 0.0, this run has 0.5"),
                  std::string::npos);
        EXPECT_EQ(error_of([&] { ModelFile model(place); }),
                  place.string() +
                      ": holds adapters alone; give the model that they are for, and this folder as "
                      "`adapter`");
    }
}

INSTANTIATE_TEST_SUITE_P(Families, LoraBesidePeft,
                         ::testing::Values("gpt2", "llama", "qwen2", "gpt2_dora", "llama_dora", "qwen2_dora"),
                         [](const auto& name) { return name.param; });

using DoraBesidePeft = LoraBesidePeft;

/// A planted error: one layer's norm is off by a thousandth.
TEST_P(DoraBesidePeft, AWrongNormIsCaught) {
    Trainer made = adapted();
    std::string norm;
    for (const State& state : made.state().states())
        if (state.name.starts_with("norm.")) norm = state.name;
    std::vector<float> values = made.state().read_f32(norm);
    for (float& value : values) value *= 1.001f;
    made.state().write(norm, std::as_bytes(std::span(values)));
    const Gradients& gradients = made.gradients(batch());
    double worst = 0;
    for (const std::string& name : gradients.names()) {
        const std::vector<float> got = gradients.read(name);
        worst = std::max(
            worst, relative_error({got.begin(), got.end()}, fixture_.f32("grad." + in_file(made, name))));
    }
    EXPECT_GT(worst, 10 * testing::tolerance);
}

INSTANTIATE_TEST_SUITE_P(Families, DoraBesidePeft, ::testing::Values("llama_dora"),
                         [](const auto& name) { return name.param; });

/// The convolutions and the head of a ResNet of one block a stage, whose norms go by its statistics.
class ConvolutionsBesidePeft : public ::testing::TestWithParam<std::string> {
  protected:
    ConvolutionsBesidePeft()
        : fixture_("lora_" + GetParam()),
          file_(MANTISSA_SOURCE_DIR "/tests/fixtures/lora_" + GetParam() + ".safetensors") {
        fs::create_directories(adapter());
        std::ofstream(adapter() / "adapter_config.json") << file_.metadata().at("adapter_config.json");
        std::vector<TensorView> parts;
        for (const TensorView& tensor : file_.views())
            if (tensor.name.starts_with("base_model.")) parts.push_back(tensor);
        write_safetensors(adapter() / "adapter_model.safetensors", parts, {{"format", "pt"}});
        write_base();
        const std::vector<double> pixels = uniform(GetParam() + " images", 4 * 3 * 64 * 64);
        for (std::size_t i = 0; i < pixels.size(); ++i) {  // [N, C, H, W] to [N, H, W, C]
            const std::size_t image = i / (64 * 64 * 3), pixel = i / 3 % (64 * 64), channel = i % 3;
            images_.push_back(static_cast<float>(pixels[(image * 3 + channel) * 64 * 64 + pixel]));
        }
    }

    static nn::Model network() {
        return nn::resnet_model({.name = "ResNet50v1.5",
                                 .version = nn::ResNetVersion::v1_5,
                                 .blocks = {1, 1, 1, 1},
                                 .sizes = {.classes = 5, .image = 64, .width = 4}})
            .model;
    }
    fs::path adapter() const { return directory_ / "adapter"; }
    fs::path base() const { return directory_ / "base.safetensors"; }
    double number(const std::string& name) const { return std::stod(file_.metadata().at(name)); }
    nlohmann::json shapes() const { return nlohmann::json::parse(file_.metadata().at("shapes")); }
    AdapterFolder folder() const { return {adapter(), nn::files_of(network())}; }

    /// Weights as lora_cases.py draws them.
    void write_base() const {
        std::vector<std::pair<TensorSpec, std::vector<float>>> all;
        const nlohmann::json shapes_of = shapes();
        for (const auto& [name, shape] : shapes_of.items()) {
            const std::vector<std::int64_t> extents = shape;
            const bool is_vector = extents.size() == 1;
            const double outputs = static_cast<double>(extents[0]),
                         size = is_vector
                                    ? 0.25
                                    : std::sqrt(2 / (static_cast<double>(element_count(extents)) / outputs)),
                         centre =
                             is_vector && (name.ends_with("weight") || name.ends_with("running_var")) ? 1 : 0;
            std::vector<float> values;
            for (const double x : uniform(name, static_cast<std::size_t>(element_count(extents))))
                values.push_back(static_cast<float>(centre + size * x));
            all.push_back({{name, DType::f32, extents}, std::move(values)});
        }
        std::vector<TensorView> weights;
        for (const auto& [spec, values] : all)
            weights.push_back({.name = spec.name,
                               .shape = spec.shape,
                               .data = reinterpret_cast<const std::byte*>(values.data())});
        write_safetensors(base(), weights, {{"format", "pt"}});
    }

    Trainer adapted(std::optional<nn::LoraOptions> lora = {}) const {
        const AdapterFolder adapters = folder();
        Trainer made(*device_, network(),
                     {.optimizer = adamw({.beta1 = number("beta1"),
                                          .beta2 = number("beta2"),
                                          .epsilon = number("epsilon"),
                                          .weight_decay = number("weight_decay")}),
                      .batch = 4,
                      .policy = "fp32",
                      .lora = lora.value_or(adapters.options())});
        made.load_weights(base());
        if (!lora) adapters.load(made.state());
        return made;
    }
    /// How far 50 steps are from PEFT's at the worst.
    double worst_loss(double rate) const {
        Trainer made = adapted();
        double worst = 0;
        for (const double expected : fixture_.values<double>("losses"))
            worst = std::max(
                worst, std::abs(static_cast<double>(made.step(batch(), rate).loss) - expected) / expected);
        return worst;
    }
    Batch batch() const { return {images_, targets_}; }
    std::string in_file(const std::string& part) const { return "base_model.model." + part; }
    /// A gradient in the order of PEFT's file.
    std::vector<double> of_file(const Gradients& gradients, const std::string& name) const {
        const std::vector<float> values = gradients.read(name);
        const std::vector<std::int64_t> stored = file_.view("grad." + in_file(name)).shape;
        if (stored.size() != 4) return {values.begin(), values.end()};
        const auto [outer, inner, rows, columns] = std::array{stored[0], stored[1], stored[2], stored[3]};
        std::vector<double> ordered;
        for (std::int64_t i = 0; i < std::ssize(values); ++i) {
            const std::int64_t s = i % columns, r = i / columns % rows, c = i / columns / rows % inner,
                               k = i / columns / rows / inner;
            ordered.push_back(static_cast<double>(
                values[static_cast<std::size_t>(((r * columns + s) * inner + c) * outer + k)]));
        }
        return ordered;
    }

    TemporaryDirectory directory_;
    TorchFixture fixture_;
    SafetensorsFile file_;
    std::vector<float> images_;
    std::vector<std::int32_t> targets_ = fixture_.values<std::int32_t>("targets");
    std::unique_ptr<Device> device_ = make_cpu_device({.threads = 2});
};

TEST_P(ConvolutionsBesidePeft, GradientsLossesAndMergedWeights) {
    Trainer made = adapted();
    made.save_weights(directory_ / "merged.safetensors");
    const Gradients& gradients = made.gradients(batch());
    EXPECT_EQ(gradients.names().size(),
              folder().options().layers.size() * (made.plan().options().lora->magnitudes ? 3 : 2));
    for (const std::string& name : gradients.names())
        EXPECT_LE(relative_error(of_file(gradients, name), fixture_.f32("grad." + in_file(name))),
                  testing::tolerance)
            << name;
    const SafetensorsFile merged(directory_ / "merged.safetensors");
    const std::vector<double> sums = fixture_.values<double>("merged");
    std::size_t index = 0;
    const nlohmann::json all = shapes();
    for (const auto& [name, shape] : all.items()) {
        const TensorView found = merged.view(name);
        EXPECT_EQ(found.shape, shape.get<std::vector<std::int64_t>>());
        expect_sum(found, name, sums[index++]);
    }
    const double rate = number("learning_rate");
    EXPECT_LE(worst_loss(rate), testing::tolerance);
    EXPECT_GT(worst_loss(1.001 * rate), 10 * testing::tolerance) << "a planted error";
}

TEST_P(ConvolutionsBesidePeft, FilesAreWrittenAsTheyWereReadAndResumeToTheSameBits) {
    Trainer whole = adapted();
    whole.save(directory_ / "begun");
    const SafetensorsFile saved(directory_ / "begun" / "adapter_model.safetensors");
    for (const TensorView& theirs : file_.views()) {
        if (!theirs.name.starts_with("base_model.")) continue;
        const TensorView ours = saved.view(theirs.name);
        ASSERT_EQ(ours.shape, theirs.shape) << theirs.name;
        EXPECT_EQ(std::memcmp(ours.data, theirs.data, byte_count(theirs.dtype, theirs.shape)), 0)
            << theirs.name;
    }
    for (int step = 0; step < 2; ++step) whole.step(batch(), 1e-2);
    whole.save(directory_ / "saved");
    Trainer resumed = adapted(folder().options());
    EXPECT_EQ(resumed.resume(directory_ / "saved"), "");
    for (int step = 0; step < 2; ++step) {
        whole.step(batch(), 1e-2);
        resumed.step(batch(), 1e-2);
    }
    EXPECT_EQ(testing::states_of(whole), testing::states_of(resumed));
    EXPECT_EQ(whole.evaluate(batch()).loss, resumed.evaluate(batch()).loss);
}

INSTANTIATE_TEST_SUITE_P(Networks, ConvolutionsBesidePeft, ::testing::Values("resnet", "resnet_dora"),
                         [](const auto& name) { return name.param; });

/// A folder of one adapter, whose configuration is written over.
class AdapterFolders : public ::testing::Test {
  protected:
    std::string said(const nlohmann::json& change, const char* tensor = "base_model.model.a.lora_A.weight") {
        nlohmann::json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}};
        if (!change.is_null()) config.update(change);
        std::ofstream(directory_ / "adapter_config.json") << config;
        const std::vector<float> values(6);
        const auto* const data = reinterpret_cast<const std::byte*>(values.data());
        const std::vector<TensorView> parts = {
            {.name = tensor, .shape = {2, 3}, .data = data},
            {.name = "base_model.model.a.lora_B.weight", .shape = {3, 2}, .data = data}};
        write_safetensors(directory_ / "adapter_model.safetensors", parts);
        const std::string said = error_of([&] { AdapterFolder(directory_.path(), {}); });
        if (said == "no error") return "";
        return said.starts_with(directory_.path().string() + "/")
                   ? said.substr(directory_.path().string().size() + 1)
                   : said;
    }
    TemporaryDirectory directory_;
};

TEST_F(AdapterFolders, RefuseByNameWhatChangesTheResult) {
    EXPECT_EQ(said({{"target_modules", "all-linear"}, {"eva_config", nullptr}, {"layers_to_transform", {1}}}),
              "");
    EXPECT_EQ(said({{"peft_type", "LOHA"}}),
              "adapter_config.json: peft_type is \"LOHA\", only \"LORA\" is read");
    EXPECT_EQ(said({{"use_dora", true}}),
              "adapter_config.json: use_dora is true, but \"a\" has no lora_magnitude_vector in "
              "adapter_model.safetensors");
    EXPECT_EQ(said({{"modules_to_save", {"lm_head"}}}),
              "adapter_config.json: modules_to_save is [\"lm_head\"], which is not read");
    EXPECT_EQ(
        said({{"bias", "all"}}),
        "adapter_config.json: bias is \"all\": it trains the model's biases, too, which is not read; only "
        "\"none\" is");
    for (const char* initializer : {"pissa", "pissa_niter_4", "olora", "loftq", "corda", "eva"})
        EXPECT_EQ(
            said({{"init_lora_weights", initializer}}),
            std::string("adapter_config.json: init_lora_weights is \"") + initializer +
                "\", which may change the model's own weights; save the adapters as PEFT converts them to "
                "plain LoRA");
    EXPECT_EQ(said({{"lora_alpha", 0}}), "adapter_config.json: lora_alpha is 0, expected a number above 0");
    EXPECT_EQ(said({{"r", 4}}), "adapter_config.json: the rank of \"a\" is 4, but its lora_A is [2, 3]");
    EXPECT_EQ(said({{"alpha_pattern", {{"a|b", 2}}}}),
              "adapter_config.json: alpha_pattern has the expression \"a|b\"; only names of layers are read");
    EXPECT_EQ(said({}, "base_model.model.a.lora_embedding_A"),
              "adapter_model.safetensors: tensor \"base_model.model.a.lora_embedding_A\" is no part of an "
              "adapter of a linear layer or a convolution, the only kinds that are read");
    EXPECT_EQ(said({}, "base_model.model.b.lora_A.weight"), "adapter_model.safetensors: \"a\" has no lora_A");
    EXPECT_EQ(said({}, "base_model.model.b.lora_magnitude_vector"),
              "adapter_model.safetensors: \"a\" has no lora_A");
}

TEST_F(AdapterFolders, OfAnotherModel) {
    EXPECT_EQ(said({}), "");
    const auto device = make_cpu_device({.threads = 1});
    const auto merged = [&](const char* name, const Shape& shape) {
        const std::vector<State> states{
            {.kind = State::Kind::parameter, .name = name, .type = {DType::f32, shape}, .initializer = {}}};
        StateBlock weights(*device, states);
        const std::string said = error_of([&] { AdapterFolder(directory_.path(), {}).merge(weights); });
        return said == "no error" ? "" : said;
    };
    const std::string file = (directory_ / "adapter_model.safetensors").string();
    EXPECT_EQ(merged("a.weight", {3, 3}), "");
    EXPECT_EQ(merged("b.weight", {3, 3}), file + ": it is of another model: this one has no layer \"a\"");
    EXPECT_EQ(merged("a.weight", {4, 3}),
              file + ": it is of another model: \"a\" adapts a weight [3, 3], this one's is [4, 3]");
}

}  // namespace
}  // namespace mantissa
