// A GPT in 60 lines, trained on a text in BF16: attention is written out, and recognized.
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;
using mantissa::Tensor;

namespace {

constexpr std::int64_t T = 64, C = 64, H = 4, V = 128, layers = 2;

/// x [B, T, C] -> [B, T, C]: softmax(q k^T / sqrt(D), the future hidden) v for each of H heads.
Tensor attention_of(Tensor x) {
    const nn::Scope scope(x, "attn");
    const auto parts = split(nn::linear(x, "qkv", {.outputs = 3 * C}), 2, 3);
    const auto heads = [](Tensor part) { return transpose(reshape(part, {-1, T, H, C / H}), {0, 2, 1, 3}); };
    const Tensor scores = matmul(heads(parts[0]), heads(parts[1]), {.transpose_b = true}) * 0.25;
    const Tensor sees = less_equal(iota(x.graph(), {T, T}, 1), iota(x.graph(), {T, T}, 0));
    const Tensor hidden = constant(x.graph(), -std::numeric_limits<double>::infinity());
    const Tensor mixed = matmul(softmax(select(sees, scores, hidden)), heads(parts[2]));
    return nn::linear(reshape(transpose(mixed, {0, 2, 1, 3}), {-1, T, C}), "out", {.outputs = C});
}

Tensor loss_of(mantissa::Graph& graph, std::span<const Tensor> inputs, const nn::Mode& mode) {
    const auto table = [&](const char* name, std::int64_t rows) {
        return nn::parameter(graph, name, {rows, C},
                             {.kind = mantissa::Initializer::Kind::normal, .standard_deviation = 0.02});
    };
    const Tensor words = table("words", V);
    Tensor x = embedding(words, inputs[0]) + table("places", T);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const nn::Scope scope(graph, "layer" + std::to_string(layer));
        x = x + nn::dropout(attention_of(nn::layer_norm(x, "norm1")), 0.05, mode);
        x = x + nn::linear(gelu(nn::linear(nn::layer_norm(x, "norm2"), "up", {.outputs = 4 * C})), "down",
                           {.outputs = C});
    }
    x = reshape(nn::layer_norm(x, "norm"), {-1, C});
    return cross_entropy(matmul(x, words, {.transpose_b = true}), reshape(inputs[1], {-1}));
}

}  // namespace

int main() {
    const nn::Model model{
        .name = "small GPT",
        .unit = "tokens",
        .units_per_example = T,
        .inputs = {{"tokens", mantissa::DType::i32, {T}}, {"targets", mantissa::DType::i32, {T}}},
        .loss = loss_of};
    std::vector<std::int32_t> text;
    while (text.size() < 20000)
        for (const char c : std::string("the quick brown fox jumps over the lazy dog; ")) text.push_back(c);
    const mantissa::TokenStream stream(text);
    const mantissa::TextWindows windows(stream, stream.all(), T,
                                        {.batch = 8, .order = mantissa::BatchOrder::random});
    mantissa::Trainer trainer(mantissa::cpu(), model, {.batch = 8, .policy = "bf16"});
    float loss = 0;
    for (int step = 0; step < 60; ++step) {
        loss = trainer.step(windows, 3e-3).loss;
        if (step % 20 == 0) std::printf("step %2d  loss %.4f\n", step, static_cast<double>(loss));
    }
    std::printf("step 60  loss %.4f\n", static_cast<double>(loss));
    return loss < 1 ? 0 : 1;
}
