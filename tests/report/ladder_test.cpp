// The ladder on a model with an ugly vocabulary: the rung `nice` pads it, says so, and keeps the losses.
#include "mantissa/report/ladder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/data/synthetic_images.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cpu/cpu_target.h"
#include "mantissa/report/step_estimate.h"
#include "tests/support/device_around.h"
#include "tests/support/gpt2.h"
#include "tests/support/machine_kinds.h"

namespace mantissa {
namespace {

TEST(Ladder, RungsStandInTheOrderInWhichTheyAreClimbed) {
    EXPECT_EQ(ladder_rungs(),
              (std::vector<std::string>{"fp32", "tf32", "bf16", "compiled", "flash", "nice", "loss",
                                        "fp32-all", "fp16", "fp8", "fp8-delayed", "fp8-block", "mxfp8",
                                        "mxfp6", "mxfp6-e2m3", "mxfp4", "mxfp4-up", "nvfp4"}));
    Target target;
    target.tf32_beats_fp32 = true;
    target.cannot_compile = "built without LLVM";
    EXPECT_EQ(default_rungs(target), (std::vector<std::string>{"fp32", "tf32", "bf16"}));
}

/// All decisions that follow from a machine's rates, for every kind that has been met.
TEST(Ladder, EveryKindOfMachineClimbsWhatIsWorthTryingThere) {
    const std::vector<std::string> fused = {"compiled", "flash", "nice", "loss"};
    struct Decisions {
        std::string isa, unit, policy;
        std::vector<std::string> first, last;  ///< rungs around those of fused
    };
    const std::vector<Decisions> expected = {
        {"generic", "", "fp32", {"fp32", "bf16"}, {"fp32-all"}},
        {"avx2", "", "fp32", {"fp32", "bf16"}, {"fp32-all"}},
        {"avx512", "", "fp32", {"fp32", "bf16"}, {"fp32-all"}},
        {"avx512", "avx512_bf16", "bf16", {"fp32", "bf16"}, {}},
        {"avx512", "", "bf16", {"fp32", "bf16"}, {"fp32-all"}},
        {"amx", "amx", "bf16", {"fp32", "tf32", "bf16"}, {}},
    };
    const auto kinds = testing::machine_kinds();
    ASSERT_EQ(kinds.size(), expected.size());
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        SCOPED_TRACE(kinds[i].name);
        const testing::Pretend pretend(kinds[i]);
        Target target = on_cpu::cpu_target(on_cpu::fastest_isa(kinds[i].best, kinds[i].rates), 2);
        target.cannot_compile.clear();
        EXPECT_EQ(target.isa, expected[i].isa);
        EXPECT_EQ(target.bf16_unit, expected[i].unit);
        EXPECT_EQ(target.fastest_policy, expected[i].policy);
        std::vector<std::string> rungs = expected[i].first;
        rungs.insert(rungs.end(), fused.begin(), fused.end());
        rungs.insert(rungs.end(), expected[i].last.begin(), expected[i].last.end());
        EXPECT_EQ(default_rungs(target), rungs);
        // A step is predicted by the rate of the unit that multiplies.
        const Peaks peaks{.f32_fma = 1, .bf16_matrix = target.bf16_unit.empty() ? 0.0 : 2.0};
        const std::string by = target.bf16_unit.empty() ? target.isa : target.bf16_unit;
        EXPECT_EQ(unit_peak({.multiply = "bf16", .unit = by}, peaks, target),
                  target.bf16_unit.empty() ? 1 : 2);
        EXPECT_EQ(unit_peak({.multiply = "fp8", .unit = by}, peaks, target),
                  target.bf16_unit.empty() ? 1 : 4);
    }
}

/// A machine that would take long gets fewer sequences a step, and never fewer rungs.
TEST(Ladder, ASlowMachineClimbsWithFewerExamples) {
    const auto device = make_cpu_device({.threads = 1});
    const nn::Gpt2Config small{
        .name = "small", .layers = 1, .heads = 2, .channels = 32, .vocabulary = 256, .context = 16};
    LadderOptions options{
        .rungs = {"fp32", "bf16"}, .model = nn::gpt2_model(small, 16), .trainer = {.batch = 1}};
    options.known_peaks = {.f32_fma = 1e12, .bf16_matrix = 1e12, .copy = 1e11};
    const LadderSize quick = ladder_size(*device, options);
    EXPECT_EQ(quick.batch, 4);
    EXPECT_EQ(quick.max_that_fits, 4);
    EXPECT_GT(quick.seconds, 0);
    EXPECT_LT(ladder_size(*device, options, quick.seconds / 1.2).batch, 4);
    const LadderSize slow = ladder_size(*device, options, 0);
    EXPECT_EQ(slow.batch, 1);
    EXPECT_EQ(slow.max_that_fits, 4);
    EXPECT_NEAR(slow.seconds_of_most, quick.seconds, 1e-9 * quick.seconds);
    options.known_peaks.f32_fma /= 100;
    EXPECT_GT(ladder_size(*device, options).seconds, quick.seconds) << "the rung fp32 takes longer";
}

TEST(Ladder, NicePadsAnUglyVocabulary) {
    const auto device = make_cpu_device({.threads = 1});
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << device->target().cannot_compile;
    std::vector<std::int32_t> text;
    for (std::int32_t i = 0; i < 2000; ++i) text.push_back((i * i / 7 + i) % 253);
    const TokenStream stream(text);
    constexpr std::int64_t T = 80;  // shorter, attention may lose beside its lines
    const nn::Gpt2Config ugly{
        .name = "ugly", .layers = 1, .heads = 2, .channels = 32, .vocabulary = 253, .context = T};
    std::vector<std::string> said;
    const LadderOptions options{.rungs = {"flash", "nice", "loss"},
                                .model = nn::gpt2_model(ugly, T),
                                .trainer = {.batch = 2},
                                .progress = [&](const std::string& what) { said.push_back(what); }};
    const LadderReport report =
        run_ladder(*device, TextWindows(stream, stream.all(), T, {.batch = 2}), options);
    ASSERT_EQ(report.rungs.size(), 3u);
    // The rest is estimated by the steps that ran, from the first on.
    EXPECT_NE(said.front(), said.back());
    EXPECT_EQ(std::ranges::count_if(said, [](const std::string& what) { return what.ends_with(" to go"); }),
              3 * (5 + 3) - 1);
    EXPECT_FALSE(report.rungs[0].pads);
    EXPECT_TRUE(report.rungs[0].padded.empty());
    for (const std::size_t rung : {1u, 2u}) {
        EXPECT_TRUE(report.rungs[rung].pads);
        ASSERT_EQ(report.rungs[rung].padded.size(), 1u);
        EXPECT_EQ(report.rungs[rung].padded[0].zero_rows, 3);
    }
    // Neither parameters nor the work that MFU counts know of the padding.
    EXPECT_EQ(report.model.parameters, ugly.parameters());
    EXPECT_NE(ladder_table(report).find("; wte.weight padded from 253 rows to 256"), std::string::npos);
    const auto json = nlohmann::json::parse(ladder_json(report));
    EXPECT_TRUE(json["rungs"][0]["padded"].empty());
    EXPECT_EQ(json["rungs"][1]["padded"],
              nlohmann::json::parse(R"([{"name": "wte.weight", "rows": 253, "padded_rows": 256}])"));
}

/// Losses behind batch norms are shown and not judged.
TEST(Ladder, TakesNetworksForImages) {
    const auto device = make_cpu_device({.threads = 1});
    const nn::ImageSizes sizes{.classes = 10, .image = 32, .width = 4};
    for (const auto& [name, judged] : {std::pair{"ResNet50", false}, {"VGG19", true}}) {
        LadderOptions options{
            .rungs = {"fp32", "bf16"}, .model = nn::image_model(name, sizes).model, .trainer = {.batch = 2}};
        options.steps = 2, options.repeats = 1;
        const LadderReport report = run_ladder(*device, SyntheticImages(sizes, 1), options);
        ASSERT_EQ(report.rungs.size(), 2u);
        EXPECT_EQ(std::isinf(report.rungs[1].loss_tolerance), !judged);
        const std::string table = ladder_table(report);
        EXPECT_EQ(table.find("losses, not held against one another") == std::string::npos, judged);
        EXPECT_NE(table.find("images/s"), std::string::npos);
        const auto json = nlohmann::json::parse(ladder_json(report));
        EXPECT_EQ(json["rungs"][1]["loss_tolerance"].is_null(), !judged);
    }
}

TEST(Ladder, NamesTheFastestRungAndHowToTrainWithIt) {
    LadderReport report;
    report.model.unit = "tokens";
    for (const double milliseconds : {30.0, 10.0, 20.0}) {
        RungReport rung;
        rung.name = fmt::format("rung{}", milliseconds);
        rung.milliseconds = milliseconds;
        rung.units_per_second = 1e4 / milliseconds;
        rung.losses = {1.0};
        rung.policy = "bf16";
        if (milliseconds == 10) rung.passes = {"simplify", "fuse"};
        report.rungs.push_back(rung);
    }
    const std::string table = ladder_table(report);
    EXPECT_TRUE(table.ends_with(
        "fastest of these: rung10, 1,000 tokens/s; to train so: `policy` bf16 `passes` simplify,fuse\n"))
        << table;
    const auto json = nlohmann::json::parse(ladder_json(report));
    EXPECT_EQ(json["fastest"]["rung"], "rung10");
    EXPECT_EQ(json["fastest"]["passes"].size(), 2u);
}

/// The table of a ladder of one rung beside peaks that are known before it.
LadderReport with_known_peaks(Device& device, Peaks known) {
    const std::vector<std::int32_t> text(500, 7);
    const TokenStream stream(text);
    const nn::Gpt2Config small{
        .name = "small", .layers = 1, .heads = 2, .channels = 32, .vocabulary = 61, .context = 16};
    LadderOptions options{.rungs = {"fp32"}, .model = nn::gpt2_model(small, 16), .trainer = {.batch = 2}};
    options.known_peaks = known;
    options.known_from = "kept in FILE";
    return run_ladder(device, TextWindows(stream, stream.all(), 16, {.batch = 2}), options);
}

TEST(Ladder, SharesAreOfTheLargestPeakKnown) {
    const auto device = make_cpu_device({.threads = 1});
    const LadderReport alone = with_known_peaks(*device, {});
    EXPECT_NE(ladder_table(alone).find("\npeaks measured between the steps: "), std::string::npos);
    const LadderReport known = with_known_peaks(*device, {.f32_fma = 1e18, .bf16_matrix = 0, .copy = 1});
    EXPECT_EQ(known.peaks.f32_fma, 1e18);
    EXPECT_GT(known.peaks.copy, 1);
    EXPECT_LT(known.rungs[0].mfu, 1e-3);
    EXPECT_NE(ladder_table(known).find("\npeaks measured between the steps, or earlier and kept in FILE: "),
              std::string::npos)
        << ladder_table(known);
}

/// Measures peaks a thousand times too low.
class Slow final : public testing::DeviceAround {
  public:
    Slow() : DeviceAround(make_cpu_device({.threads = 1})) {}
    Peaks measure_peaks(DeviceMemory&) override { return {.f32_fma = 1e3, .bf16_matrix = 0, .copy = 1e3}; }
};

TEST(Ladder, NoShareExceedsOne) {
    Slow device;
    const LadderReport report = with_known_peaks(device, {});
    EXPECT_DOUBLE_EQ(report.rungs[0].mfu, 1);
    EXPECT_DOUBLE_EQ(report.rungs[0].share_of_unit_peak, 1);
    EXPECT_GT(report.peaks.f32_fma, 1e3);
}

/// A machine whose caches are small.
class SmallCaches final : public testing::DeviceAround {
  public:
    SmallCaches() : DeviceAround(make_cpu_device({.threads = 1})), target_(DeviceAround::target()) {
        target_.l3_bytes = 0;
    }
    const Target& target() const override { return target_; }
    Peaks measure_peaks(DeviceMemory& scratch) override {
        measured_in = scratch.size();
        return DeviceAround::measure_peaks(scratch);
    }

