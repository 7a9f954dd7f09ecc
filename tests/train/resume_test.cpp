// Stopping and going on: k steps, a checkpoint, and the rest give the bits of all steps in one go.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/checkpoint.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/schedule.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/device_around.h"
#include "tests/support/error_of.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/passes.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::states_of;

Gpt2Training resumable_training(double dropout, std::uint64_t seed = 1337, std::int64_t accumulate = 1) {
    return {.model = {.name = "small",
                      .layers = 2,
                      .heads = 2,
                      .channels = 16,
                      .vocabulary = 64,
                      .context = 16,
                      .dropout = dropout},
            .batch = 2,
            .sequence = 16,
            .accumulate = accumulate,
            .seed = seed,
            .optimizer = clipped(adamw(), 1.0)};
}

std::vector<std::int32_t> formula_text() {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 1000; ++i) tokens.push_back((i * i / 7 + i) % 64);
    return tokens;
}

/// Runs up to step `last` and returns the losses.
std::vector<float> losses_up_to(Trainer& trainer, std::int64_t last) {
    const TokenStream stream(formula_text());
    const std::int64_t accumulate = trainer.plan().options().accumulate;
    const TextWindows batches(stream, stream.all(), 16, {.batch = 2, .accumulate = accumulate});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(trainer.plan().units_per_step())),
        targets(tokens.size());
    std::vector<float> losses;
    while (trainer.steps_done() < last) {
        for (std::int64_t i = 0; i < accumulate; ++i)
            batches.fill(static_cast<std::uint64_t>(trainer.steps_done()), i,
                         std::span(tokens).subspan(static_cast<std::size_t>(32 * i), 32),
                         std::span(targets).subspan(static_cast<std::size_t>(32 * i), 32));
        losses.push_back(trainer.step({tokens, targets}, 1e-3).loss);
    }
    return losses;
}

/// Why the trainer cannot go on from there; "no error" if it does.
std::string refusal(const std::filesystem::path& directory, Trainer& trainer) {
    return error_of([&] { resume_training(directory, trainer); });
}

TEST(Resume, AnotherPolicyIsNamed) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer first = gpt2_trainer(*device, resumable_training(0));
    save_training(directory / "run", first);
    Gpt2Training options = resumable_training(0);
    options.policy = find_policy("fp16");
    options.loss_scale = default_loss_scale(options.policy);
    Trainer second = gpt2_trainer(*device, options);
    const std::string text = refusal(directory / "run", second);
    EXPECT_NE(text.find(R"(policy = "fp32", this run has "fp16")"), std::string::npos) << text;
}

TEST(Resume, SaysThatOtherPassesRoundOtherwise) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Gpt2Training options = resumable_training(0);
    Trainer first = gpt2_trainer(*device, options);
    losses_up_to(first, 2);
    save_training(directory / "run", first);
    options.passes = testing::plain_and({{"match_attention", true}});
    options.recompute = {"gelu"};
    Trainer second = gpt2_trainer(*device, options);
    const std::string warning = resume_training(directory / "run", second).warning;
    EXPECT_EQ(second.steps_done(), 2);
    EXPECT_EQ(states_of(second), states_of(first));
    for (const char* part : {R"(passes = ["simplify"], this run has ["match_attention","simplify"])",
                             R"(recompute = [], this run has ["gelu"])", "not to the bit"})
        EXPECT_NE(warning.find(part), std::string::npos) << warning;
    EXPECT_EQ(warning.find("instructions"), std::string::npos) << warning;
}

/// This CPU, taken for one that multiplies BF16 by a unit of that name.
class OfUnit final : public testing::DeviceAround {
  public:
    explicit OfUnit(const std::string& unit)
        : DeviceAround(make_cpu_device({.threads = 1})), target_(DeviceAround::target()) {
        target_.bf16_unit = unit;
    }
    const Target& target() const override { return target_; }

  private:
    Target target_;
};

