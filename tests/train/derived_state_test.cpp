// Training with derived states: the bits of training without, whatever is accumulated, skipped, written from
// outside, saved or resumed.
#include <gtest/gtest.h>

#include <limits>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/step_execution.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/passes.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

struct Case {
    const char* policy;
    std::int64_t accumulate;
    Optimizer optimizer = adamw();
};
const Case cases[] = {{"bf16", 1},
                      {"bf16", 3},
                      {"fp16", 1},
                      {"fp16", 2},
                      {"bf16", 1, sgd()},
                      {"bf16", 3, sgd({.momentum = 0.9, .weight_decay = 0.1})},
                      {"fp16", 2, sgd({.momentum = 0.9, .nesterov = true})},
                      {"bf16", 1, muon()},
                      {"fp16", 2, muon({.in_bf16 = false})}};

Gpt2Training options_of(const Case& c, bool lay_out) {
    Gpt2Training options{
        .model = {.name = "small", .layers = 2, .heads = 2, .channels = 16, .vocabulary = 64, .context = 16},
        .batch = 2,
        .sequence = 16,
        .accumulate = c.accumulate,
        .optimizer = clipped(c.optimizer, 1.0)};
    options.policy = find_policy(c.policy);
    options.passes = testing::plain_and({{"lay_out", lay_out}});
    options.loss_scale = default_loss_scale(options.policy);
    return options;
}

StepResult step(Trainer& trainer, int shift = 0) {
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t i = 0; i < trainer.plan().units_per_step(); ++i) {
        tokens.push_back(static_cast<std::int32_t>((i * i / 3 + i + shift) % 64));
        targets.push_back(static_cast<std::int32_t>((i * 5 + shift) % 64));
    }
    return trainer.step({tokens, targets}, 1e-2);
}

/// All states but the derived ones and sums of gradients, by name.
std::map<std::string, std::vector<std::byte>> kept(Trainer& trainer) {
    std::map<std::string, std::vector<std::byte>> values;
    for (const State& state : trainer.state().states())
        if (state.kind != State::Kind::derived && state.kind != State::Kind::gradient)
            values[state.name] = trainer.state().read(state.name);
    return values;
}

TEST(DerivedState, TrainsToTheSameBits) {
    const auto device = make_cpu_device({.threads = 2});
    for (const Case& c : cases) {
        Trainer plain = gpt2_trainer(*device, options_of(c, false)),
                laid = gpt2_trainer(*device, options_of(c, true));
        for (int i = 0; i < 4; ++i)
            EXPECT_EQ(step(laid, i).loss, step(plain, i).loss) << c.policy << " " << i;
        EXPECT_TRUE(kept(laid) == kept(plain)) << c.policy;
        EXPECT_GT(laid.plan().memory().state, plain.plan().memory().state);
    }
}

TEST(DerivedState, FollowsWhatIsWrittenFromOutsideAndABadStep) {
    const auto device = make_cpu_device({.threads = 2});
    for (const Case& c : cases) {
        Trainer plain = gpt2_trainer(*device, options_of(c, false)),
                laid = gpt2_trainer(*device, options_of(c, true));
        for (Trainer* trainer : {&plain, &laid}) {
            step(*trainer);
            std::vector<float> weight = trainer->state().read_f32("h.1.mlp.c_fc.weight");
            const std::vector<float> good = weight;
            weight[5] = std::numeric_limits<float>::infinity();
            trainer->state().write("h.1.mlp.c_fc.weight", std::as_bytes(std::span<const float>(weight)));
            EXPECT_FALSE(step(*trainer, 1).applied) << c.policy;
            weight[5] = 0.5f;
            trainer->state().write("h.1.mlp.c_fc.weight", std::as_bytes(std::span<const float>(weight)));
        }
        for (int i = 2; i < 4; ++i)
            EXPECT_EQ(step(laid, i).loss, step(plain, i).loss) << c.policy << " " << i;
        EXPECT_TRUE(kept(laid) == kept(plain)) << c.policy;
    }
}

TEST(DerivedState, IsNeitherSavedNorNeededToResume) {
    const auto device = make_cpu_device({.threads = 2});
    const TemporaryDirectory directory;
    for (const Case& c : cases) {
        Trainer whole = gpt2_trainer(*device, options_of(c, true)),
                resumed = gpt2_trainer(*device, options_of(c, true));
        step(whole);
        const std::string place =
            (directory / c.optimizer.name).string() + c.policy + std::to_string(c.accumulate);
        save_training(place, whole);
        // Resuming takes files of a run without derived states, too: they are nothing that a checkpoint
        // knows.
        Trainer plain = gpt2_trainer(*device, options_of(c, false));
        EXPECT_EQ(resume_training(place, resumed).warning, "");
        EXPECT_EQ(resume_training(place, plain).warning, "");
        for (int i = 1; i < 3; ++i) {
            const float loss = step(whole, i).loss;
            EXPECT_EQ(step(resumed, i).loss, loss) << c.policy;
            EXPECT_EQ(step(plain, i).loss, loss) << c.policy;
        }
        EXPECT_TRUE(kept(resumed) == kept(whole)) << c.policy;
        EXPECT_TRUE(kept(plain) == kept(whole)) << c.policy;
    }
}

TEST(DerivedState, TrainersThatShareOneStateDoNotReadEachOthersCopies) {
    const auto device = make_cpu_device({.threads = 2});
    TrainingPlan plain_plan = gpt2_plan(*device, options_of(cases[0], false)),
                 laid_plan = gpt2_plan(*device, options_of(cases[0], true));
    Trainer alone = gpt2_trainer(*device, options_of(cases[0], false));
    const TrainingPlan* const both[] = {&plain_plan, &laid_plan};
    const auto memory = allocate_training_memory(both);
    Trainer plain(std::move(plain_plan), memory), laid(std::move(laid_plan), memory);
    memory->state->initialize(alone.plan().options().seed);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(step(i % 2 == 0 ? laid : plain, i).loss, step(alone, i).loss) << i;
}

TEST(DerivedState, IsReadByValidation) {
    const auto device = make_cpu_device({.threads = 2});
    Trainer plain = gpt2_trainer(*device, options_of(cases[0], false)),
            laid = gpt2_trainer(*device, options_of(cases[0], true));
    std::vector<std::int32_t> tokens(32, 3), targets(32, 5);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(laid.evaluate({tokens, targets}).loss, plain.evaluate({tokens, targets}).loss);
        step(laid, i);
        step(plain, i);
    }
}

}  // namespace
}  // namespace mantissa
