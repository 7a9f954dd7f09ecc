// LLaMA goes through all that GPT-2 goes through, by the door of any model: every policy, every rung of the
// ladder, a step explained, sizes linted, numbers looked at.
#include <gtest/gtest.h>

#include <algorithm>

#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/report/explain.h"
#include "mantissa/report/ladder.h"
#include "mantissa/report/lint.h"
#include "mantissa/report/numerics.h"
#include "mantissa/train/training_plan.h"

namespace mantissa {
namespace {

/// Shorter texts may leave attention in its lines, which take less time there.
constexpr std::int64_t T = 80;

/// Three heads of queries to one of keys, and a vocabulary that no unit likes.
const nn::DecoderConfig ugly{.name = "ugly",
                             .parts = {.layers = 2,
                                       .heads = 3,
                                       .key_heads = 1,
                                       .head_size = 16,
                                       .channels = 48,
                                       .hidden = 96,
                                       .vocabulary = 253,
                                       .context = T}};

TokenStream some_text() {
    std::vector<std::int32_t> text;
    for (std::int32_t i = 0; i < 2000; ++i) text.push_back((i * i / 7 + i) % 253);
    return TokenStream(std::move(text));
}

TEST(LlamaReportsSlow, EveryRungOfTheLadderApplies) {
    const auto device = make_cpu_device({.threads = 2});
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << device->target().cannot_compile;
    const TokenStream stream = some_text();
    const LadderOptions options{
        .rungs = ladder_rungs(), .model = nn::decoder_model(ugly, T), .trainer = {.batch = 2}, .repeats = 1};
    const LadderReport report =
        run_ladder(*device, TextWindows(stream, stream.all(), T, {.batch = 2}), options);
    EXPECT_TRUE(report.skipped.empty());
    ASSERT_EQ(report.rungs.size(), ladder_rungs().size());
    const auto flash = std::ranges::find(report.rungs, "flash", &RungReport::name);
    ASSERT_NE(flash, report.rungs.end());
    EXPECT_FALSE(flash->attention_kernels.empty());
    const auto nice = std::ranges::find(report.rungs, "nice", &RungReport::name);
    // The head, by three rows; the embedding, which is another matrix here, would gain nothing.
    ASSERT_EQ(nice->padded.size(), 1u);
    EXPECT_EQ(nice->padded[0].zero_rows, 3);
}

TEST(LlamaReports, AStepIsExplainedLintedAndItsNumbersAreLookedAt) {
    const auto device = make_cpu_device({.threads = 2});
    const nn::Model model = nn::decoder_model(ugly, T);
    TrainerOptions options{.batch = 2};
    options.policy = find_policy("bf16");
    const TrainingPlan plan(*device, model, options);
    int attention = 0, broadcasts = 0;
    const Graph& graph = plan.step().graph();
    for (std::size_t id = 0; id < graph.size(); ++id) {
        attention += graph.node(static_cast<NodeId>(id)).op->name == "attention";
        broadcasts += graph.node(static_cast<NodeId>(id)).op->name == "broadcast";
    }
    EXPECT_EQ(attention, 2);
    EXPECT_EQ(broadcasts, 0) << "keys are copied";
}

}  // namespace
}  // namespace mantissa