TEST(Resume, SaysThatAnotherUnitRoundsOtherwise) {
    const TemporaryDirectory directory;
    for (const char* policy : {"bf16", "fp32"}) {
        OfUnit pairs("avx512_bf16"), none("");
        Gpt2Training options = resumable_training(0);
        options.policy = find_policy(policy);
        Trainer first = gpt2_trainer(pairs, options), same = gpt2_trainer(pairs, options),
                other = gpt2_trainer(none, options);
        save_training(directory / policy, first);
        EXPECT_EQ(resume_training(directory / policy, same).warning, "");
        const std::string warning = resume_training(directory / policy, other).warning;
        // FP32 is multiplied alike by all of them.
        if (std::string_view(policy) == "fp32")
            EXPECT_EQ(warning, "");
        else
            EXPECT_NE(warning.find(
                          R"(bf16_unit = "avx512_bf16", this run has "none: widened to f32"; losses follow)"),
                      std::string::npos)
                << warning;
    }
}

TEST(Resume, SaysThatItGoesOnFromOtherInputs) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer first = gpt2_trainer(*device, resumable_training(0)),
            second = gpt2_trainer(*device, resumable_training(0));
    RunRecord record{.inputs = {{"tokens", "1000"}, {"learning_rate", "0.001"}}};
    save_training(directory / "run", first, record);
    EXPECT_EQ(resume_training(directory / "run", second, record).warning, "");
    record.inputs["tokens"] = "900";
    const std::string warning = resume_training(directory / "run", second, record).warning;
    EXPECT_NE(warning.find(R"(it was trained with tokens = "1000", this run has "900"; it goes on with)"),
              std::string::npos)
        << warning;
    EXPECT_EQ(warning.find("learning_rate"), std::string::npos) << warning;
}

TEST(Resume, KeepsWhatItWasAskedForAndTheFilesBesideIt) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer trainer = gpt2_trainer(*device, resumable_training(0));
    save_training(directory / "bare", trainer);
    EXPECT_TRUE(saved_options(directory / "bare").empty());
    const RunRecord record{.texts = {{"vocab.json", "{}"}},
                           .options = {{"--batch", {"4"}}, {"--betas", {"0.9", "0.99"}}}};
    save_training(directory / "run", trainer, record);
    EXPECT_EQ(saved_options(directory / "run"), record.options);
    EXPECT_EQ(load_checkpoint(directory / "run").texts.at("vocab.json"), "{}");
    EXPECT_THROW(saved_options(directory / "none"), UserError);
    // A checkpoint whose state is cut short: resuming goes back to the one before it, and so do its options.
    save_training(directory / "run", trainer);
    std::filesystem::resize_file(directory / "run" / "state.json", 20);
    EXPECT_EQ(saved_options(directory / "run"), record.options);
}

/// Batch, policy and the optimizer's numbers may change where that is asked for; what is learnt stays.
TEST(Resume, GoesOnWithChangesWhereTheyAreMeant) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer saved = gpt2_trainer(*device, resumable_training(0));
    losses_up_to(saved, 2);
    save_training(directory / "run", saved);
    Gpt2Training changed = resumable_training(0);
    changed.optimizer = adamw({.weight_decay = 0.5});
    changed.policy = find_policy("fp16");
    changed.loss_scale = default_loss_scale(changed.policy);
    Trainer trainer = gpt2_trainer(*device, changed);
    const std::string warning = resume_training(directory / "run", trainer, {}, Resume::with_changes).warning;
    for (const char* part : {"adamw.weight_decay = 0.1, this run has 0.5", R"(policy = "fp32")", "as asked"})
        EXPECT_NE(warning.find(part), std::string::npos) << warning;
    EXPECT_EQ(trainer.steps_done(), 2);
    EXPECT_EQ(trainer.state().read_f32("wte.weight"), saved.state().read_f32("wte.weight"));
    EXPECT_GT(trainer.loss_scale().scale, 1);
    changed = resumable_training(0);
    changed.optimizer = sgd();
    Trainer another = gpt2_trainer(*device, changed);
    EXPECT_THROW(resume_training(directory / "run", another, {}, Resume::with_changes), UserError);
}

