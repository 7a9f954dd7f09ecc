// Training as a whole: it learns, gives the same bits whoever computes, and a bad step leaves no trace.
#include "mantissa/train/trainer.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/loss_scale.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/reference.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/far_device.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/passes.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::TrainedBits;

/// A text of `size` bytes with some structure, as tokens.
std::vector<std::int32_t> words_of_bytes(std::size_t size) {
    const std::string words = "the quick brown fox jumps over a lazy dog while seven wizards box; ";
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < size; ++i)
        tokens.push_back(
            static_cast<unsigned char>(i % 97 == 0 ? '\n' : words[(i * i / 53 + i) % words.size()]));
    return tokens;
}

nn::Gpt2Config byte_gpt2(double dropout = 0) {
    return {.name = "small",
            .layers = 2,
            .heads = 2,
            .channels = 32,
            .vocabulary = 256,
            .context = 24,
            .dropout = dropout};
}

TrainedBits train_on_bytes(Device& device, int steps, const nn::Gpt2Config& model,
                           std::int64_t accumulate = 1) {
    Trainer trainer = gpt2_trainer(device, {.model = model,
                                            .batch = 3,
                                            .sequence = 23,
                                            .accumulate = accumulate,
                                            .optimizer = clipped(adamw(), 1.0)});
    const TokenStream stream(words_of_bytes(2000));
    const TextWindows batches(stream, stream.all(), 23, {.batch = 3, .accumulate = accumulate});
    BatchBuffer buffer(trainer.model(), 3, accumulate);
    TrainedBits trained;
    for (int i = 0; i < steps; ++i)
        trained.losses.push_back(
            trainer.step(buffer.fill(batches, static_cast<std::uint64_t>(i)), 1e-3).loss);
    trained.states = testing::states_of(trainer);
    return trained;
}

TrainedBits train_on_bytes(int threads, int steps, double dropout) {
    return train_on_bytes(*make_cpu_device({.threads = threads}), steps, byte_gpt2(dropout));
}

TEST(Trainer, SameBitsOnAnyNumberOfThreadsAndOnEveryRun) {
    for (double dropout : {0.0, 0.1}) {
        const TrainedBits once = train_on_bytes(1, 5, dropout);
        EXPECT_EQ(train_on_bytes(1, 5, dropout), once);
        EXPECT_EQ(train_on_bytes(2, 5, dropout), once);
        EXPECT_EQ(train_on_bytes(3, 5, dropout), once);
    }
    EXPECT_NE(train_on_bytes(1, 5, 0.1), train_on_bytes(1, 5, 0.0));
}

/// One layer, since an emulated GPU computes it.
nn::Gpt2Config byte_gpt2_of_one_layer() {
    nn::Gpt2Config model = byte_gpt2(0.1);
    model.layers = 1;
    model.channels = 16;
    return model;
}

/// Steps whose inputs were given while the step before worked. `disturb` is called in between.
TrainedBits train_with_inputs_brought(Device& device, std::int64_t accumulate,
                                      const std::function<void(Trainer&, const Batch&)>& disturb) {
    Trainer trainer = gpt2_trainer(device, {.model = byte_gpt2_of_one_layer(),
                                            .batch = 3,
                                            .sequence = 23,
                                            .accumulate = accumulate,
                                            .optimizer = clipped(adamw(), 1.0)});
    const TokenStream stream(words_of_bytes(2000));
    const TextWindows batches(stream, stream.all(), 23, {.batch = 3, .accumulate = accumulate});
    std::vector<BatchBuffer> buffers(2, {trainer.model(), 3, accumulate});
    std::vector<Batch> last(1, buffers[0].fill(batches, 0));
    TrainedBits trained;
    for (std::uint64_t i = 0; i < 5; ++i) {
        const Batch batch = last.back();
        trainer.start(batch, 1e-3);
        if (i % 3 != 2) {
            last.push_back(buffers[(i + 1) % 2].fill(batches, i + 1));
            trainer.bring(last.back());
        }
        trained.losses.push_back(trainer.finish().loss);
        disturb(trainer, batch);
        if (i % 3 == 2) last.push_back(buffers[(i + 1) % 2].fill(batches, i + 1));
    }
    trained.states = testing::states_of(trainer);
    return trained;
}

