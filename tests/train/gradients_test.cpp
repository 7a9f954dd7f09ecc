// Gradients shown on the way of a step: those that the update uses, and the step is the same.
#include "mantissa/train/gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/train/sgd.h"
#include "tests/support/gpt2_training.h"

namespace mantissa {
namespace {

struct Case {
    const char* policy;
    std::int64_t accumulate;
    bool sgd;
};

class GradientsOfAStep : public ::testing::TestWithParam<Case> {
  protected:
    Trainer trainer(Optimizer optimizer) const {
        Gpt2Training training{.model = nn::gpt2_config("gpt2-tiny"), .batch = 1, .sequence = 32};
        training.accumulate = GetParam().accumulate;
        training.optimizer = std::move(optimizer);
        training.pipeline = all_passes(*device_, find_policy(GetParam().policy));
        training.loss_scale = default_loss_scale(training.pipeline.policy);
        return gpt2_trainer(*device_, training);
    }
    /// The first step's.
    StepResult step(Trainer& trainer, Profile* profile = nullptr) {
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(32 * GetParam().accumulate));
        for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 97);
        return trainer.step_run_by({tokens, tokens}, 1e-2, [&](Execution& each, bool last) {
            if (!last) return each.run();
            const auto show = [&](const std::string& parameter, Value value) {
                EXPECT_EQ(each.plan().graph().type(value).dtype, DType::f32) << parameter;
                std::vector<float>& numbers = shown_[parameter];
                order_.push_back(parameter);
                each.read_in_pieces(value, [&](std::int64_t, std::span<const std::byte> bytes) {
                    const std::size_t before = numbers.size();
                    numbers.resize(before + bytes.size() / sizeof(float));
                    std::memcpy(numbers.data() + before, bytes.data(), bytes.size());
                    return true;
                });
            };
            seconds_ = run_showing_gradients(each, show, profile);
        });
    }

    std::unique_ptr<Device> device_ = make_cpu_device({.threads = 2});
    std::map<std::string, std::vector<float>> shown_;
    std::vector<std::string> order_;
    double seconds_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Steps, GradientsOfAStep,
                         ::testing::Values(Case{"fp32", 1, false}, Case{"fp32", 3, false},
                                           Case{"bf16", 1, false}, Case{"fp16", 2, false},
                                           Case{"fp32", 1, true}),
                         [](const auto& each) {
                             return std::string(each.param.policy) + (each.param.sgd ? "_sgd_" : "_adamw_") +
                                    std::to_string(each.param.accumulate);
                         });

TEST_P(GradientsOfAStep, AreThoseOfEveryParameterAndHaveTheStepsNorm) {
    Trainer trainer = this->trainer(GetParam().sgd ? sgd({}) : adamw({}));
    const double scale = trainer.loss_scale().scale;
    Profile profile;
    const StepResult result = step(trainer, &profile);
    ASSERT_TRUE(result.applied);
    EXPECT_EQ(profile.size(), trainer.plan().step().nodes().size());
    EXPECT_GT(seconds_, 0);
    EXPECT_LT(seconds_, result.seconds);
    std::vector<std::string> parameters;
    double squares = 0;
    for (const State& state : trainer.state().states()) {
        if (state.kind != State::Kind::parameter) continue;
        parameters.push_back(state.name);
        EXPECT_EQ(static_cast<std::int64_t>(shown_[state.name].size()), state.type.shape.elements());
        for (const float x : shown_[state.name]) squares += static_cast<double>(x) * static_cast<double>(x);
    }
    EXPECT_EQ(order_, parameters);
    EXPECT_NEAR(std::sqrt(squares) / scale, result.gradient_norm, 1e-6 * result.gradient_norm);
}

TEST_P(GradientsOfAStep, HaveTheNameOfTheParameterThatTheyMove) {
    // The step of plain SGD is the gradient itself.
    Trainer trainer = this->trainer(sgd({}));
    const double scale = trainer.loss_scale().scale;
    std::map<std::string, std::vector<float>> before;
    for (const State& state : trainer.state().states())
        if (state.kind == State::Kind::parameter) before[state.name] = trainer.state().read_f32(state.name);
    ASSERT_TRUE(step(trainer).applied);
    for (const auto& [name, old] : before) {
        const auto now = trainer.state().read_f32(name);
        for (std::size_t i = 0; i < old.size(); ++i)
            ASSERT_NEAR(now[i], old[i] - 1e-2 * static_cast<double>(shown_[name][i]) / scale,
                        1e-6 * std::max(1.0f, std::abs(old[i])))
                << name << " " << i;
    }
}

TEST_P(GradientsOfAStep, ShowingThemChangesNoBit) {
    Trainer shown = trainer(adamw({})), plain = trainer(adamw({}));
    const StepResult result = step(shown);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(32 * GetParam().accumulate));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 97);
    EXPECT_EQ(plain.step({tokens, tokens}, 1e-2).loss, result.loss);
    for (const State& state : plain.state().states())
        EXPECT_TRUE(plain.state().read(state.name) == shown.state().read(state.name)) << state.name;
}

}  // namespace
}  // namespace mantissa
