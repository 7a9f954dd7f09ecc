// States of trainers as bytes, by which trainings are compared to the bit.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"

namespace mantissa::testing {

using StateBytes = std::map<std::string, std::vector<std::byte>>;

/// The states for which `chosen` holds, by name; but no sums of gradients, which mean nothing between steps.
inline StateBytes states_of(
    const Trainer& trainer, bool (*chosen)(const State&) = [](const State&) { return true; }) {
    StateBytes bytes;
    for (const State& state : trainer.state().states())
        if (state.kind != State::Kind::gradient && chosen(state))
            bytes[state.name] = trainer.state().read(state.name);
    return bytes;
}

inline bool is_not_derived(const State& state) { return state.kind != State::Kind::derived; }

/// A bad step lowers the loss scale.
inline bool is_no_loss_scale(const State& state) { return !state.name.starts_with("loss_scale."); }

/// Losses on the way of a training, and the states after it.
struct TrainedBits {
    std::vector<float> losses;
    StateBytes states;
    friend bool operator==(const TrainedBits&, const TrainedBits&) = default;
};

}  // namespace mantissa::testing