TEST(Trainer, InputsThatAreBroughtWhileAStepWorksChangeNothing) {
    for (const std::int64_t accumulate : {1, 2}) {
        std::vector<std::unique_ptr<Device>> devices = testing::far_devices();
        devices.push_back(make_cpu_device({.threads = 2}));
        const auto nothing = [](Trainer&, const Batch&) {};
        const auto look = [](Trainer& trainer, const Batch& batch) {
            trainer.look_into(batch, [](Execution& e) {
                e.run_while([](NodeId) { return false; }, [](NodeId) { return true; });
            });
        };
        const auto evaluate = [](Trainer& trainer, const Batch& batch) { trainer.evaluate(batch); };
        for (const auto& device : devices) {
            const TrainedBits expected = train_on_bytes(*device, 5, byte_gpt2_of_one_layer(), accumulate);
            EXPECT_EQ(train_with_inputs_brought(*device, accumulate, nothing), expected);
            if (accumulate > 1) continue;
            EXPECT_EQ(train_with_inputs_brought(*device, accumulate, look), expected);
            EXPECT_EQ(train_with_inputs_brought(*device, accumulate, evaluate), expected);
        }
    }
}

TEST(Trainer, AChunkedLossTrainsTheSameInLessMemory) {
    const auto device = make_cpu_device();
    const std::int64_t B = 3, T = 1024, V = 4099;
    const auto trainer = [&](const char* policy, bool chunked) {
        const nn::Gpt2Config model{.name = "wide",
                                   .layers = 1,
                                   .heads = 1,
                                   .channels = 16,
                                   .vocabulary = V,
                                   .context = 1024,
                                   .dropout = 0};
        Gpt2Training options{.model = model, .batch = B, .sequence = T, .accumulate = 2};
        options.loss_scale.kind = LossScaleOptions::Kind::dynamic;
        options.policy = find_policy(policy);
        options.passes =
            testing::plain_and({{"match_attention", true}, {"fuse_linear_cross_entropy", chunked}});
        return gpt2_trainer(*device, options);
    };
    const TokenStream stream(words_of_bytes(20000));
    const TextWindows batches(stream, stream.all(), T, {.batch = 2 * B});
    std::vector<std::int32_t> tokens(2 * B * T), targets(2 * B * T);
    batches.fill(0, 0, tokens, targets);
    // FP32: two orders of the same sums. BF16: the logits are rounded alike in both.
    for (const char* policy : {"fp32", "bf16"}) {
        Trainer whole = trainer(policy, false), chunked = trainer(policy, true);
        EXPECT_TRUE(whole.plan().step().kernels_of("linear_cross_entropy").empty());
        EXPECT_EQ(chunked.plan().step().kernels_of("linear_cross_entropy").size(), 1u);
        EXPECT_LE(chunked.plan().memory().arena, whole.plan().memory().arena - B * T * V * 2) << policy;
        for (int step = 0; step < 3; ++step) {
            const StepResult expected = whole.step({tokens, targets}, 1e-2);
            const StepResult got = chunked.step({tokens, targets}, 1e-2);
            EXPECT_NEAR(got.loss, expected.loss, 1e-5f * expected.loss) << policy << " step " << step;
            EXPECT_NEAR(got.gradient_norm, expected.gradient_norm, 1e-3f * expected.gradient_norm);
        }
        const auto first = std::span(tokens).first(B * T), then = std::span(targets).first(B * T);
        const float expected = whole.evaluate({first, then}).loss;
        EXPECT_NEAR(chunked.evaluate({first, then}).loss, expected, 1e-5f * expected) << policy;
    }
}

