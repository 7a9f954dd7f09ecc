// Gradients shown on the way of a step: those that the update uses, and the step is the same.
#include "mantissa/train/gradients.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

struct GradientsCase {
    const char* policy;
    std::int64_t accumulate;
    bool sgd;
};

class GradientsOfAStep : public ::testing::TestWithParam<GradientsCase> {
  protected:
    Trainer trainer(Optimizer optimizer) const {
        Gpt2Training training{.model = nn::gpt2_config("gpt2-tiny"), .batch = 1, .sequence = 32};
        training.accumulate = GetParam().accumulate;
        training.optimizer = std::move(optimizer);
        training.policy = find_policy(GetParam().policy);
        training.loss_scale = default_loss_scale(training.policy);
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
                         ::testing::Values(GradientsCase{"fp32", 1, false}, GradientsCase{"fp32", 3, false},
                                           GradientsCase{"bf16", 1, false}, GradientsCase{"fp16", 2, false},
                                           GradientsCase{"fp32", 1, true}),
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

TEST_P(GradientsOfAStep, CanBeStoppedAtAndGoneOnFrom) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(32 * GetParam().accumulate));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 97);
    const Batch batch{tokens, tokens};
    const auto made = [&] { return trainer(GetParam().sgd ? sgd({.momentum = 0.9}) : adamw({})); };
    Trainer plain = made(), stopping = made();
    const auto states = [](const Trainer& of) {
        return testing::states_of(
            of, [](const State& s) { return is_weight(s) || s.kind == State::Kind::optimizer; });
    };
    const auto before = states(stopping);
    const double scale = stopping.loss_scale().scale;
    step(plain);  // which shows the same gradients
    const Gradients& gradients = stopping.gradients(batch);
    EXPECT_EQ(gradients.names(), order_);
    double squares = 0;
    for (const std::string& name : gradients.names()) {
        const std::vector<float> read = gradients.read(name);
        ASSERT_EQ(read.size(), shown_[name].size()) << name;
        for (std::size_t i = 0; i < read.size(); ++i) {
            ASSERT_EQ(read[i], static_cast<float>(static_cast<double>(shown_[name][i]) / scale)) << name;
            squares += static_cast<double>(read[i]) * static_cast<double>(read[i]);
        }
        const Gradients::Place place = gradients.place(name);
        EXPECT_EQ(std::memcmp(place.bytes, shown_[name].data(), sizeof(float) * read.size()), 0) << name;
        EXPECT_EQ(static_cast<double>(place.loss_scale), scale);
    }
    EXPECT_NEAR(gradients.norm(), std::sqrt(squares), 1e-12 * gradients.norm());
    EXPECT_TRUE(states(stopping) == before);
    // Let go, and made again; the step of both is that of the other trainer.
    const float loss = gradients.loss();
    EXPECT_EQ(stopping.gradients(batch).loss(), loss);
    const StepResult result = stopping.update(1e-2);
    EXPECT_TRUE(result.applied);
    EXPECT_EQ(result.loss, loss);
    EXPECT_EQ(stopping.steps_done(), 1);
    EXPECT_TRUE(states(stopping) == states(plain));
    stopping.gradients(batch);
    EXPECT_EQ(stopping.step(batch, 1e-2).loss, plain.step(batch, 1e-2).loss);
    EXPECT_TRUE(states(stopping) == states(plain));
    EXPECT_THROW(stopping.update(1e-2), UserError);
    EXPECT_THROW(stopping.gradients(batch).read("wte"), UserError);
}

TEST(ATrainerThatChanges, GoesOnAsARunThatIsResumedWithOtherOptions) {
    const TemporaryDirectory directory;
    const auto device = make_cpu_device({.threads = 2});
    const auto made = [&](const char* policy) {
        Gpt2Training training{.model = nn::gpt2_config("gpt2-tiny"), .batch = 1, .sequence = 32};
        training.policy = find_policy(policy);
        training.loss_scale = default_loss_scale(training.policy);
        return gpt2_trainer(*device, training);
    };
    std::vector<std::int32_t> tokens(64);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 97);
    const std::span<const std::int32_t> one = std::span(tokens).first(32);
    Trainer trainer = made("fp32"), resumed = made("bf16");
    trainer.step({one, one}, 1e-2);
    trainer.step({one, one}, 1e-2);
    save_training(directory / "ck", trainer);
    resume_training(directory / "ck", resumed, {}, Resume::with_changes);
    TrainerOptions options = trainer.plan().options();
    options.policy = find_policy("bf16");
    trainer.change(options);
    EXPECT_EQ(trainer.steps_done(), 2);
    EXPECT_EQ(trainer.step({one, one}, 1e-2).loss, resumed.step({one, one}, 1e-2).loss);
    for (const State& state : trainer.state().states())
        EXPECT_TRUE(trainer.state().read(state.name) == resumed.state().read(state.name)) << state.name;
    // Another batch needs no other states.
    options.batch = 2;
    trainer.change(options);
    EXPECT_TRUE(trainer.step({tokens, tokens}, 1e-2).applied);
    EXPECT_EQ(trainer.steps_done(), 4);
}

}  // namespace
}  // namespace mantissa
