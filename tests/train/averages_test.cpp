// Averaged weights with batch norms: the running statistics belong to the weights, and are averaged with
// them; against timm and PyTorch, under every way to run a step, and from a checkpoint that kept none.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "mantissa/base/file.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/image_model.h"
#include "mantissa/nn/layers.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/checkpoint.h"
#include "mantissa/train/ema.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_checkpoint.h"
#include "tests/support/error_of.h"
#include "tests/support/random_draws.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/torch_fixture.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

constexpr std::int64_t normed_batch = 8, normed_inputs = 5, normed_outputs = 3;
constexpr double normed_decay = 0.9;

/// The network of bench/peers/averages_fixture.py.
nn::Model normed_network() {
    nn::Model model{.name = "normed",
                    .inputs = {{"x", DType::f32, {normed_inputs}}, {"y", DType::f32, {normed_outputs}}}};
    model.loss = [](Graph&, std::span<const Tensor> in, const nn::Mode& mode) {
        const auto layer = [](Tensor x, const char* name, std::int64_t count) {
            return nn::linear(x, name, {.outputs = count, .standard_deviation = 0.5});
        };
        Tensor x = nn::batch_norm(layer(in[0], "first", 8), "norm1", mode, {.momentum = 0.25});
        x = nn::batch_norm(layer(relu(x), "second", 7), "norm2", mode, {.momentum = 0.5});
        const Tensor error = layer(x, "head", normed_outputs) - in[1];
        return mean(error * error, {0, 1});
    };
    return model;
}

using NormedWeights = std::map<std::string, std::vector<double>>;

NormedWeights weights_and_statistics(const StateBlock& states) {
    NormedWeights all;
    for (const State& state : states.states()) {
        if (!is_weight(state)) continue;
        const std::vector<float> values = states.read_f32(state.name);
        all[state.name].assign(values.begin(), values.end());
    }
    return all;
}

double apart(const NormedWeights& got, const NormedWeights& expected) {
    double most = 0;
    for (const auto& [name, values] : expected)
        most = std::max(most, relative_error(got.at(name), values, 1));
    return most;
}

TEST(AveragesAgainstTimm, FiftyStepsWithRunningStatistics) {
    const TorchFixture fixture("averages");
    const auto device = make_cpu_device({.threads = 1});
    const auto x = fixture.values<float>("x"), y = fixture.values<float>("y");
    const auto drift = [&](double decay) {
        Trainer trainer(*device, normed_network(),
                        {.optimizer = sgd({.momentum = 0.9}), .batch = normed_batch, .ema_decay = decay});
        for (const char* name :
             {"first.weight", "first.bias", "second.weight", "second.bias", "head.weight", "head.bias"})
            trainer.state().write(name, std::as_bytes(std::span<const float>(fixture.values<float>(name))));
        constexpr std::size_t of_x = normed_batch * normed_inputs, of_y = normed_batch * normed_outputs;
        for (std::size_t step = 0; step < 50; ++step)
            trainer.step({std::span(x).subspan(step * of_x, of_x), std::span(y).subspan(step * of_y, of_y)},
                         0.05);
        const auto in_file = [&](const std::string& prefix) {
            NormedWeights weights = weights_and_statistics(trainer.state());
            EXPECT_TRUE(weights.contains("norm2.running_var"));
            for (auto& [name, values] : weights) values = fixture.f32(prefix + name);
            return weights;
        };
        const double trained = apart(weights_and_statistics(trainer.state()), in_file("trained."));
        const AveragedWeights averaged(trainer);
        return std::pair(trained, apart(weights_and_statistics(trainer.state()), in_file("average.")));
    };
    const auto [trained, averaged] = drift(normed_decay);
    EXPECT_LE(trained, 2e-6);
    EXPECT_LE(averaged, 2e-6);
    EXPECT_GT(drift(0.901).second, 2e-6);
}

/// timm's recursion, by hand: the state after the first step, then blended.
class OwnAverages {
  public:
    void add(const NormedWeights& now, double decay) {
        for (const auto& [name, values] : now) {
            std::vector<double>& average = averages_[name];
            if (average.empty()) average = values;
            for (std::size_t i = 0; i < values.size(); ++i)
                average[i] = decay * average[i] + (1 - decay) * values[i];
        }
    }
    const NormedWeights& averages() const { return averages_; }

  private:
    NormedWeights averages_;
};

struct ImagesOfNoise {
    std::vector<float> pixels;
    std::vector<std::int32_t> labels;
    ImagesOfNoise(std::int64_t count, std::int64_t size, int seed) {
        for (std::int64_t i = 0; i < count * size * size * 3; ++i)
            pixels.push_back(static_cast<float>(std::sin(1.7 * static_cast<double>(i * (seed + 3) % 97))));
        for (std::int64_t i = 0; i < count; ++i) labels.push_back(static_cast<std::int32_t>((i + seed) % 4));
    }
    Batch batch() const { return {pixels, labels}; }
};