TEST(Trainer, EvaluatesAnyNumberOfExamples) {
    constexpr std::size_t T = 3;
    const auto device = make_cpu_device();
    const nn::Gpt2Config model{
        .name = "small", .layers = 1, .heads = 3, .channels = 12, .vocabulary = 33, .context = T};
    Trainer one = gpt2_trainer(*device, {.model = model, .batch = 1, .sequence = T}),
            four = gpt2_trainer(*device, {.model = model, .batch = 4, .sequence = T});
    std::vector<std::int32_t> tokens, targets;
    for (int i = 0; i < 21; ++i) tokens.push_back(i * 7 % 33), targets.push_back(i * 5 % 33);
    double sum = 0;
    for (std::size_t row = 0; row < 7; ++row)
        sum += static_cast<double>(
            one.evaluate({std::span(tokens).subspan(row * T, T), std::span(targets).subspan(row * T, T)})
                .loss);
    EXPECT_NEAR(four.evaluate({tokens, targets}).loss, sum / 7, 1e-6);
    // The batch of training, fewer, more again: plans are kept and made anew.
    for (const std::size_t rows : {4U, 1U, 7U}) {
        const auto first = std::span(tokens).first(rows * T), then = std::span(targets).first(rows * T);
        EXPECT_NEAR(four.evaluate({first, then}).loss, one.evaluate({first, then}).loss, 1e-6) << rows;
    }
    four.step({std::span(tokens).first(4 * T), std::span(targets).first(4 * T)}, 1e-2);
    EXPECT_GT(std::abs(four.evaluate({tokens, targets}).loss - static_cast<float>(sum / 7)), 1e-4F);
    EXPECT_EQ(testing::error_of<UserError>([&] {
                  four.evaluate({tokens, std::span(targets).first(4 * T)});
              }),
              "model small: input 'targets' of a step has 7 examples of i32[3], 21 numbers, got 12");
}

/// Dropout in its weights hides attention in training, and validation has none.
TEST(Trainer, ValidationMayNeedAnArenaOfItsOwn) {
    const auto device = make_cpu_device();
    const nn::Gpt2Config model{.name = "small",
                               .layers = 1,
                               .heads = 3,
                               .channels = 12,
                               .vocabulary = 33,
                               .context = 3,
                               .dropout = 0.1};
    Gpt2Training options{.model = model, .batch = 3, .sequence = 3};
    Trainer plain = gpt2_trainer(*device, options);
    options.passes = testing::plain_and({{"match_attention", true}});
    Trainer matched = gpt2_trainer(*device, options);
    const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9}, targets{2, 3, 4, 5, 6, 7, 8, 9, 10};
    EXPECT_EQ(matched.step({tokens, targets}, 1e-3).loss, plain.step({tokens, targets}, 1e-3).loss);
    EXPECT_NEAR(matched.evaluate({tokens, targets}).loss, plain.evaluate({tokens, targets}).loss, 1e-5);
}

TEST(Trainer, AttentionThatIsMatchedTrainsTheSameInMemoryThatGrowsWithTheSequence) {
    const auto device = make_cpu_device();
    const auto trainer = [&](std::int64_t sequence, bool matched) {
        const nn::Gpt2Config model{.name = "long",
                                   .layers = 1,
                                   .heads = 1,
                                   .channels = 16,
                                   .vocabulary = 256,
                                   .context = 4096,
                                   .dropout = 0};
        Gpt2Training options{.model = model, .batch = 1, .sequence = sequence};
        options.passes = testing::plain_and({{"match_attention", matched}});
        return gpt2_trainer(*device, options);
    };
    const std::int64_t T = 4096;
    Trainer plain = trainer(T, false), matched = trainer(T, true);
    EXPECT_TRUE(plain.plan().step().kernels_of("attention").empty());
    EXPECT_EQ(matched.plan().step().kernels_of("attention").size(), 1u);
    EXPECT_EQ(matched.plan().step().kernels_of("attention_grad").size(), 1u);
    // Eight times the sequence of 512; the scores alone are T^2 numbers.
    EXPECT_LE(matched.plan().memory().arena, 8 * trainer(T / 8, true).plan().memory().arena);
    EXPECT_GE(plain.plan().memory().arena, T * T * 4);
    EXPECT_LT(matched.plan().memory().arena, T * T * 4);

    const TokenStream stream(words_of_bytes(5000));
    const TextWindows batches(stream, stream.all(), T, {.batch = 1});
    std::vector<std::int32_t> tokens(T), targets(T);
    batches.fill(0, 0, tokens, targets);
    for (int step = 0; step < 3; ++step) {
        const StepResult expected = plain.step({tokens, targets}, 1e-2);
        const StepResult got = matched.step({tokens, targets}, 1e-2);
        // Two orders of the same sums: FP32's 6e-8 over some hundred operations in a row.
        EXPECT_NEAR(got.loss, expected.loss, 1e-5f * expected.loss) << "step " << step;
        EXPECT_NEAR(got.gradient_norm, expected.gradient_norm, 1e-3f * expected.gradient_norm);
    }
    const float expected = plain.evaluate({tokens, targets}).loss;
    EXPECT_NEAR(matched.evaluate({tokens, targets}).loss, expected, 1e-5f * expected);
}

