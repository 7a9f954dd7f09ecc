// Training with derived states: the bits of training without, whatever is accumulated, skipped, written from
// outside, saved or resumed.
#include <gtest/gtest.h>

#include <limits>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/step_execution.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/random_draws.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/laid_out_training.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::is_not_derived;
using testing::states_of;
using testing::step;

struct DerivedCase {
    const char* policy;
    std::int64_t accumulate;
    Optimizer optimizer = adamw();

    Gpt2Training training(bool lay_out) const {
        return testing::laid_out_training(policy, accumulate, optimizer, lay_out);
    }
};
const DerivedCase derived_cases[] = {{"bf16", 1},
                                     {"bf16", 3},
                                     {"fp16", 1},
                                     {"fp16", 2},
                                     {"mxfp8", 1},
                                     {"mxfp4", 3},
                                     {"fp8", 1},
                                     {"fp8-delayed", 1},
                                     {"fp8-delayed", 3},
                                     {"fp8-block", 1},
                                     {"nvfp4", 2},
                                     {"bf16", 1, sgd()},
                                     {"bf16", 3, sgd({.momentum = 0.9, .weight_decay = 0.1})},
                                     {"fp16", 2, sgd({.momentum = 0.9, .nesterov = true})},
                                     {"bf16", 1, muon()},
                                     {"fp16", 2, muon({.in_bf16 = false})}};

TEST(DerivedState, TrainsToTheSameBits) {
    const auto device = make_cpu_device({.threads = 2});
    for (const DerivedCase& c : derived_cases) {
        Trainer plain = gpt2_trainer(*device, c.training(false)),
                laid = gpt2_trainer(*device, c.training(true));
        for (int i = 0; i < 4; ++i)
            EXPECT_EQ(step(laid, i).loss, step(plain, i).loss) << c.policy << " " << i;
        EXPECT_TRUE(states_of(laid, is_not_derived) == states_of(plain, is_not_derived)) << c.policy;
        EXPECT_GT(laid.plan().memory().state, plain.plan().memory().state);
    }
}

TEST(DerivedState, FollowsWhatIsWrittenFromOutsideAndABadStep) {
    const auto device = make_cpu_device({.threads = 2});
    for (const DerivedCase& c : derived_cases) {
        Trainer plain = gpt2_trainer(*device, c.training(false)),
                laid = gpt2_trainer(*device, c.training(true));
        for (Trainer* trainer : {&plain, &laid}) {
            step(*trainer);
            std::vector<float> weight = trainer->state().read_f32("h.1.mlp.c_fc.weight");
            const std::vector<float> good = weight;
            weight[5] = std::numeric_limits<float>::infinity();
            trainer->state().write("h.1.mlp.c_fc.weight", std::as_bytes(std::span<const float>(weight)));
            EXPECT_FALSE(step(*trainer, 1).applied) << c.policy;
            weight[5] = 0.5f;
            trainer->state().write("h.1.mlp.c_fc.weight", std::as_bytes(std::span<const float>(weight)));
        }
        for (int i = 2; i < 4; ++i)
            EXPECT_EQ(step(laid, i).loss, step(plain, i).loss) << c.policy << " " << i;
        EXPECT_TRUE(states_of(laid, is_not_derived) == states_of(plain, is_not_derived)) << c.policy;
    }
}

TEST(DerivedState, IsNeitherSavedNorNeededToResume) {
    const auto device = make_cpu_device({.threads = 2});
    const TemporaryDirectory directory;
    for (const DerivedCase& c :
         testing::some_of(std::vector(std::begin(derived_cases), std::end(derived_cases)), 2)) {
        Trainer whole = gpt2_trainer(*device, c.training(true)),
                resumed = gpt2_trainer(*device, c.training(true));
        step(whole);
        const std::string place =
            (directory / c.optimizer.name).string() + c.policy + std::to_string(c.accumulate);
        save_training(place, whole);
        // Resuming takes files of a run without derived states, too: they are nothing that a checkpoint
        // knows.
        Trainer plain = gpt2_trainer(*device, c.training(false));
        EXPECT_EQ(resume_training(place, resumed).warning, "");
        EXPECT_EQ(resume_training(place, plain).warning, "");
        for (int i = 1; i < 3; ++i) {
            const float loss = step(whole, i).loss;
            EXPECT_EQ(step(resumed, i).loss, loss) << c.policy;
            EXPECT_EQ(step(plain, i).loss, loss) << c.policy;
        }
        EXPECT_TRUE(states_of(resumed, is_not_derived) == states_of(whole, is_not_derived)) << c.policy;
        EXPECT_TRUE(states_of(plain, is_not_derived) == states_of(whole, is_not_derived)) << c.policy;
    }
}

TEST(DerivedState, TrainersThatShareOneStateDoNotReadEachOthersCopies) {
    const auto device = make_cpu_device({.threads = 2});
    TrainingPlan plain_plan = gpt2_plan(*device, derived_cases[0].training(false)),
                 laid_plan = gpt2_plan(*device, derived_cases[0].training(true));
    Trainer alone = gpt2_trainer(*device, derived_cases[0].training(false));
    const TrainingPlan* const both[] = {&plain_plan, &laid_plan};
    const auto memory = allocate_training_memory(both);
    Trainer plain(std::move(plain_plan), memory), laid(std::move(laid_plan), memory);
    memory->state->initialize(alone.plan().options().seed);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(step(i % 2 == 0 ? laid : plain, i).loss, step(alone, i).loss) << i;
}

TEST(DerivedState, IsReadByValidation) {
    const auto device = make_cpu_device({.threads = 2});
    Trainer plain = gpt2_trainer(*device, derived_cases[0].training(false)),
            laid = gpt2_trainer(*device, derived_cases[0].training(true));
    std::vector<std::int32_t> tokens(32, 3), targets(32, 5);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(laid.evaluate({tokens, targets}).loss, plain.evaluate({tokens, targets}).loss);
        step(laid, i);
        step(plain, i);
    }
}

}  // namespace
}  // namespace mantissa
