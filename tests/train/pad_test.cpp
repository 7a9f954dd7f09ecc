// Training with padded parameters: the numbers of training without, zeros that stay zero, and checkpoints
// that do not know of it.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/checkpoint.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/step_execution.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/passes.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

constexpr std::int64_t B = 2, T = 16, V = 253;  // three rows short of two times 128

struct PadSetting {
    const char* policy = "fp32";
    bool fuse = false, match_attention = false, fuse_linear_cross_entropy = false;
    std::int64_t accumulate = 1;

    std::string text() const {
        return fmt::format("{}{}{}{}, {} micro-batches", policy, fuse ? " fuse" : "",
                           match_attention ? " match_attention" : "",
                           fuse_linear_cross_entropy ? " fuse_linear_cross_entropy" : "", accumulate);
    }
};

Gpt2Training pad_training(const PadSetting& setting, bool pad) {
    Gpt2Training options{
        .model = {.name = "small", .layers = 2, .heads = 2, .channels = 32, .vocabulary = V, .context = T},
        .batch = B,
        .sequence = T,
        .accumulate = setting.accumulate,
        .optimizer = clipped(adamw(), 1.0)};
    options.policy = find_policy(setting.policy);
    options.passes = testing::plain_and({{"fuse", setting.fuse},
                                         {"match_attention", setting.match_attention},
                                         {"fuse_linear_cross_entropy", setting.fuse_linear_cross_entropy},
                                         {"pad", pad}});
    options.loss_scale = default_loss_scale(options.policy);
    return options;
}

/// Steps up to `last`, on a text that names the last tokens of the vocabulary, too.
std::vector<StepResult> steps_up_to(Trainer& trainer, std::int64_t last) {
    std::vector<std::int32_t> text;
    for (std::int32_t i = 0; i < 2000; ++i) text.push_back((i * i / 7 + i) % static_cast<std::int32_t>(V));
    const TokenStream stream(text);
    const std::int64_t micro_batches = trainer.plan().options().accumulate;
    const TextWindows batches(stream, stream.all(), T, {.batch = B, .accumulate = micro_batches});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(trainer.plan().units_per_step())),
        targets(tokens.size());
    std::vector<StepResult> results;
    while (trainer.steps_done() < last) {
        for (std::int64_t i = 0; i < micro_batches; ++i) {
            const auto first = static_cast<std::size_t>(B * T * i), size = static_cast<std::size_t>(B * T);
            batches.fill(static_cast<std::uint64_t>(trainer.steps_done()), i,
                         std::span(tokens).subspan(first, size), std::span(targets).subspan(first, size));
        }
        results.push_back(trainer.step({tokens, targets}, 1e-3));
    }
    return results;
}

/// The bytes behind the rows of a parameter.
std::vector<std::byte> padding_of(Trainer& trainer, const std::string& name) {
    const StateBlock& state = trainer.state();
    const Type& type = state.type(name);
    std::vector<std::byte> rows(
        static_cast<std::size_t>(state.zero_rows(name) * type.bytes() / type.shape[0]));
    trainer.plan().device().copy_to_host(rows, state.address(name) + type.bytes());
    return rows;
}

std::vector<PadSetting> pad_settings(const Device& device) {
    std::vector<PadSetting> all = {
        {},
        {.fuse_linear_cross_entropy = true},
        {.fuse_linear_cross_entropy = true, .accumulate = 3},
        {.policy = "tf32", .match_attention = true},
        {.policy = "fp16"},
        {.policy = "fp16", .match_attention = true, .fuse_linear_cross_entropy = true},
        {.policy = "bf16", .accumulate = 2},
    };
    for (const bool fuse : {false, true})
        for (const bool matched : {false, true})
            for (const bool chunked : {false, true}) all.push_back({"bf16", fuse, matched, chunked});
    all.push_back({.fuse = true});
    if (!device.target().cannot_compile.empty())
        std::erase_if(all, [](const PadSetting& setting) { return setting.fuse; });
    return all;
}

TEST(Padded, TrainsAsUnpaddedDoesInEverySetting) {
    const auto device = make_cpu_device({.threads = 1});
    for (const PadSetting& setting : pad_settings(*device)) {
        Trainer plain = gpt2_trainer(*device, pad_training(setting, false)),
                padded = gpt2_trainer(*device, pad_training(setting, true));
        ASSERT_EQ(padded.plan().padded().size(), 1u) << setting.text();
        EXPECT_EQ(padded.plan().padded()[0].name, "wte.weight");
        EXPECT_EQ(padded.plan().padded()[0].zero_rows, 3);
        EXPECT_TRUE(plain.plan().padded().empty());
        const std::vector<StepResult> expected = steps_up_to(plain, 6), got = steps_up_to(padded, 6);
        // Sums of V terms are cut elsewhere, so that products differ by roundings: those of FP32, and where
        // one moves a number over a border of the short format, that format's, a few of them in a mean over
        // thousands. Six steps at rate 1e-3 multiply that by less than the number of steps.
        const std::string policy = setting.policy;
        const double error = policy == "bf16" ? 0x1p-9 : policy == "fp32" ? 0x1p-20 : 0x1p-12;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            EXPECT_NEAR(got[i].loss, expected[i].loss, error * expected[i].loss) << setting.text() << i;
            EXPECT_NEAR(got[i].gradient_norm, expected[i].gradient_norm,
                        4 * error * expected[i].gradient_norm)
                << setting.text() << i;
            EXPECT_EQ(got[i].applied, expected[i].applied) << setting.text() << i;
        }
        const std::vector<std::byte> padding = padding_of(padded, "wte.weight");
        EXPECT_EQ(padding, std::vector<std::byte>(3 * 32 * 4)) << setting.text();
        EXPECT_EQ(padded.state().type("wte.weight"), plain.state().type("wte.weight"));
        EXPECT_EQ(padded.state().zero_rows("adamw.m.wte.weight"), 0);
    }
}