/// So many sequences of 255 bytes, until they are known by heart.
void expect_overfits(std::int64_t batch) {
    const auto device = make_cpu_device();
    const nn::Gpt2Config model = nn::gpt2_config("gpt2-tiny");
    Trainer trainer = gpt2_trainer(
        *device, {.model = model, .batch = batch, .sequence = 255, .optimizer = adamw({.weight_decay = 0})});
    const TokenStream stream(words_of_bytes(256 * batch));
    const TextWindows batches(stream, stream.all(), 255, {.batch = batch});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch) * 255), targets(tokens.size());
    float loss = INFINITY;
    int steps = 0;
    for (; steps < 400 && !(loss < 0.1f); ++steps) {
        batches.fill(0, 0, tokens, targets);
        loss = trainer.step({tokens, targets}, 2e-3).loss;
    }
    EXPECT_LT(loss, 0.1f) << "after " << steps << " steps";
}

TEST(Trainer, OverfitsAQuarterOfAKilobyteOfText) { expect_overfits(1); }

TEST(TrainerSlow, OverfitsOneKilobyteOfText) { expect_overfits(4); }

TEST(Trainer, AStepThatIsNotFiniteLeavesNoTrace) {
    const auto device = make_cpu_device();
    Trainer trainer = gpt2_trainer(*device, {.model = byte_gpt2(), .batch = 2, .sequence = 24});
    const std::vector<std::int32_t> tokens(48, 65), targets(48, 66);
    ASSERT_TRUE(trainer.step({tokens, targets}, 1e-3).applied);
    StateBlock& state = trainer.state();
    const std::string poisoned = "h.0.mlp.c_fc.bias";
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        const std::vector<std::byte> healthy = state.read(poisoned);
        std::vector<float> values = state.read_f32(poisoned);
        values[3] = bad;
        state.write(poisoned, std::as_bytes(std::span<const float>(values)));
        std::vector<std::vector<std::byte>> before;
        for (const State& entry : state.states()) before.push_back(state.read(entry.name));
        EXPECT_FALSE(trainer.step({tokens, targets}, 1e-3).applied);
        for (std::size_t i = 0; i < before.size(); ++i)
            EXPECT_EQ(state.read(state.states()[i].name), before[i]) << state.states()[i].name;
        state.write(poisoned, healthy);
    }
    EXPECT_TRUE(trainer.step({tokens, targets}, 1e-3).applied);
}

TEST(Trainer, ARateThatIsNoRateIsRefusedAndLeavesNoTrace) {
    const auto device = make_cpu_device();
    Trainer trainer = gpt2_trainer(*device, {.model = byte_gpt2(), .batch = 1, .sequence = 8});
    const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8};
    const Batch batch{tokens, tokens};
    const std::vector<std::byte> before = trainer.state().read("wte.weight");
    for (const double rate : {std::nan(""), HUGE_VAL, 1e39, -0.1}) {
        const std::string said =
            fmt::format("the learning rate of a step must be 0 or more and finite in FP32, got {}", rate);
        const auto expect_refused = [&](const std::function<void()>& step) {
            try {
                step();
                ADD_FAILURE() << "no error at " << rate;
            } catch (const UserError& error) {
                EXPECT_EQ(error.what(), said);
            }
        };
        expect_refused([&] { trainer.step(batch, rate); });
        expect_refused([&] { trainer.start(batch, rate); });
        trainer.gradients(batch);
        expect_refused([&] { trainer.update(rate); });
    }
    EXPECT_EQ(trainer.state().read("wte.weight"), before);
    EXPECT_EQ(trainer.steps_done(), 0);
    EXPECT_TRUE(trainer.step(batch, 0.1).applied);
}

