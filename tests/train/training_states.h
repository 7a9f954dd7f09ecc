// States of trainers as bytes, by which trainings are compared to the bit, and what a step multiplies.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"

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

/// FLOPs of all products that a step makes.
inline double planned_flops(const TrainingPlan& plan) {
    double flops = 0;
    const Graph& graph = plan.step().graph();
    for (const PlannedNode& planned : plan.step().nodes()) {
        const Node& node = graph.node(planned.node);
        if (node.op->name == "matmul")
            flops +=
                static_cast<double>(node.op->flops(graph.input_types(node), node.outputs, node.attributes));
    }
    return flops;
}

/// Losses on the way of a training, and the states after it.
struct TrainedBits {
    std::vector<float> losses;
    StateBytes states;
    friend bool operator==(const TrainedBits&, const TrainedBits&) = default;
};

}  // namespace mantissa::testing
