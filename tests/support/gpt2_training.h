// A GPT-2 in training as one set of options, for tests.
#pragma once

#include "mantissa/nn/models/gpt2.h"
#include "mantissa/train/trainer.h"

namespace mantissa {

struct Gpt2Training {
    nn::Gpt2Config model;
    std::int64_t batch = 4;       // B
    std::int64_t sequence = 256;  // T
    std::int64_t accumulate = 1;  // N
    std::uint64_t seed = 1337;
    Optimizer optimizer = adamw();
    LossScaleOptions loss_scale = {};
    PipelineOptions pipeline = {};

    TrainerOptions trainer() const {
        return {.optimizer = optimizer,
                .batch = batch,
                .accumulate = accumulate,
                .seed = seed,
                .loss_scale = loss_scale,
                .pipeline = pipeline};
    }
};

inline TrainingPlan gpt2_plan(Device& device, const Gpt2Training& training) {
    return {device, nn::gpt2_model(training.model, training.sequence), training.trainer()};
}

inline Trainer gpt2_trainer(Device& device, const Gpt2Training& training) {
    return Trainer(gpt2_plan(device, training));
}

}  // namespace mantissa
