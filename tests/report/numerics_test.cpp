// The numbers of a training step: all are looked at, nothing changes, and the scale that is proposed keeps
// them.
#include "mantissa/report/numerics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/state_block.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/html_page.h"
#include "tests/support/passes.h"

namespace mantissa {
namespace {

TEST(Numerics, OfAStepAreCountedAndChangeNothing) {
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer = gpt2_trainer(*device, {.model = nn::gpt2_config("gpt2-tiny"),
                                             .batch = 1,
                                             .sequence = 32,
                                             .loss_scale = traced_loss_scale()});
    std::vector<std::int32_t> tokens(32), targets(32);
    for (std::size_t i = 0; i < 32; ++i) tokens[i] = targets[i] = static_cast<std::int32_t>(i * 7 % 97);
    const auto before = trainer.state().read("wte.weight");
    const NumericsReport report = measure_numerics(trainer, {tokens, targets});
    EXPECT_TRUE(trainer.state().read("wte.weight") == before);
    EXPECT_EQ(trainer.steps_done(), 0);

    EXPECT_EQ(report.weights.all.numbers() + report.weights.all.zeros(), 891648);  // all parameters
    EXPECT_EQ(report.gradients.all.not_finite(), 0);
    EXPECT_GT(report.activations.all.numbers(), 4 * 32 * 128);
    EXPECT_GT(report.gradients.tensors.size(), 40u);
    EXPECT_GT(report.gradients.all.lost_in_f16(0), report.gradients.all.lost_in_f16(10));
    const auto json = nlohmann::json::parse(numerics_json(report));
    EXPECT_EQ(json["command"], "numerics");
    const double scale = json["proposed_scale"];
    EXPECT_GT(scale, 1);
    EXPECT_LT(scale * static_cast<double>(report.gradients.all.greatest()), 65504);
    EXPECT_EQ(json["lost_at_scale"].size(), 25u);
    EXPECT_NE(numerics_table(report).find("<- choose this"), std::string::npos);
}

/// Powers in the gradients of LLaMA's norms are beyond FP16, but no loss scale moves them. They kept the
/// proposed scale at 1.
TEST(Numerics, FactorsOfGradientsAreNoGradients) {
    const auto device = make_cpu_device({.threads = 1});
    const nn::Model model = nn::language_model("llama-tiny").on_sequences(32);
    Trainer trainer(*device, model,
                    {.batch = 1, .passes = testing::plain_and({}), .loss_scale = traced_loss_scale()});
    std::vector<std::int32_t> tokens(32), targets(32);
    for (std::size_t i = 0; i < 32; ++i) tokens[i] = targets[i] = static_cast<std::int32_t>(i * 7 % 97);
    const NumericsReport report = measure_numerics(trainer, {tokens, targets});
    EXPECT_GT(report.activations.all.greatest(), 65504);
    EXPECT_LT(report.gradients.all.greatest(), 65504 / 8);
    EXPECT_GE(proposed_scale_exponent(report.gradients.all), 3);
}

NumericsReport written_numerics() {
    NumericsReport report{.model = "tiny <&>", .steps = 10};
    ExponentHistogram small, large;
    small.add(std::vector<float>{0x1p-26f, 0x1p-26f, 0x1p-26f, 0x1p-10f, 0});
    large.add(std::vector<float>{0.5f, 1, 2});
    report.gradients.add("h.0 <mul>", small);
    report.activations.add("h.0 add", large);
    report.weights.add("wte.weight", large);
    return report;
}

TEST(Numerics, ThePageHasAHistogramOfEveryTensorUnderTheRanges) {
    const std::string page = numerics_html(written_numerics(), "mantissa numerics '<'");
    EXPECT_EQ(fault_of_page(page), "");
    for (const char* part :
         {"Numbers of tiny &lt;&amp;&gt;", "after 10 steps", "h.0 &lt;mul&gt;", "h.0 add", "wte.weight",
          // Where the formats begin and end.
          "FP16</text>", "2^-24 ... 2^16", "BF16</text>", "2^-133 ... 2^128", "TF32</text>",
          "2^-136 ... 2^128",
          // Three of four are lost at 1. 2^-10 times 2^23 is below a quarter of 65504, times 2^24 above.
          "At 1, 75.00 % of the gradients become zero; at 2^23, the scale to choose, 0.00 % do",
          "choose this", "mantissa numerics &#39;&lt;&#39;"})
        EXPECT_NE(page.find(part), std::string::npos) << part << " is missing in\n" << page;
    const auto json = nlohmann::json::parse(numerics_json(written_numerics()));
    ASSERT_EQ(json["tensors"].size(), 3u);
    EXPECT_EQ(json["tensors"][0]["kind"], "weight");
    EXPECT_EQ(json["tensors"][2]["name"], "h.0 <mul>");
    EXPECT_EQ(json["tensors"][2]["lost"], 0.75);
    EXPECT_EQ(json["tensors"][2]["lost_at_proposed"], 0);
}

/// A probability of 1/50,257 shared by 768 tokens is 2.6e-8, less than half of FP16's smallest number: at
/// scale 1 nothing tells the words that did not occur that they are too likely. So it is with GPT-2 on a full
/// batch.
class LossScaleAdvice : public ::testing::Test {
  protected:
    static Gpt2Training options(const char* policy) {
        nn::Gpt2Config model = nn::gpt2_config("gpt2-tiny");
        model.layers = 1;
        model.heads = 2;
        model.channels = 64;
        model.vocabulary = 50257;
        Gpt2Training options{.model = model, .batch = 8, .sequence = 96};
        options.policy = find_policy(policy);
        return options;
    }

