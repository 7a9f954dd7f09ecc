// Weights that a new model of text begins with.
#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/nn/decoder/family.h"
#include "tests/support/gpt2.h"

namespace mantissa {
namespace {

Tensor tokens_of(Graph& graph) { return {graph, graph.add_input("tokens", {DType::i32, {1, 8}})}; }

/// Projections onto the residual stream, two a layer, begin smaller by the root of their number, as GPT-2's
/// paper has it; all other matrices at 0.02.
void expect_initial(const Graph& graph, std::int64_t layers,
                    std::initializer_list<std::string_view> projections) {
    std::int64_t found = 0;
    for (const State& state : graph.states()) {
        if (state.type.shape.rank() != 2) continue;
        bool projects = false;
        for (const std::string_view name : projections) projects = projects || state.name.ends_with(name);
        found += projects;
        EXPECT_EQ(state.initializer.kind, Initializer::Kind::normal) << state.name;
        EXPECT_DOUBLE_EQ(state.initializer.standard_deviation,
                         projects ? 0.02 / std::sqrt(2.0 * static_cast<double>(layers)) : 0.02)
            << state.name;
    }
    EXPECT_EQ(found, 2 * layers);
}

TEST(InitialWeights, ProjectionsOntoTheResidualStreamAreSmallerByTheRootOfTheirNumber) {
    nn::Gpt2Config gpt2 = nn::gpt2_config("gpt2-tiny");
    gpt2.layers = 3;
    Graph of_gpt2;
    nn::gpt2_logits(gpt2, tokens_of(of_gpt2));
    expect_initial(of_gpt2, 3, {".attn.c_proj.weight", ".mlp.c_proj.weight"});

    nn::DecoderConfig llama = nn::decoder_config("llama-tiny");
    llama.parts.layers = 3;
    Graph of_llama;
    nn::decoder_logits(llama, tokens_of(of_llama));
    expect_initial(of_llama, 3, {".self_attn.o_proj.weight", ".mlp.down_proj.weight"});
}

}  // namespace
}  // namespace mantissa
