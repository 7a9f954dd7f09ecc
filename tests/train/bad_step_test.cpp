// A step that is not finite is run again and named: the first operation, or the tensor that was bad already.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/passes.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::StateBytes;
using testing::states_of;

constexpr float no_number = std::numeric_limits<float>::quiet_NaN(),
                infinite = std::numeric_limits<float>::infinity();

Gpt2Training bad_step_training(std::int64_t accumulate, double dropout, bool fuse) {
    Gpt2Training options{.model = {.name = "small",
                                   .layers = 2,
                                   .heads = 2,
                                   .channels = 16,
                                   .vocabulary = 40,
                                   .context = 64,
                                   .dropout = dropout},
                         .batch = 2,
                         .sequence = fuse ? 64 : 8,  // scores of 64 KB are worth a kernel
                         .accumulate = accumulate};
    options.passes = testing::plain_and({{"fuse", fuse}});
    if (fuse) options.recompute = {"softmax"};  // of masked scores, which then are in memory
    return options;
}

struct BadStepRun {
    std::unique_ptr<Device> device = make_cpu_device({.threads = 2});
    Trainer trainer;
    std::vector<std::int32_t> tokens, targets;

    explicit BadStepRun(std::int64_t accumulate = 1, double dropout = 0, bool fuse = false)
        : trainer(gpt2_plan(*device, bad_step_training(accumulate, dropout, fuse))) {
        for (std::int64_t i = 0; i < trainer.plan().units_per_step(); ++i) {
            tokens.push_back(static_cast<std::int32_t>(i * 7 % 39));
            targets.push_back(static_cast<std::int32_t>((i * 7 + 7) % 39));
        }
        EXPECT_TRUE(trainer.step({tokens, targets}, 1e-3).applied);
    }

    void put(const std::string& state, std::size_t element, float value) {
        std::vector<float> values = trainer.state().read_f32(state);
        values.at(element) = value;
        trainer.state().write(state, std::as_bytes(std::span<const float>(values)));
    }

    /// The message about a bad step, after checking that neither it nor the search left a trace.
    std::string name_of_bad_step(double learning_rate = 1e-3) {
        const StateBytes before = states_of(trainer);
        EXPECT_FALSE(trainer.step({tokens, targets}, learning_rate).applied);
        EXPECT_TRUE(states_of(trainer) == before) << "the step";
        const std::int64_t steps = trainer.steps_done();
        const auto found = trainer.first_non_finite({tokens, targets}, learning_rate);
        EXPECT_TRUE(states_of(trainer) == before) << "the search";
        EXPECT_EQ(trainer.steps_done(), steps);
        return found ? found->text() : "nothing";
    }
};

/// Without the number of a line, which moves.
void expect_named(const std::string& text, const std::string& expected) {
    std::string shown;
    for (std::size_t i = 0; i < text.size(); ++i) {
        shown += text[i];
        if (text.compare(i, 5, ".cpp:") != 0) continue;
        shown += "cpp:#";
        i += 5;
        while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]))) ++i;
        --i;
    }
    EXPECT_EQ(shown, expected);
}

/// Layer 0, with its infinite mask, is before layer 1, and none of it is a finding.
TEST(BadStep, ANanInAWeightIsNamedWithItsFirstReader) {
    BadStepRun run;
    run.put("h.1.mlp.c_fc.weight", 2 * 16 + 5, no_number);
    expect_named(run.name_of_bad_step(),
                 "h.1.mlp.c_fc.weight holds nan: element [2, 5] of f32[64, 16], "
                 "read first by matmul in h.1.mlp.c_fc (forward, decoder.cpp:#)");
}

/// The mask is then a constant in the body of a fused node, which writes the masked scores.
TEST(BadStep, TheMaskOfAFusedNodeIsNoFindingEither) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    BadStepRun run(1, 0, /*fuse=*/true);
    run.put("h.1.mlp.c_fc.weight", 2 * 16 + 5, no_number);
    expect_named(run.name_of_bad_step(),
                 "h.1.mlp.c_fc.weight holds nan: element [2, 5] of f32[64, 16], "
                 "read first by fused in h.1.mlp.c_fc (forward, decoder.cpp:#)");
}

TEST(BadStep, AnInfiniteEmbeddingIsNamed) {
    BadStepRun run;
    run.put("wte.weight", 7 * 16 + 1, infinite);
    expect_named(run.name_of_bad_step(),
                 "wte.weight holds inf: element [7, 1] of f32[40, 16], read first "
                 "by embedding (forward, decoder.cpp:#)");
}

TEST(BadStep, AnOperationThatOverflowsIsNamed) {
    BadStepRun run;
    for (std::size_t i = 0; i < 16; ++i) run.put("h.0.attn.c_proj.weight", i, i % 2 == 0 ? 3e38f : -3e38f);
    run.put("h.0.attn.c_proj.bias", 0, 3e38f);
    for (std::size_t i = 0; i < 16; ++i) run.put("h.0.attn.c_attn.bias", 32 + i, i % 2 == 0 ? 30.f : -30.f);
    const std::string text = run.name_of_bad_step();
    EXPECT_EQ(text.find("matmul %"), 0u) << text;
    EXPECT_NE(text.find(" in h.0.attn.c_proj (forward, decoder.cpp:"), std::string::npos) << text;
    EXPECT_NE(text.find(" made inf: element [0, 0] of f32[16, 16]"), std::string::npos) << text;
}

TEST(BadStep, OnlyAStepThatWasNotAppliedCanBeSearched) {
    // To its end, a search of another would apply it once more.
    BadStepRun run;
    EXPECT_THROW(run.trainer.first_non_finite({run.tokens, run.targets}, 1e-3), InternalError);
}

TEST(BadStep, ABadMicroBatchIsFoundWhereverItIs) {
    for (const double dropout : {0.0, 0.2}) {
        BadStepRun run(3, dropout);
        run.put("ln_f.weight", 3, no_number);
        expect_named(run.name_of_bad_step(),
                     "ln_f.weight holds nan: element [3] of f32[16], read first by "
                     "layer_norm in ln_f (forward, decoder.cpp:#)");
        run.put("ln_f.weight", 3, 1);
        EXPECT_TRUE(run.trainer.step({run.tokens, run.targets}, 1e-3).applied);
    }
}

TEST(BadStep, GradientsThatOverflowWhileTheyAreAddedUpAreNamed) {
    BadStepRun run(2);
    // Every token is 1 and normalised to about 3.8 in channel 0; every target is 39, whose weight of 1.5e38
    // in that channel counts in no score, for the last norm makes the channel 0. The gradient of that norm's
    // weight is then about 0.5 1.5e38 3.8 = 2.9e38 in each of the two micro-batches: finite, but not their
    // sum.
    std::fill(run.tokens.begin(), run.tokens.end(), 1);
    std::fill(run.targets.begin(), run.targets.end(), 39);
    run.put("wte.weight", 1 * 16, 1);
    run.put("wte.weight", 39 * 16, 1.5e38f);
    run.put("ln_f.weight", 0, 0);
    run.put("ln_f.bias", 0, 0);
    const std::string text = run.name_of_bad_step();
    EXPECT_EQ(text.find("tree_add %"), 0u) << text;
    EXPECT_NE(text.find(" in ln_f.weight (update) made -inf: element [0] of f32[16]"), std::string::npos)
        << text;
}

}  // namespace
}  // namespace mantissa
