// LLaMA's sizes: those that are published, others made of them, and what makes no model.
#include "mantissa/graph/graph.h"
#include "mantissa/nn/decoder/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "mantissa/passes/attention/match_attention.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

using testing::error_of;

using nn::DecoderConfig;

TEST(Decoder, PresetsHaveThePublishedSizes) {
    // As llama2.c and TinyLlama give them, and of the others what transformers' classes count.
    const std::pair<const char*, std::int64_t> sizes[] = {
        {"stories15m", 15'191'712},       {"stories42m", 41'689'600},
        {"stories110m", 109'529'856},     {"tinyllama", 1'100'048'384},
        {"smollm2-135m", 134'515'008},    {"smollm2-360m", 361'821'120},
        {"llama3.2-1b", 1'235'814'400},   {"qwen2.5-0.5b", 494'032'768},
        {"qwen2.5-1.5b", 1'543'714'304},  {"qwen3-0.6b", 596'049'920},
        {"qwen3-1.7b", 1'720'574'976},    {"pythia-70m", 70'426'624},
        {"pythia-160m", 162'322'944},     {"pythia-410m", 405'334'016},
        {"opt-125m", 125'239'296},        {"gemma-2b", 2'506'172'416},
        {"gemma2-2b", 2'614'341'888},     {"gemma3-270m", 268'098'176},
        {"gemma3-1b", 999'885'952},       {"phi-1.5", 1'418'270'720},
        {"phi3-mini", 3'821'079'552},     {"smollm3-3b", 3'075'098'624},
        {"granite3.3-2b", 2'533'539'840}, {"olmo2-1b", 1'484'916'736},
        {"starcoder2-3b", 3'030'371'328}, {"gpt2", 124'439'808},
        {"gpt2-medium", 354'823'168},     {"gpt2-large", 774'030'080},
        {"gpt2-xl", 1'557'611'200}};
    for (const auto& [name, parameters] : sizes)
        EXPECT_EQ(nn::decoder_config(name).parameters(), parameters) << name;
    for (const std::string& name : nn::decoder_names())
        EXPECT_TRUE(name.ends_with("-tiny") ||
                    std::ranges::any_of(
                        sizes, [&](const auto& size) { return nn::decoder_config(size.first).name == name; }))
            << name << " has no line here";
    EXPECT_EQ(nn::decoder_config("llama-110m").name, nn::decoder_config("stories110m").name);
    EXPECT_EQ(error_of([] { nn::decoder_config("llama-7b"); })
                  .find("there is no model 'llama-7b'; there are "
                        "gpt2-tiny, gpt2-124m, "),
              0u);
}

TEST(Decoder, ParametersAreThoseOfTheTrace) {
    for (const bool tied : {false, true}) {
        DecoderConfig config = nn::decoder_config("llama-tiny");
        config.parts.tied = tied;
        config.parts.head_size = 24;
        EXPECT_EQ(nn::facts_of(nn::decoder_model(config, 16)).parameters, config.parameters());
    }
}

TEST(Decoder, OtherSizesKeepHeadsToAGroupAndTheShapeOfTheMlp) {
    const DecoderConfig tiny = nn::decoder_config("llama-tiny");
    const DecoderConfig other = nn::with_sizes(tiny, {.layers = 2, .heads = 6, .channels = 96});
    EXPECT_EQ(other.name, "llama-2x96");
    EXPECT_EQ(other.parts.key_heads, 3);
    EXPECT_EQ(other.parts.head_size, 16);
    EXPECT_EQ(other.parts.hidden, 288);  // 352 * 96 / 128 = 264, up to a multiple of 32
    EXPECT_EQ(nn::with_sizes(tiny, {.heads = 1}).parts.key_heads, 1);
    EXPECT_EQ(nn::with_sizes(tiny, {}), tiny);
    EXPECT_EQ(error_of([&] { nn::with_sizes(tiny, {.heads = 5}); }),
              "128 channels cannot be shared by 5 heads");
    EXPECT_EQ(error_of([&] { nn::with_sizes(tiny, {.heads = 128}); }),
              "heads are turned in pairs of elements, and 1 is odd");
    EXPECT_EQ(error_of([&] { nn::with_sizes(tiny, {.dropout = 0.1}); }),
              "llama-tiny: has no dropout, got 0.1");
    EXPECT_EQ(error_of([&] { nn::with_sizes(tiny, {.bias = true}); }), "llama-tiny: has no biases");
    EXPECT_EQ(error_of([&] { nn::with_sizes(tiny, {.channels = 0}); }),
              "a model's channels must be between 1 and 1048576, got 0");
    EXPECT_EQ(error_of([&] { nn::with_sizes(tiny, {.context = 1 << 21}); }),
              "a model's context must be between 1 and 1048576, got 2097152");
    EXPECT_EQ(error_of([&] { nn::decoder_model(tiny, 257); }),
              "llama-tiny has a context of 256 tokens, a sequence of 257 does not fit");
}

TEST(Decoder, StretchedFrequenciesAreThoseOfTheFormula) {
    const nn::Rotary rotary{.kind = nn::Rotary::Kind::llama3, .theta = 500000, .factor = 8};
    const std::vector<double> frequencies = nn::rotary_frequencies(rotary, 64);
    ASSERT_EQ(frequencies.size(), 32u);
    bool stretched = false, between = false, kept = false;
    for (std::size_t i = 0; i < 32; ++i) {
        const double plain = std::pow(500000.0, -2.0 * static_cast<double>(i) / 64);
        const double turns = 8192 * plain / (2 * std::numbers::pi);
        double expected = plain;
        if (turns < 1) {
            expected = plain / 8;
            stretched = true;
        } else if (turns < 4) {
            const double share = (turns - 1) / 3;
            expected = (1 - share) * plain / 8 + share * plain;
            between = true;
        } else {
            kept = true;
        }
        EXPECT_NEAR(frequencies[i], expected, 1e-5 * expected) << i;
    }
    EXPECT_TRUE(stretched && between && kept);
    // In FP32 to the bit where nothing is stretched.
    EXPECT_EQ(frequencies[0], 1.0);
}

TEST(Decoder, AWindowIsAttentionsOwnAndAsLargeAsTheTextItIsNone) {
    const DecoderConfig mistral = nn::decoder_config("mistral-tiny");
    EXPECT_EQ(mistral.parts.window, 64);
    EXPECT_EQ(nn::with_sizes(mistral, {.layers = 2}).name, "mistral-2x128");
    const auto traced = [](const DecoderConfig& config) {
        Graph graph;
        const Tensor tokens(graph, graph.add_input("tokens", {DType::i32, {1, 16}}));
        graph.add_result("logits", nn::decoder_logits(config, tokens).value());
        return graph;
    };
    DecoderConfig narrow = mistral, wide = mistral, none = mistral;
    narrow.parts.window = 15, wide.parts.window = 16, none.parts.window = 0;
    EXPECT_EQ(print(traced(wide)), print(traced(none)));
    EXPECT_NE(print(traced(narrow)), print(traced(none)));
    const AttentionMatch match = match_attention(traced(narrow));
    EXPECT_EQ(match.matched, 4);
    EXPECT_TRUE(match.refused.empty());
    // Tokens of a window of all see half of it on average; of half a sequence's, three quarters of that.
    const double all = none.flops_per_token(16);
    narrow.parts.window = 8;
    EXPECT_EQ(wide.flops_per_token(16), all);
    EXPECT_EQ(all - narrow.flops_per_token(16), 6.0 * 4 * 4 * 32 * 16 / 4);
    narrow.parts.window = -1;
    EXPECT_EQ(error_of([&] { nn::validate(narrow); }), "a window of -1 tokens is none");
}

TEST(Decoder, ItsAttentionIsOneOperationThatCopiesNoKeys) {
    Graph graph;
    const Tensor tokens(graph, graph.add_input("tokens", {DType::i32, {2, 16}}));
    graph.add_result("logits", nn::decoder_logits(nn::decoder_config("llama-tiny"), tokens).value());
    const AttentionMatch match = match_attention(graph);
    EXPECT_EQ(match.matched, 4);
    EXPECT_TRUE(match.refused.empty());
    for (std::size_t id = 0; id < match.graph.size(); ++id) {
        const Node& node = match.graph.node(static_cast<NodeId>(id));
        EXPECT_NE(node.op->name, "broadcast");
        if (node.op->name == "attention") {
            EXPECT_EQ(match.graph.type(node.inputs[1]).shape, (Shape{2, 2, 16, 32}));
        }
    }
}

}  // namespace
}  // namespace mantissa