TEST(Trainer, ClippingScalesTheGradientToItsNorm) {
    // One step of a fresh AdamW does not depend on the gradient's scale but for epsilon, so the moments tell.
    const auto device = make_cpu_device();
    const auto moments_after = [&](double clip, float* norm) {
        Trainer trainer = gpt2_trainer(
            *device, {.model = byte_gpt2(), .batch = 2, .sequence = 24, .optimizer = clipped(adamw(), clip)});
        const std::vector<std::int32_t> tokens(48, 65), targets(48, 66);
        *norm = trainer.step({tokens, targets}, 1e-3).gradient_norm;
        return trainer.state().read_f32("adamw.m.wte.weight");
    };
    float norm = 0, same_norm = 0;
    const auto free = moments_after(0, &norm), clipped = moments_after(0.5, &same_norm);
    EXPECT_EQ(norm, same_norm);
    ASSERT_GT(norm, 0.5f);
    const double scale = 0.5 / (static_cast<double>(norm) + 1e-6);
    for (std::size_t i = 0; i < free.size(); ++i)  // three roundings
        EXPECT_NEAR(clipped[i], free[i] * scale, 4 * 0x1p-24 * std::abs(free[i] * scale));
}

TEST(Trainer, ALossScaleThatIsAPowerOfTwoChangesNoBitInFp32) {
    const auto device = make_cpu_device();
    const auto parameters_after = [&](LossScaleOptions::Kind kind) {
        Trainer trainer =
            gpt2_trainer(*device, {.model = byte_gpt2(),
                                   .batch = 2,
                                   .sequence = 24,
                                   .optimizer = clipped(adamw(), 1.0),
                                   .loss_scale = {.kind = kind, .initial = 1024, .interval = 2}});
        const std::vector<std::int32_t> tokens(48, 65), targets(48, 66);
        for (int step = 0; step < 4; ++step) EXPECT_TRUE(trainer.step({tokens, targets}, 1e-3).applied);
        if (kind == LossScaleOptions::Kind::dynamic) {
            EXPECT_EQ(trainer.loss_scale().scale, 4096);
        }
        return trainer.state().read("wte.weight");
    };
    const auto plain = parameters_after(LossScaleOptions::Kind::none);
    EXPECT_EQ(parameters_after(LossScaleOptions::Kind::fixed), plain);
    EXPECT_EQ(parameters_after(LossScaleOptions::Kind::dynamic), plain);
}

TEST(Trainer, AnInfiniteGradientSkipsOneUpdateAndHalvesTheScale) {
    const auto device = make_cpu_device();
    Trainer trainer =
        gpt2_trainer(*device, {.model = byte_gpt2(),
                               .batch = 2,
                               .sequence = 24,
                               .loss_scale = {.kind = LossScaleOptions::Kind::dynamic, .initial = 256}});
    const std::vector<std::int32_t> tokens(48, 65), targets(48, 66);
    ASSERT_TRUE(trainer.step({tokens, targets}, 1e-3).applied);
    StateBlock& state = trainer.state();
    const std::string poisoned = "h.1.mlp.c_proj.weight";
    const std::vector<std::byte> healthy = state.read(poisoned);
    std::vector<float> values = state.read_f32(poisoned);
    values[5] = std::numeric_limits<float>::infinity();
    state.write(poisoned, std::as_bytes(std::span<const float>(values)));
    std::vector<std::vector<std::byte>> before;
    for (const State& entry : state.states()) before.push_back(state.read(entry.name));
    EXPECT_FALSE(trainer.step({tokens, targets}, 1e-3).applied);
    for (std::size_t i = 0; i < before.size(); ++i) {
        if (state.states()[i].name.starts_with("loss_scale.")) continue;
        EXPECT_EQ(state.read(state.states()[i].name), before[i]) << state.states()[i].name;
    }
    EXPECT_EQ(trainer.loss_scale().scale, 128);
    EXPECT_EQ(trainer.loss_scale().skipped, 1);
    // The replay runs with the scale of the step, and leaves the new one.
    const auto found = trainer.first_non_finite({tokens, targets}, 1e-3);
    ASSERT_TRUE(found);
    EXPECT_EQ(trainer.loss_scale().scale, 128);
    state.write(poisoned, healthy);
    EXPECT_TRUE(trainer.step({tokens, targets}, 1e-3).applied);
    EXPECT_EQ(trainer.loss_scale().skipped, 1);
}

