// The benchmark: what it runs, its figures, and how much of it a machine can do in some minutes.
#include "mantissa/report/bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/data/synthetic_images.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer.h"
#include "tests/support/html_page.h"

namespace mantissa {
namespace {

constexpr nn::ImageSizes small_images{.classes = 10, .image = 32, .width = 4};

BenchOptions options_of(std::initializer_list<const char*> precisions, const char* model = "ResNet50") {
    BenchOptions options;
    options.model = nn::image_model(model, small_images).model;
    for (const char* name : precisions) {
        TrainerOptions& trainer = options.precisions.emplace_back();
        trainer.optimizer = sgd();
        trainer.policy = find_policy(name);
        trainer.loss_scale = default_loss_scale(trainer.policy);
    }
    options.size = {.batch = 3, .warmup_batches = 2, .batches = 2, .iterations = 3};
    options.share_of_peak = [](double rate) { return rate / 1e15; };
    return options;
}

TEST(Bench, RunsWhatWasAskedForAndSaysIt) {
    const auto device = make_cpu_device({.threads = 1});
    BenchOptions options = options_of({"fp32", "bf16"}, "VGG19");
    std::vector<std::string> lines;
    options.line = [&](const std::string& precision, const std::string& line) {
        lines.push_back(precision + " " + line.substr(0, line.find(':')));
    };
    const BenchReport report = run_bench(*device, SyntheticImages(small_images, 1), options);
    EXPECT_EQ(lines,
              (std::vector<std::string>{"fp32 loss", "fp32 loss", "bf16 loss", "bf16 loss", "fp32 Iter #0",
                                        "bf16 Iter #0", "fp32 Iter #1", "bf16 Iter #1", "fp32 Iter #2",
                                        "bf16 Iter #2", "fp32 Img/sec", "bf16 Img/sec"}));
    ASSERT_EQ(report.results.size(), 2u);
    for (const BenchResult& result : report.results) {
        ASSERT_EQ(result.losses.size(), 2u);
        ASSERT_EQ(result.rates.size(), 3u);
        const double mean = (result.rates[0] + result.rates[1] + result.rates[2]) / 3;
        double squares = 0;
        for (const double rate : result.rates) squares += (rate - mean) * (rate - mean);
        EXPECT_NEAR(result.rate, mean, 1e-9 * mean);
        EXPECT_NEAR(result.interval, 1.96 * std::sqrt(squares / 3), 1e-9 * mean);
        EXPECT_GT(result.mfu, 0);
        EXPECT_GT(result.peak_bytes, 0);
        EXPECT_FALSE(result.kernels.empty());
        EXPECT_NEAR(result.losses[0], report.results[0].losses[0], 0.05) << "from the same weights";
    }
    EXPECT_EQ(report.results[0].speedup, 1);
    const std::string table = bench_table(report);
    EXPECT_NE(table.find("212.7     1.00x     6.90778"), std::string::npos) << table;
    const auto json = nlohmann::json::parse(bench_json(report));
    EXPECT_EQ(json["results"][1]["precision"], "bf16");
    EXPECT_EQ(json["results"][1]["images_per_second"].size(), 3u);
    EXPECT_EQ(json["batch"], 3);
}

TEST(Bench, ItsPageHasEveryFigureWithItsUnit) {
    BenchReport report;
    report.target.name = "A <CPU> & more";
    report.model = {.name = "ResNet50", .parameters = 25583592, .batch = 16, .examples = "16 images"};
    BenchResult fp32, bf16;
    fp32.precision = "fp32", fp32.rate = 5.25, fp32.interval = 0.25;
    bf16.precision = "bf16", bf16.rate = 12.5, bf16.speedup = 2.381;
    fp32.rates = {5, 5.5}, bf16.rates = {12, 13};
    fp32.losses = {7.45}, bf16.losses = {7.46};
    fp32.peak_bytes = 1'500'000'000;
    report.results = {fp32, bf16};
    const std::string page = bench_html(report, "mantissa bench --html 'a<b>'");
    EXPECT_EQ(fault_of_page(page), "");
    EXPECT_NE(bench_table(report).find("\nA100: the tutorial's"), std::string::npos);
    report.model.name = "ResNet20";
    EXPECT_EQ(bench_table(report).find("A100"), std::string::npos);
    for (const char* part : {"5.2 img/s, 1.00x", "12.5 img/s, 2.38x", "455.9 img/s, 1.00x", "7.45765",
                             "7.45000", "1,500", "25,583,592", "A &lt;CPU&gt; &amp; more", "a&lt;b&gt;"})
        EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST(Bench, TheLossOfTheSameBatchFalls) {
    const auto device = make_cpu_device({.threads = 1});
    for (const std::string& model : nn::image_model_names()) {
        BenchOptions options = options_of({"fp32"}, model.c_str());
        options.size.warmup_batches = 6;
        options.size.iterations = options.size.batches = 1;
        const BenchReport report = run_bench(*device, SyntheticImages(small_images, 1), options);
        const std::vector<double>& losses = report.results[0].losses;
        EXPECT_LT(losses.back(), losses.front()) << model;
    }
}

TEST(Bench, AStepThatIsNotFiniteEndsItWithWords) {
    const auto device = make_cpu_device({.threads = 1});
    BenchOptions options = options_of({"fp32"});
    options.start = [](StateBlock& state) {
        std::vector<float> bias(10, NAN);
        state.write("fc.bias", std::as_bytes(std::span(bias)));
    };
    try {
        run_bench(*device, SyntheticImages(small_images, 1), options);
        FAIL() << "a loss that is not finite was taken";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "fp32: the loss of batch 1 is not finite");
    }
}

TEST(Bench, ASlowMachineRunsFewerBatchesThenFewerIterations) {
    constexpr FreeBenchSize all{.batches = true, .iterations = true};
    constexpr BenchSize tutorial;
    EXPECT_EQ(affordable_size(tutorial, all, 1, 1e9), tutorial);
    EXPECT_EQ(affordable_size(tutorial, all, 1, 35), (BenchSize{.batches = 3}));
    EXPECT_EQ(affordable_size(tutorial, all, 1, 5.5), (BenchSize{.batches = 1, .iterations = 5}));
    EXPECT_EQ(affordable_size(tutorial, all, 1, -1), (BenchSize{.batches = 1, .iterations = 3}));
    EXPECT_EQ(affordable_size({.iterations = 2}, all, 1, 0), (BenchSize{.batches = 1, .iterations = 2}));
    EXPECT_EQ(affordable_size(tutorial, {.batches = true}, 1, 0), (BenchSize{.batches = 1}));
    EXPECT_EQ(affordable_size(tutorial, {.iterations = true}, 1, 45), (BenchSize{.iterations = 4}));
    EXPECT_EQ(affordable_size(tutorial, {}, 1, 0), tutorial);
}

TEST(Bench, WhatIsLeftOfASizeIsSaidAfterTheWarmUp) {
    const auto device = make_cpu_device({.threads = 1});
    BenchOptions options = options_of({"fp32"});
    EXPECT_EQ(fitting_batch(*device, options), 16);
    options.free = {.batches = true, .iterations = true};
    options.max_seconds = 0;
    BenchSize settled;
    double seconds = 0;
    options.settled = [&](const BenchSize& size, double about) { settled = size, seconds = about; };
    const BenchReport report = run_bench(*device, SyntheticImages(small_images, 1), options);
    EXPECT_EQ(settled, (BenchSize{.batch = 3, .warmup_batches = 2, .batches = 1, .iterations = 3}));
    EXPECT_GT(seconds, 0);
    EXPECT_EQ(report.size, settled);
    EXPECT_EQ(report.results[0].rates.size(), 3u);
}

}  // namespace
}  // namespace mantissa
