// The roofline of a step: every launch in it, bounds by the counts, and files that their readers open.
#include "mantissa/report/roofline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/report/html.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/html_page.h"
#include "tests/support/trace_file.h"

namespace mantissa {
namespace {

class RooflineOfAStep : public ::testing::Test {
  protected:
    RooflineOfAStep() {
        Gpt2Training options{.model = nn::gpt2_config("gpt2-tiny"), .batch = 1, .sequence = 64};
        Trainer trainer = gpt2_trainer(*device_, options);
        const std::vector<std::int32_t> tokens(64, 7);
        Profile profile;
        StepResult result;
        for (int step = 0; step < 2; ++step) result = trainer.step({tokens, tokens}, 1e-4, &profile);
        report_ = roofline(trainer.plan().step(), profile, {.f32_fma = 1e11, .bf16_matrix = 0, .copy = 1e10},
                           result.seconds);
        report_.title = "gpt2-tiny <1 x 64>";
        launches_ = trainer.plan().step().nodes().size();
    }

    std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
    Roofline report_;
    std::size_t launches_ = 0;
};

TEST_F(RooflineOfAStep, ExplainsItsTime) {
    EXPECT_EQ(report_.entries.size(), launches_);
    EXPECT_GE(report_.explained(), 0.95);
    EXPECT_LE(report_.explained(), 1.0 + 1e-9);
    EXPECT_NEAR(
        report_.share_of(Bound::compute) + report_.share_of(Bound::memory) + report_.share_of(Bound::latency),
        report_.explained(), 1e-9);
}

TEST_F(RooflineOfAStep, BoundsFollowFromTheCounts) {
    for (const RooflineEntry& entry : report_.entries) {
        const double compute = static_cast<double>(entry.cost.flops) / 1e11;
        const double memory = static_cast<double>(entry.cost.bytes) / 1e10;
        EXPECT_DOUBLE_EQ(entry.roof_seconds, std::max(compute, memory));
        if (entry.bound == Bound::compute) {
            EXPECT_GT(compute, memory) << entry.op;
        }
        if (entry.bound == Bound::memory) {
            EXPECT_GE(memory, compute) << entry.op;
        }
    }
}

TEST_F(RooflineOfAStep, TheTraceHasAnEventForEachLaunch) {
    const auto json = nlohmann::json::parse(roofline_trace(report_));
    EXPECT_EQ(fault_of_trace(json), "");
    double end = 0;
    std::size_t launches = 0;
    for (const auto& event : json["traceEvents"]) {
        if (event["ph"] != "X") continue;
        ++launches;
        EXPECT_TRUE(event["args"].contains("bound"));
        EXPECT_GE(event["ts"].get<double>(), end - 1e-3);  // one after another
        end = event["ts"].get<double>() + event["dur"].get<double>();
    }
    EXPECT_EQ(launches, launches_);
}

TEST_F(RooflineOfAStep, ThePageNeedsNothingElse) {
    const std::string page = html::page(report_.title, roofline_section(report_));
    EXPECT_EQ(fault_of_page(page), "");
    EXPECT_NE(page.find("gpt2-tiny &lt;1 x 64&gt;"), std::string::npos);
    EXPECT_NE(page.find("<circle"), std::string::npos);
    EXPECT_NE(page.find("matmul"), std::string::npos);
}

TEST_F(RooflineOfAStep, WhatRanFromACacheIsSaidToAndIsNoShareAbove100) {
    Roofline report{.title = "two launches",
                    .peaks = {.f32_fma = 1e11, .bf16_matrix = 0, .copy = 1e10},
                    .wall_seconds = 2e-3,
                    .entries = {}};
    RooflineEntry add, product;
    add.op = "add";
    add.pass = product.pass = "forward";
    add.seconds = product.seconds = 1e-3;
    add.roof_seconds = 1.8e-3;
    add.bound = Bound::memory;
    product.op = "matmul";
    product.roof_seconds = 1.1e-3;
    product.bound = Bound::compute;
    report.entries = {add, product};
    const std::string table = roofline_table(report);
    EXPECT_EQ(table.find("180.0 %"), std::string::npos) << table;
    EXPECT_EQ(table.find("110.0 %"), std::string::npos) << table;
    EXPECT_NE(table.find("memory   cache\n"), std::string::npos) << table;
    EXPECT_NE(table.find("compute  100.0 %\n"), std::string::npos) << table;
    EXPECT_NE(table.find("; 2.00 ms if each reached its roof"), std::string::npos) << table;
    EXPECT_NE(table.find("\ncache: faster than memory is copied"), std::string::npos) << table;
    report.entries[0].roof_seconds = 0.9e-3;
    EXPECT_EQ(roofline_table(report).find("cache"), std::string::npos);
}

TEST_F(RooflineOfAStep, ALaunchThatWasDisturbedOnceTellsNothing) {
    const ProfiledStep typical =
        median_step({{{1e-3, 2e-3}, 4e-3}, {{50e-3, 3e-3}, 60e-3}, {{2e-3, 1e-3}, 5e-3}});
    EXPECT_EQ(typical.profile, (Profile{2e-3, 2e-3}));
    EXPECT_EQ(typical.wall_seconds, 5e-3);
    // No more time in launches than in the step.
    EXPECT_EQ(median_step({{{2.0, 1.0}, 3.0}, {{1.0, 2.0}, 3.0}, {{2.0, 2.0}, 4.0}}).wall_seconds, 4.0);
}

}  // namespace
}  // namespace mantissa
