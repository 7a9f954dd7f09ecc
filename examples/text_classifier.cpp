// A text classifier by fine-tuning: a small model of text learns what comes next, its weights go to a file,
// and a classifier takes its trunk from there, frozen, and learns a head alone. Judged on sentences that it
// has not seen.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;
using mantissa::Tensor;

constexpr std::int64_t T = 32, C = 32;

/// Bytes [B, T] -> what the trunk makes of each and the two before it, [B, T, C].
Tensor trunk(Tensor bytes) {
    const nn::Scope scope(bytes, "trunk");
    const Tensor table =
        nn::parameter(bytes.graph(), "table", {128, 16},
                      {.kind = mantissa::Initializer::Kind::normal, .standard_deviation = 0.3});
    const Tensor x = embedding(table, bytes);
    const Tensor one = pad(slice(x, 1, 0, T - 1), 1, 1, 0), two = pad(slice(x, 1, 0, T - 2), 1, 2, 0);
    return gelu(
        nn::linear(concat(std::vector{x, one, two}, 2), "mix", {.outputs = C, .standard_deviation = 0.2}));
}

Tensor next_byte(Tensor bytes, Tensor next) {
    const Tensor scores = nn::linear(trunk(bytes), "next", {.outputs = 128});
    return cross_entropy(reshape(scores, {-1, 128}), reshape(next, {-1}));
}

Tensor classified(Tensor bytes, Tensor language) {
    const Tensor scores =
        nn::linear(mean(trunk(bytes), {1}), "head", {.outputs = 2, .standard_deviation = 0.2});
    nn::metric("accuracy", equal(argmax(scores, 1), language));
    return cross_entropy(scores, language);
}

/// Sentences of English (class 0) and Latin words, as bytes, and what comes after each byte.
struct Sentences {
    std::vector<std::int32_t> bytes, next, language;
    Sentences(int count, unsigned seed) {
        const std::vector<std::string> words[] = {
            {"the", "which", "river", "house", "through", "would", "king", "water", "those", "light"},
            {"quod", "rerum", "natura", "deorum", "atque", "inter", "omnibus", "virum", "cano", "esse"}};
        std::mt19937 random(seed);
        for (int i = 0; i < count; ++i) {
            std::string text;
            while (text.size() <= T) text += words[i % 2][random() % 10] + " ";
            for (std::size_t at = 0; at < T; ++at) bytes.push_back(text[at]), next.push_back(text[at + 1]);
            language.push_back(i % 2);
        }
    }
};

int main() {
    using mantissa::DType;
    const nn::InputSpec text{"bytes", DType::i32, {T}};
    const nn::Model writer{.name = "writer", .inputs = {text, {"next", DType::i32, {T}}}, .loss = next_byte};
    const nn::Model classifier{
        .name = "classifier", .inputs = {text, {"language", DType::i32}}, .loss = classified};
    const Sentences much(64, 1), few(16, 2), unseen(200, 3);
    mantissa::Trainer first(mantissa::cpu(), writer, {.batch = 64});
    for (int step = 0; step < 200; ++step) first.step({much.bytes, much.next}, 0.01);
    first.save_weights("writer.safetensors");

    mantissa::Trainer second(mantissa::cpu(), classifier, {.batch = 16, .frozen = {"trunk.*"}});
    const auto left = second.load_weights("writer.safetensors", mantissa::Match::by_name);
    std::printf("not taken: %s\n", left.text().c_str());
    for (int step = 0; step < 200; ++step) second.step({few.bytes, few.language}, 0.02);
    const double right = second.evaluate({unseen.bytes, unseen.language}).metrics["accuracy"];
    std::printf("%.1f %% of the sentences that were held out are right\n", 100 * right);
    return right >= 0.95 ? 0 : 1;
}
