// A text classifier by fine-tuning: a small text model learns to predict the next byte, and its weights go to
// a file. A classifier takes its trunk from there, frozen, and learns only a head. Judged on unseen
// sentences.
#include <cstdio>
#include <random>
#include <string>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;
using mantissa::Tensor;

constexpr std::int64_t T = 32, C = 32;

/// Bytes [B, T] -> the trunk's features of each byte and the two before it, [B, T, C].
Tensor trunk(Tensor bytes) {
    const nn::Scope scope(bytes, "trunk");
    const auto table = nn::parameter(bytes.graph(), "table", {128, 16}, nn::glorot_uniform(16, 16));
    const Tensor x = embedding(table, bytes);
    const std::vector three{x, roll(x, 1, 1), roll(x, 1, 2)};
    return gelu(nn::linear(concat(three, 2), "mix", {.outputs = C, .standard_deviation = 0.2}));
}

/// Loss of predicting each place's next byte, from the first place that sees three bytes on.
Tensor next_byte(Tensor bytes) {
    const Tensor scores = nn::linear(trunk(bytes), "next", {.outputs = 128});
    return cross_entropy(slice(scores, 1, 2, T - 1), slice(bytes, 1, 3, T));
}

Tensor classified(Tensor bytes, Tensor language) {
    const Tensor scores = nn::linear(mean(trunk(bytes), {1}), "head", {.outputs = 2});
    nn::metric("accuracy", equal(argmax(scores, 1), language));
    return cross_entropy(scores, language);
}

/// Sentences of English (class 0) and Latin words, as bytes.
struct Sentences {
    std::vector<std::int32_t> bytes, language;
    Sentences(int count, unsigned seed) {
        const char* const words[][6] = {{"the", "which", "river", "house", "through", "would"},
                                        {"quod", "rerum", "natura", "deorum", "atque", "esse"}};
        std::mt19937 random(seed);
        for (int i = 0; i < count; ++i) {
            std::string text;
            while (text.size() < T) text += words[i % 2][random() % 6] + std::string(" ");
            bytes.insert(bytes.end(), text.begin(), text.begin() + T);
            language.push_back(i % 2);
        }
    }
};

int main() {
    const nn::Model writer{.name = "writer", .inputs = {nn::ids("bytes", {T})}, .loss = next_byte};
    const std::vector inputs{nn::ids("bytes", {T}), nn::ids("language")};
    const nn::Model classifier{.name = "classifier", .inputs = inputs, .loss = classified};
    const Sentences much(64, 1), few(16, 2), unseen(200, 3);
    mantissa::Trainer first(mantissa::cpu(), writer, {.batch = 64});
    for (int step = 0; step < 200; ++step) first.step({much.bytes}, 0.01);
    first.save_weights("writer.safetensors");

    mantissa::Trainer second(mantissa::cpu(), classifier, {.batch = 16, .frozen = {"trunk.*"}});
    const auto left = second.load_weights("writer.safetensors", mantissa::Match::by_name);
    std::printf("not taken: %s\n", left.text().c_str());
    for (int step = 0; step < 200; ++step) second.step({few.bytes, few.language}, 0.02);
    const float right = second.evaluate({unseen.bytes, unseen.language}).metrics["accuracy"];
    std::printf("%.1f %% of the sentences held out are right\n", 100 * right);
    return right >= 0.95 ? 0 : 1;
}