TEST(Trainer, Bf16LearnsAsFp32Does) {
    const auto device = make_cpu_device();
    const TokenStream stream(words_of_bytes(2000));
    const TextWindows batches(stream, stream.all(), 23, {.batch = 3});
    const auto losses = [&](const char* policy) {
        Gpt2Training options{.model = byte_gpt2(), .batch = 3, .sequence = 23};
        options.policy = find_policy(policy);
        Trainer trainer = gpt2_trainer(*device, options);
        std::vector<std::int32_t> tokens(3 * 23), targets(3 * 23);
        std::vector<float> all;
        for (std::uint64_t i = 0; i < 20; ++i) {
            batches.fill(i, 0, tokens, targets);
            all.push_back(trainer.step({tokens, targets}, 1e-3).loss);
        }
        return all;
    };
    const std::vector<float> exact = losses("fp32"), rounded = losses("bf16");
    EXPECT_NE(exact, rounded);
    // BF16 keeps 8 bits; a loss is a mean over many roundings. The ladder stops at the same distance.
    for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 0.02f) << "step " << i;
}

TEST(Trainer, UnderflowIsSeenAndCuredByALossScale) {
    const auto device = make_cpu_device();
    const auto lost = [&](double scale, bool passes) {
        nn::Gpt2Config model = byte_gpt2();
        model.vocabulary = 4096;
        Gpt2Training options{.model = model, .batch = 8, .sequence = 24};
        options.policy = find_policy("fp16");
        options.passes = testing::plain_and(
            {{"match_attention", passes}, {"fuse_linear_cross_entropy", passes}, {"lay_out", passes}});
        options.loss_scale = {.kind = LossScaleOptions::Kind::fixed, .initial = scale};
        Trainer trainer = gpt2_trainer(*device, options);
        const std::vector<std::int32_t> tokens(8 * 24, 65), targets(8 * 24, 66);
        const auto before = trainer.state().read("wte.weight");
        const double share = trainer.underflow({tokens, targets}).share();
        EXPECT_EQ(trainer.state().read("wte.weight"), before);
        return share;
    };
    // A probability of 1/4096 shared by 192 tokens, at this scale, is 5e-9: below FP16's smallest number.
    // GPT-2's vocabulary over 4,096 tokens is there at scale 1.
    for (const bool passes : {false, true}) {
        // With the fused linear cross-entropy the gradient of logits, most of what is lost, is nowhere stored
        // as a whole.
        EXPECT_GT(lost(0x1p-8, passes), passes ? 0.1 : 0.5) << passes;
        EXPECT_LT(lost(256, passes), 0.01) << passes;
    }
}

TEST(Trainer, Fp16WithADynamicScaleLearnsAsFp32Does) {
    const auto device = make_cpu_device();
    const TokenStream stream(words_of_bytes(2000));
    const TextWindows batches(stream, stream.all(), 23, {.batch = 3});
    const auto mean_of_last = [&](const char* policy) {
        Gpt2Training options{.model = byte_gpt2(), .batch = 3, .sequence = 23};
        options.policy = find_policy(policy);
        options.loss_scale = default_loss_scale(options.policy);
        options.loss_scale.interval = 20;
        Trainer trainer = gpt2_trainer(*device, options);
        std::vector<std::int32_t> tokens(3 * 23), targets(3 * 23);
        double sum = 0;
        for (std::uint64_t i = 0; i < 120; ++i) {
            batches.fill(i, 0, tokens, targets);
            const float loss = trainer.step({tokens, targets}, 1e-3).loss;
            if (i >= 100) sum += static_cast<double>(loss);
        }
        return sum / 20;
    };
    EXPECT_NEAR(mean_of_last("fp16"), mean_of_last("fp32"), 0.02);
}

