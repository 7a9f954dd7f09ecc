// The numbers of a training step: all are looked at, nothing changes, and the scale that is proposed keeps
// them.
#include "mantissa/report/numerics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/device/cpu/cpu_device.h"

namespace mantissa {
namespace {

TEST(Numerics, OfAStepAreCountedAndChangeNothing) {
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer(*device, {.model = nn::gpt2_config("gpt2-tiny"), .batch = 1, .sequence = 32});
    std::vector<std::int32_t> tokens(32), targets(32);
    for (std::size_t i = 0; i < 32; ++i) tokens[i] = targets[i] = static_cast<std::int32_t>(i * 7 % 97);
    trainer.allocate();
    const auto before = trainer.state().read("wte.weight");
    const NumericsReport report = measure_numerics(trainer, tokens, targets);
    EXPECT_TRUE(trainer.state().read("wte.weight") == before);
    EXPECT_EQ(trainer.steps_done(), 0);

    EXPECT_EQ(report.weights.numbers() + report.weights.zeros(), 891648);  // all parameters
    EXPECT_EQ(report.gradients.not_finite(), 0);
    EXPECT_GT(report.activations.numbers(), 4 * 32 * 128);
    EXPECT_GT(report.gradient_tensors.size(), 40u);
    EXPECT_GT(report.gradients.lost_in_f16(0), report.gradients.lost_in_f16(10));
    const auto json = nlohmann::json::parse(numerics_json(report));
    EXPECT_EQ(json["command"], "numerics");
    const double scale = json["proposed_scale"];
    EXPECT_GT(scale, 1);
    EXPECT_LT(scale * static_cast<double>(report.gradients.greatest()), 65504);
    EXPECT_EQ(json["lost_at_scale"].size(), 25u);
    EXPECT_NE(numerics_table(report).find("<- choose this"), std::string::npos);
}

}  // namespace
}  // namespace mantissa