    std::size_t measured_in = 0;

  private:
    Target target_;
};

TEST(Ladder, CopiesAreMeasuredInTheArenaWhereItIsLargeEnough) {
    SmallCaches device;
    const LadderReport beside = with_known_peaks(device, {});
    EXPECT_EQ(beside.scratch_bytes, 64 << 20);
    EXPECT_NE(
        ladder_table(beside).find("+ 67.1 to measure the peak of copying, which training does not need"),
        std::string::npos)
        << ladder_table(beside);

    std::vector<std::int32_t> text(5000);
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int32_t>(i * 7919 % 20000);
    const TokenStream stream(text);
    const nn::Gpt2Config wide{
        .name = "wide", .layers = 1, .heads = 1, .channels = 16, .vocabulary = 20000, .context = 16};
    const LadderOptions options{.rungs = {"fp32", "bf16"},
                                .model = nn::gpt2_model(wide, 16),
                                .trainer = {.batch = 64},
                                .steps = 2,
                                .repeats = 2};
    const LadderReport within =
        run_ladder(device, TextWindows(stream, stream.all(), 16, {.batch = 64}), options);
    EXPECT_GT(within.memory.arena, 64 << 20);
    EXPECT_EQ(within.scratch_bytes, 0);
    EXPECT_EQ(device.measured_in, std::size_t{64} << 20);
    EXPECT_GT(within.peaks.copy, 0);
    EXPECT_EQ(ladder_table(within).find("to measure"), std::string::npos);
}

}  // namespace
}  // namespace mantissa
