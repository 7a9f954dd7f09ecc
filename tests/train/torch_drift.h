// How far a training is from what PyTorch, or transformers, computed of it in FP64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/differentiate.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"
#include "tests/support/torch_fixture.h"

namespace mantissa::testing {

/// The promise of the project: within this of PyTorch's FP64. Their FP32 comes within 1.5e-6 (SGD) or 1.7e-6
/// (Muon).
inline constexpr double tolerance = 1e-5;

/// The worst of the losses on the way, and of the parameters after the last step.
struct Drift {
    double losses = 0, parameters = 0;
};

/// Numbers of one step, `size` of them, among those of all steps.
template <class T>
std::span<const T> part(const std::vector<T>& values, std::int64_t step, std::int64_t size) {
    return std::span(values).subspan(static_cast<std::size_t>(step * size), static_cast<std::size_t>(size));
}

/// Forward and backward pass over two sequences, with the logits, the loss and all gradients as results.
inline Graph gradients_graph(std::int64_t sequence, const std::function<Tensor(Tensor)>& logits_of) {
    Graph graph;
    const Type ids{DType::i32, {2, sequence}};
    const Tensor tokens(graph, graph.add_input("tokens", ids)),
        targets(graph, graph.add_input("targets", ids));
    const Tensor logits = logits_of(tokens);
    const Tensor loss = cross_entropy(logits, targets);
    graph.add_result("logits", logits.value());
    graph.add_result("loss", loss.value());
    for (const ParameterGradient& parameter : differentiate(graph, loss))
        graph.add_result("grad." + graph.states()[static_cast<std::size_t>(parameter.state)].name,
                         parameter.gradient.value());
    return graph;
}

/// Steps on the fixture's tokens, one for each of its losses. Parameters of less than `floor` are held to it.
inline Drift drift_of_steps(Trainer& trainer, const TorchFixture& fixture, double learning_rate,
                            double floor) {
    const auto tokens = fixture.values<std::int32_t>("tokens"),
               targets = fixture.values<std::int32_t>("targets");
    Drift drift;
    for (const double expected : fixture.values<double>("losses")) {
        const StepResult result = trainer.step({tokens, targets}, learning_rate);
        EXPECT_TRUE(result.applied);
        drift.losses =
            std::max(drift.losses, std::abs(static_cast<double>(result.loss) - expected) / expected);
    }
    for (const State& state : trainer.state().states()) {
        if (state.kind != State::Kind::parameter) continue;
        const std::vector<float> got = trainer.state().read_f32(state.name);
        drift.parameters =
            std::max(drift.parameters,
                     relative_error({got.begin(), got.end()}, fixture.f32("after." + state.name), floor));
    }
    return drift;
}

}  // namespace mantissa::testing