TEST(Resume, GoesOnToTheSameBits) {
    const auto device = make_cpu_device({.threads = 2});
    struct Case {
        double dropout;
        std::int64_t accumulate;
        const char* policy;
        Optimizer optimizer = adamw();
    };
    for (const auto& [dropout, accumulate, policy, optimizer] :
         {Case{0.0, 1, "fp32"}, Case{0.2, 1, "fp32"}, Case{0.2, 3, "fp32"}, Case{0.2, 3, "bf16"},
          Case{0.2, 3, "mxfp8"}, Case{0.2, 3, "fp8-delayed"}, Case{0.2, 3, "nvfp4"},
          Case{0.2, 3, "bf16", sgd({.momentum = 0.9, .dampening = 0.1})}, Case{0.0, 1, "fp32", sgd()}}) {
        const TemporaryDirectory directory;
        Gpt2Training options = resumable_training(dropout, 1337, accumulate);
        options.policy = find_policy(policy);
        options.optimizer = optimizer;
        Trainer whole = gpt2_trainer(*device, options), first = gpt2_trainer(*device, options),
                second = gpt2_trainer(*device, options);
        const std::vector<float> losses = losses_up_to(whole, 9);
        losses_up_to(first, 4);
        save_training(directory / "run", first);
        EXPECT_EQ(resume_training(directory / "run", second).warning, "");
        EXPECT_EQ(second.steps_done(), 4);
        EXPECT_EQ(losses_up_to(second, 9), std::vector<float>(losses.begin() + 4, losses.end()));
        EXPECT_EQ(states_of(second), states_of(whole));
    }
}

TEST(Resume, AnotherRunIsRefusedAndTheTrainerUntouched) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer saved = gpt2_trainer(*device, resumable_training(0));
    losses_up_to(saved, 2);
    save_training(directory / "run", saved);
    Trainer other = gpt2_trainer(*device, resumable_training(0, /*seed=*/7));
    const auto before = states_of(other);
    const std::string text = refusal(directory / "run", other);
    EXPECT_NE(text.find("it was trained with seed = 1337, this run has 7"), std::string::npos) << text;
    EXPECT_EQ(states_of(other), before);
    EXPECT_EQ(other.steps_done(), 0);
}

TEST(Resume, AnotherConfigurationIsRefusedWithEachDifferenceNamed) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer saved = gpt2_trainer(*device, resumable_training(0));
    save_training(directory / "run", saved);
    Gpt2Training options = resumable_training(0.25);
    options.model.heads = 4;  // the same parameters in the same shapes
    options.optimizer = clipped(adamw({.beta1 = 0.5}), 1.0);
    Trainer other = gpt2_trainer(*device, options);
    const std::string text = refusal(directory / "run", other);
    EXPECT_NE(
        text.find("it was trained with model.dropout = 0.0, this run has 0.25; model.heads = 2, this run has "
                  "4; adamw.beta1 = 0.9, this run has 0.5; give the same"),
        std::string::npos)
        << text;
}

TEST(Resume, TheOptimizersNumbersAreSavedAsTheyAlwaysWere) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Gpt2Training options = resumable_training(0);
    options.optimizer = clipped(adamw({.beta1 = 0.5, .decay_matrices_only = false}), 2.0);
    Trainer saved = gpt2_trainer(*device, options);
    save_training(directory / "run", saved);
    const std::string state = load_checkpoint(directory / "run").texts.at("state.json");
    EXPECT_NE(state.find(R"("seed": 1337,
    "adamw": {
      "beta1": 0.5,
      "beta2": 0.95,
      "epsilon": 1e-08,
      "weight_decay": 0.1,
      "decay_matrices_only": false,
      "clip": 2.0
    }
)"),
              std::string::npos)
        << state;
}

/// The configuration that the project wrote before models were values.
TEST(Resume, ACheckpointThatNamesItsGpt2AndNoMoreIsResumed) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer saved = gpt2_trainer(*device, resumable_training(0.25));
    losses_up_to(saved, 2);
    save_training(directory / "run", saved);
    {
        const LoadedCheckpoint loaded = load_checkpoint(directory / "run");
        auto texts = loaded.texts;
        auto state = nlohmann::ordered_json::parse(texts.at("state.json"));
        state["configuration"]["model"] = "gpt2-tiny";
        state["configuration"]["dropout"] = 0.25;
        state["configuration"]["sequence"] = 16;
        texts["state.json"] = state.dump();
        std::vector<TensorToWrite> model, optimizer;
        for (const TensorView& view : loaded.model.views()) model.push_back({view});
        for (const TensorView& view : loaded.optimizer->views()) optimizer.push_back({view});
        save_checkpoint(directory / "old", {.model = model, .optimizer = optimizer, .texts = texts});
    }
    Trainer resumed = gpt2_trainer(*device, resumable_training(0.25)),
            other = gpt2_trainer(*device, resumable_training(0.5));
    EXPECT_EQ(resume_training(directory / "old", resumed).warning, "");
    EXPECT_EQ(states_of(resumed), states_of(saved));
    EXPECT_THROW(resume_training(directory / "old", other), UserError);
}