TEST(Padded, RunsNoOperationToPadOrToCut) {
    const auto device = make_cpu_device({.threads = 1});
    for (const PadSetting& setting : pad_settings(*device)) {
        const TrainingPlan plain = gpt2_plan(*device, pad_training(setting, false)),
                           padded = gpt2_plan(*device, pad_training(setting, true));
        for (const char* op : {"pad", "slice"})
            EXPECT_EQ(padded.step().kernels_of(op), plain.step().kernels_of(op)) << setting.text();
        EXPECT_EQ(padded.step().nodes().size(), plain.step().nodes().size()) << setting.text();
    }
}

TEST(Padded, ValidationIsPaddedToo) {
    const auto device = make_cpu_device({.threads = 1});
    for (const bool chunked : {false, true}) {
        const PadSetting setting{.fuse_linear_cross_entropy = chunked};
        Trainer plain = gpt2_trainer(*device, pad_training(setting, false)),
                padded = gpt2_trainer(*device, pad_training(setting, true));
        const std::vector<std::int32_t> tokens(B * T, 252), targets(B * T, 9);
        EXPECT_FLOAT_EQ(padded.evaluate({tokens, targets}).loss, plain.evaluate({tokens, targets}).loss);
    }
}

TEST(Padded, ATokenBehindTheVocabularyIsNamedAndNotRead) {
    const auto device = make_cpu_device({.threads = 1});
    for (const bool chunked : {false, true}) {
        Trainer padded = gpt2_trainer(*device, pad_training({.fuse_linear_cross_entropy = chunked}, true));
        std::vector<std::int32_t> tokens(B * T, 5), targets(B * T, 9);
        const auto error_of_step = [&] {
            return testing::error_of([&] { padded.step({tokens, targets}, 1e-3); });
        };
        tokens[3] = V;
        EXPECT_NE(error_of_step().find("id 253 at position 3 is out of range, expected 0 to 252"),
                  std::string::npos);
        tokens[3] = 5;
        targets[4] = V;
        EXPECT_NE(error_of_step().find("target 253 at position 4 is out of range, expected 0 to 252"),
                  std::string::npos);
    }
}

TEST(Padded, CheckpointsKnowNothingOfIt) {
    const auto device = make_cpu_device({.threads = 1});
    for (const bool from_padded : {false, true}) {
        const TemporaryDirectory directory;
        Trainer saved = gpt2_trainer(*device, pad_training({}, from_padded)),
                resumed = gpt2_trainer(*device, pad_training({}, !from_padded));
        steps_up_to(saved, 3);
        save_training(directory / "run", saved);
        EXPECT_NE(resume_training(directory / "run", resumed).warning.find(R"("pad")"), std::string::npos);
        EXPECT_EQ(testing::states_of(resumed), testing::states_of(saved));
        const std::vector<StepResult> expected = steps_up_to(saved, 6), got = steps_up_to(resumed, 6);
        for (std::size_t i = 0; i < expected.size(); ++i)
            EXPECT_NEAR(got[i].loss, expected[i].loss, 0x1p-20 * expected[i].loss) << i;
        const LoadedCheckpoint loaded = load_checkpoint(directory / "run");
        const std::vector<TensorView> tensors = loaded.model.views();
        const auto embedding = std::find_if(tensors.begin(), tensors.end(), [](const TensorView& tensor) {
            return tensor.name.ends_with("wte.weight");
        });
        ASSERT_NE(embedding, tensors.end());
        EXPECT_EQ(embedding->shape, (std::vector<std::int64_t>{V, 32}));
    }
}

TEST(Padded, SharesItsStateWithTrainersThatDoNotPad) {
    const auto device = make_cpu_device({.threads = 1});
    TrainingPlan plain_plan = gpt2_plan(*device, pad_training({}, false)),
                 padded_plan = gpt2_plan(*device, pad_training({}, true));
    Trainer alone = gpt2_trainer(*device, pad_training({}, false));
    const TrainingPlan* const both[] = {&plain_plan, &padded_plan};
    const auto memory = allocate_training_memory(both);
    Trainer plain(std::move(plain_plan), memory), padded(std::move(padded_plan), memory);
    memory->state->initialize(plain.plan().options().seed);
    EXPECT_EQ(memory->state->zero_rows("wte.weight"), 3);
    const auto losses = [](const std::vector<StepResult>& results) {
        std::vector<float> values;
        for (const StepResult& result : results) values.push_back(result.loss);
        return values;
    };
    EXPECT_EQ(losses(steps_up_to(plain, 3)), losses(steps_up_to(alone, 3)));
    padded.continue_after(3);
    const std::vector<float> got = losses(steps_up_to(padded, 6)), expected = losses(steps_up_to(alone, 6));
    for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], expected[i], 0x1p-20f * expected[i]) << i;
    EXPECT_EQ(padding_of(plain, "wte.weight"), std::vector<std::byte>(3 * 32 * 4));
}

}  // namespace
}  // namespace mantissa
