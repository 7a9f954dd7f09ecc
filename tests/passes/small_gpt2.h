// A small GPT-2 and its loss, as passes are given it.
#pragma once

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pipeline.h"
#include "tests/support/gpt2.h"

namespace mantissa::testing {

inline nn::Gpt2Config small_gpt2(std::int64_t layers, std::int64_t channels, std::int64_t vocabulary) {
    return {.name = "small",
            .layers = layers,
            .heads = 2,
            .channels = channels,
            .vocabulary = vocabulary,
            .context = 8};
}

struct Text {
    Tensor tokens, targets;
};

/// The inputs "tokens" and "targets" of this shape.
inline Text input_text(Graph& graph, const Shape& shape) {
    const Type ids{DType::i32, shape};
    return {{graph, graph.add_input("tokens", ids)}, {graph, graph.add_input("targets", ids)}};
}

/// The loss on inputs of this shape.
inline TraceModel traced_gpt2(const nn::Gpt2Config& config, const Shape& shape) {
    return [=](Graph& graph) {
        const auto [tokens, targets] = input_text(graph, shape);
        return nn::gpt2_loss(config, tokens, targets);
    };
}

}  // namespace mantissa::testing