TEST(Resume, AnotherOptimizerIsRefused) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Gpt2Training options = resumable_training(0);
    options.optimizer = sgd({.momentum = 0.9});
    Trainer saved = gpt2_trainer(*device, options);
    save_training(directory / "run", saved);
    const auto refusal_of = [&](const Optimizer& optimizer) {
        options.optimizer = optimizer;
        Trainer other = gpt2_trainer(*device, options);
        return refusal(directory / "run", other);
    };
    EXPECT_EQ(refusal_of(sgd({.momentum = 0.9})), "no error");
    EXPECT_NE(refusal_of(sgd({.momentum = 0.8})).find("with sgd.momentum = 0.9, this run has 0.8; give"),
              std::string::npos);
    EXPECT_NE(
        refusal_of(clipped(sgd({.momentum = 0.9}), 1)).find("with sgd.clip = 0.0, this run has 1.0; give"),
        std::string::npos);
    EXPECT_NE(refusal_of(adamw()).find("with optimizer = sgd, this run has adamw; give"), std::string::npos);
}

TEST(Resume, AnotherAccumulationIsRefused) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer saved = gpt2_trainer(*device, resumable_training(0, 1337, 2)),
            other = gpt2_trainer(*device, resumable_training(0, 1337, 3));
    losses_up_to(saved, 1);
    save_training(directory / "run", saved);
    EXPECT_THROW(resume_training(directory / "run", other), UserError);
}

TEST(Resume, ValidationChangesNothing) {
    const auto device = make_cpu_device({.threads = 1});
    Trainer plain = gpt2_trainer(*device, resumable_training(0)),
            validated = gpt2_trainer(*device, resumable_training(0));
    const std::vector<std::int32_t> tokens(32, 5), targets(32, 9);
    losses_up_to(plain, 3);
    losses_up_to(validated, 1);
    const float loss = validated.evaluate({tokens, targets}).loss;
    EXPECT_EQ(validated.evaluate({tokens, targets}).loss, loss);
    losses_up_to(validated, 3);
    EXPECT_EQ(states_of(validated), states_of(plain));
    // The loss that a step reports is that of the parameters before it: what validation gives.
    const float next = validated.evaluate({tokens, targets}).loss;
    EXPECT_EQ(validated.step({tokens, targets}, 1e-3).loss, next);
}

TEST(Schedule, WarmsUpThenFollowsACosine) {
    const LearningRateSchedule schedule{.peak = 1.0, .least = 0.1, .warmup = 4, .steps = 24};
    EXPECT_DOUBLE_EQ(schedule.at(0), 0.25);
    EXPECT_DOUBLE_EQ(schedule.at(3), 1.0);
    EXPECT_DOUBLE_EQ(schedule.at(4), 1.0);
    EXPECT_NEAR(schedule.at(14), 0.55, 1e-15);  // half way
    EXPECT_DOUBLE_EQ(schedule.at(24), 0.1);
    EXPECT_DOUBLE_EQ(schedule.at(1000), 0.1);
    EXPECT_DOUBLE_EQ((LearningRateSchedule{.peak = 2, .least = 2, .warmup = 0, .steps = 10}.at(5)), 2);
    EXPECT_EQ(error_of<UsageError>([] { validate(LearningRateSchedule{.peak = 1, .least = 2}); }),
              "`least` must lie between 0 and `peak` 1, got 2");
    EXPECT_EQ(error_of<UsageError>([] { validate(LearningRateSchedule{.warmup = -1}); }),
              "`warmup` must be 0 or more steps, got -1");
}

TEST(Schedule, HasOneTextWhereItIsTheSame) {
    EXPECT_EQ((LearningRateSchedule{.peak = 0.5, .least = 0.5, .steps = 10}.text()), "0.5");
    EXPECT_EQ((LearningRateSchedule{.peak = 0.5, .least = 0.5, .steps = 20}.text()), "0.5");
    EXPECT_EQ((LearningRateSchedule{.peak = 0.5, .least = 0.1, .warmup = 4, .steps = 20}.text()),
              "0.5 after 4 steps of warm-up, by a cosine to 0.1 at step 20");
}

}  // namespace
}  // namespace mantissa