TEST(Averages, OfResNet20AreTimmsUnderEveryPolicyAndMicroBatches) {
    const auto device = make_cpu_device({.threads = 2});
    const nn::ImageModel network = nn::image_model("ResNet20", {.classes = 4, .image = 32, .width = 4});
    for (const char* policy : {"fp32", "bf16", "fp16"})
        for (const std::int64_t accumulate : {1, 3}) {
            TrainerOptions options{.optimizer = sgd({.momentum = 0.9}),
                                   .batch = 4,
                                   .accumulate = accumulate,
                                   .ema_decay = normed_decay};
            options.policy = find_policy(policy);
            options.loss_scale = default_loss_scale(options.policy);
            Trainer trainer(*device, network.model, options);
            OwnAverages own;
            const int steps =
                accumulate == 1 && options.policy.name == "fp32" ? testing::random_draws(50, 20) : 3;
            for (int step = 0; step < steps; ++step) {
                const bool applied =
                    trainer.step(ImagesOfNoise(4 * accumulate, 32, step).batch(), 0.01).applied;
                if (applied) own.add(weights_and_statistics(trainer.state()), normed_decay);
            }
            const AveragedWeights averaged(trainer);
            EXPECT_LE(apart(weights_and_statistics(trainer.state()), own.averages()), 1e-6)
                << policy << " " << accumulate;
        }
}

TEST(Averages, WhileTheyLiveNothingIsTrainedAndTheSameIsSaved) {
    const TemporaryDirectory directory;
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer(*device, normed_network(), {.batch = normed_batch, .ema_decay = normed_decay});
    const std::vector<float> x(normed_batch * normed_inputs, 0.5F), y(normed_batch * normed_outputs);
    trainer.step({x, y}, 0.05);
    trainer.step({x, y}, 0.05);
    trainer.save(directory / "without");
    const auto before = testing::states_of(trainer);
    {
        const AveragedWeights averaged(trainer);
        const std::string said =
            "the parameters are their averages for now, which nothing may change: let AveragedWeights go "
            "first";
        EXPECT_EQ(testing::error_of<UserError>([&] { trainer.step({x, y}, 0.05); }), said);
        EXPECT_EQ(testing::error_of<UserError>([&] { trainer.resume(directory / "without"); }), said);
        trainer.save(directory / "within");
    }
    EXPECT_TRUE(testing::states_of(trainer) == before);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        EXPECT_TRUE(read_file(directory / "within" / file) == read_file(directory / "without" / file))
            << file;
}

TEST(Averages, ACheckpointThatKeptNoneOfStatisticsGoesOnFromThem) {
    const TemporaryDirectory directory;
    const auto device = make_cpu_device({.threads = 1});
    const TrainerOptions options{
        .optimizer = sgd({.momentum = 0.9}), .batch = normed_batch, .ema_decay = normed_decay};
    const auto train = [](Trainer& trainer, int from, int to) {
        for (int step = from; step < to; ++step) {
            std::vector<float> x, y;
            for (int i = 0; i < normed_batch * normed_inputs; ++i)
                x.push_back(static_cast<float>(std::sin(0.7 * i * i + step)));
            for (int i = 0; i < normed_batch * normed_outputs; ++i)
                y.push_back(static_cast<float>(std::cos(0.4 * i + step)));
            trainer.step({x, y}, 0.05);
        }
    };
    Trainer straight(*device, normed_network(), options), first(*device, normed_network(), options);
    train(straight, 0, 6);
    train(first, 0, 3);
    // As an earlier version wrote it: the model's statistics are those of the moment, and nothing else is.
    LoadedCheckpoint saved = [&] {
        save_training(directory / "now", first);
        return load_checkpoint(directory / "now");
    }();
    std::vector<TensorToWrite> model, optimizer;
    const std::vector<TensorView> kept = saved.optimizer->views();
    const auto is_of_statistic = [](const std::string& name) {
        return name.starts_with("raw.") && name.find(".running_") != std::string::npos;
    };
    for (const TensorView& view : saved.model.views()) {
        const auto raw = std::ranges::find(kept, "raw." + view.name, &TensorView::name);
        ASSERT_NE(raw, kept.end()) << view.name;
        model.push_back({.tensor = view});
        if (is_of_statistic(raw->name)) model.back().tensor.data = raw->data;
    }
    for (const TensorView& view : kept)
        if (!is_of_statistic(view.name)) optimizer.push_back({.tensor = view});
    save_checkpoint(
        directory / "before",
        {.model = model, .optimizer = optimizer, .texts = {{"state.json", saved.texts.at("state.json")}}});
    Trainer resumed(*device, normed_network(), options);
    EXPECT_EQ(
        resume_training(directory / "before", resumed).warning,
        (directory / "before" / "state.json").string() +
            ": it kept no averages of running statistics, which begin here with the statistics that it has");
    const auto is_same = [&](const Trainer& a, const Trainer& b) {
        return testing::states_of(a, is_weight) == testing::states_of(b, is_weight);
    };
    EXPECT_TRUE(is_same(resumed, first));
    train(resumed, 3, 6);
    EXPECT_TRUE(is_same(resumed, straight));  // what is trained follows from no average
    EXPECT_TRUE(resumed.state().read("ema.head.weight") == straight.state().read("ema.head.weight"));
    EXPECT_FALSE(resumed.state().read("ema.norm1.running_var") ==
                 straight.state().read("ema.norm1.running_var"));
    // An average of a parameter is no statistic's: it must be there.
    std::erase_if(optimizer, [](const TensorToWrite& each) { return each.tensor.name == "raw.head.weight"; });
    save_checkpoint(
        directory / "cut",
        {.model = model, .optimizer = optimizer, .texts = {{"state.json", saved.texts.at("state.json")}}});
    EXPECT_EQ(testing::error_of<UserError>([&] { resume_training(directory / "cut", resumed); }),
              (directory / "cut" / "optimizer.safetensors").string() +
                  ": tensor 'raw.head.weight' is missing or is not f32[3, 7]");
}

}  // namespace
}  // namespace mantissa
