// The predicted time of a step, where a part of it is computed again.
#include "mantissa/report/step_estimate.h"

#include <gtest/gtest.h>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/language_model.h"

namespace mantissa {
namespace {

TEST(StepEstimate, CountsWhatIsComputedAgain) {
    const auto device = make_cpu_device({.threads = 1});
    const Peaks peaks{.f32_fma = 1e11};
    const auto planned = [&](std::set<std::string> recompute, std::int64_t accumulate) {
        return TrainingPlan(*device, nn::language_model("gpt2-tiny").on_sequences(64),
                            {.batch = 2, .accumulate = accumulate, .recompute = std::move(recompute)});
    };
    const TrainingPlan kept = planned({}, 1), again = planned({"block"}, 1), twice = planned({"block"}, 2);
    EXPECT_EQ(kept.recomputed_flops(), 0);
    EXPECT_EQ(plan_text(kept, peaks).find("again"), std::string::npos);
    EXPECT_NE(plan_text(again, peaks).find(" again, about "), std::string::npos);
    // The forward pass is a third of a step's products; blocks keep what others read, and the head.
    const double share = again.recomputed_flops() / again.flops_per_step();
    EXPECT_GT(share, 0.15);
    EXPECT_LT(share, 0.34);
    EXPECT_EQ(twice.recomputed_flops(), 2 * again.recomputed_flops()) << "of each micro-batch";
    const double seconds = estimated_seconds(again, peaks, device->target());
    EXPECT_NEAR(seconds / estimated_seconds(kept, peaks, device->target()), 1 + share, 1e-12);
}

}  // namespace
}  // namespace mantissa