TEST(Trainer, BadSizesAreRefusedInOneLine) {
    const auto device = make_cpu_device();
    const auto error_of = [&](std::int64_t batch, std::int64_t sequence) -> std::string {
        try {
            Trainer trainer =
                gpt2_trainer(*device, {.model = byte_gpt2(), .batch = batch, .sequence = sequence});
        } catch (const UserError& error) {
            return error.what();
        }
        return "no error";
    };
    EXPECT_EQ(error_of(0, 8), "the batch must be 1 or more, got 0");
    EXPECT_EQ(error_of(-3, 8), "the batch must be 1 or more, got -3");
    EXPECT_EQ(error_of(2, 25), "small has a context of 24 tokens, a sequence of 25 does not fit");
    EXPECT_NE(error_of(100000000, 24).find("GB are available; use a smaller `batch`, `sequence` or `model`"),
              std::string::npos)
        << error_of(100000000, 24);
}

TEST(Gpt2, GradientsOfTheWholeModelAgreeWithDifferences) {
    const nn::Gpt2Config config{
        .name = "mini", .layers = 1, .heads = 2, .channels = 6, .vocabulary = 7, .context = 5};
    Graph graph;
    const Type ids{DType::i32, {2, 4}};
    const Tensor loss = nn::gpt2_loss(config, {graph, graph.add_input("tokens", ids)},
                                      {graph, graph.add_input("targets", ids)});
    const Graph forward = graph;
    const auto gradients = differentiate(graph, loss);
    ReferenceFeed feed{{"tokens", {0, 1, 2, 3, 6, 5, 5, 4}}, {"targets", {1, 2, 3, 4, 5, 5, 4, 0}}};
    for (std::uint32_t i = 0; i < graph.states().size(); ++i) {
        const State& state = graph.states()[i];
        const RandomStream random{.seed = 5, .step = 0, .operation = i};
        for (std::int64_t j = 0; j < state.type.shape.elements(); ++j)
            feed[state.name].push_back(0.4 *
                                           static_cast<double>(random.normal(static_cast<std::uint64_t>(j))) +
                                       state.initializer.mean);
    }
    const ReferenceRun run(graph, feed);
    for (const ParameterGradient& parameter : gradients) {
        const std::string& name = graph.states()[static_cast<std::size_t>(parameter.state)].name;
        for (std::size_t j = 0; j < feed[name].size(); ++j) {
            const double step = 1e-5;
            ReferenceFeed moved = feed;
            moved[name][j] += step;
            const double above = ReferenceRun(forward, moved)[loss.value()].values[0];
            moved[name][j] -= 2 * step;
            const double below = ReferenceRun(forward, moved)[loss.value()].values[0];
            // Truncation about step^2, cancellation about 1e-16 / step.
            EXPECT_NEAR(run[parameter.gradient.value()].values[j], (above - below) / (2 * step), 1e-8)
                << name << j;
        }
    }
}

TEST(Gpt2, WorkIsAsPublished) {
    EXPECT_NEAR(nn::decoder_config("gpt2").flops_per_token(1024) / 1e6, 803.3, 0.1);
}

TEST(Trainer, TakesItsStepsFromASourceAndGoesOnWhereItWasSaved) {
    const auto device = make_cpu_device({.threads = 1});
    const nn::Model model = nn::gpt2_model(byte_gpt2(), 8);
    const TokenStream stream(words_of_bytes(2000));
    const BatchOptions of_two{.batch = 2, .accumulate = 2, .order = BatchOrder::random, .seed = 5};
    const TextWindows windows(stream, stream.all(), 8, of_two);
    const TrainerOptions options{.batch = 2, .accumulate = 2, .policy = "bf16"};
    Trainer by_source(*device, model, options), by_batch(*device, model, options);
    BatchBuffer buffer(model, 2, 2);
    for (std::uint64_t step = 0; step < 3; ++step)
        EXPECT_EQ(by_source.step(windows, 1e-3).loss, by_batch.step(buffer.fill(windows, step), 1e-3).loss);
    const TemporaryDirectory directory;
    by_source.save(directory / "run");
    Trainer resumed(*device, model, options);
    EXPECT_EQ(resumed.resume(directory / "run"), "");
    EXPECT_EQ(resumed.steps_done(), 3);
    EXPECT_EQ(resumed.step(windows, 1e-3).loss, by_source.step(windows, 1e-3).loss);
}

}  // namespace
}  // namespace mantissa