    struct Trained {
        std::vector<double> losses;
        double lost = 0;
    };
    /// With a loss scale that stays; 0: none.
    Trained train(const char* policy, double scale) {
        Gpt2Training settings = options(policy);
        if (scale > 0) settings.loss_scale = {.kind = LossScaleOptions::Kind::fixed, .initial = scale};
        Trainer trainer = gpt2_trainer(*device_, settings);
        Trained trained;
        if (scale > 0) trained.lost = trainer.underflow({tokens_, targets_}).share();
        for (int step = 0; step < 3; ++step) {
            const StepResult result = trainer.step({tokens_, targets_}, 3e-3);
            EXPECT_TRUE(result.applied) << policy << " at " << scale << ", step " << step;
            trained.losses.push_back(static_cast<double>(result.loss));
        }
        return trained;
    }

    LossScaleAdvice() {
        for (std::int32_t i = 0; i < 8 * 96; ++i) {
            tokens_.push_back(i * i % 89);
            targets_.push_back((i + 1) * (i + 1) % 89);
        }
    }

    std::unique_ptr<Device> device_ = make_cpu_device();
    std::vector<std::int32_t> tokens_, targets_;
};

TEST_F(LossScaleAdvice, TrainsWhereScaleOneLosesGradients) {
    double proposed = 0;
    {
        Gpt2Training settings = options("fp32");
        settings.loss_scale = traced_loss_scale();
        Trainer exact = gpt2_trainer(*device_, settings);
        const NumericsReport report = measure_numerics(exact, {tokens_, targets_});
        EXPECT_GT(report.gradients.all.lost_in_f16(0), 0.5);
        proposed = std::ldexp(1.0, proposed_scale_exponent(report.gradients.all));
    }
    const Trained exact = train("fp32", 0), at_one = train("fp16", 1), at_proposed = train("fp16", proposed);
    EXPECT_GT(at_one.lost, 0.5);
    EXPECT_LT(at_proposed.lost, 0.001);
    const auto furthest = [&](const Trained& trained) {
        double most = 0;
        for (std::size_t i = 0; i < exact.losses.size(); ++i)
            most = std::max(most, std::abs(trained.losses[i] - exact.losses[i]));
        return most;
    };
    EXPECT_LE(furthest(at_proposed), 0.02);  // as the ladder allows FP16
    EXPECT_GT(furthest(at_one), 0.02);
}

}  // namespace
}  // namespace mantissa
