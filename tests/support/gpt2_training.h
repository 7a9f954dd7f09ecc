// A GPT-2 in training as one set of options, for tests.
#pragma once

#include "mantissa/train/loss_scale.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2.h"

namespace mantissa {

struct Gpt2Training {
    nn::Gpt2Config model;
    std::int64_t batch = 4;       // B
    std::int64_t sequence = 256;  // T
    std::int64_t accumulate = 1;  // N
    std::uint64_t seed = 1337;
    Optimizer optimizer = adamw();
    LossScaleOptions loss_scale = {};
    Policy policy = {};
    std::vector<std::string> passes = {"simplify"};
    std::set<std::string> recompute = {};

    TrainerOptions trainer() const {
        return {.optimizer = optimizer,
                .batch = batch,
                .accumulate = accumulate,
                .seed = seed,
                .policy = policy,
                .passes = passes,
                .recompute = recompute,
                .loss_scale = loss_scale};
    }
};

inline TrainingPlan gpt2_plan(Device& device, const Gpt2Training& training) {
    return {device, nn::gpt2_model(training.model, training.sequence), training.trainer()};
}

/// 2 layers, 2 heads, 64 channels on 2 sequences of 16 tokens, with the policy's loss scale.
inline Gpt2Training small_gpt2_training(const std::string& policy) {
    Gpt2Training training;
    training.model = nn::gpt2_config("gpt2-tiny");
    training.model.layers = 2;
    training.model.heads = 2;
    training.model.channels = 64;
    training.model.vocabulary = 512;
    training.batch = 2;
    training.sequence = training.model.context = 16;
    training.policy = find_policy(policy);
    training.loss_scale = default_loss_scale(training.policy);
    return training;
}

inline Trainer gpt2_trainer(Device& device, const Gpt2Training& training) {
    return Trainer(gpt2_plan(device, training));
}

}  // namespace mantissa
