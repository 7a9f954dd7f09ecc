// A trained model quantised: what its perplexity loses, and that texts come out whatever the policy.
#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/perplexity.h"
#include "mantissa/train/trainer.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/passes.h"

namespace mantissa {
namespace {

/// English-like: sentences of a small grammar, the words drawn from a fixed sequence.
std::vector<std::int32_t> sentences(std::size_t size) {
    const char* const subjects[] = {"the engine", "a reader", "the old clock", "our neighbour", "the river"};
    const char* const verbs[] = {"measures", "forgets", "follows", "writes about", "carries"};
    const char* const objects[] = {"every step", "the number", "a long letter", "its own sum", "the weather"};
    std::vector<std::int32_t> tokens;
    for (std::uint32_t i = 0, x = 12345; tokens.size() < size; ++i) {
        x = x * 1664525 + 1013904223;
        const std::string sentence = std::string(subjects[(x >> 8) % 5]) + " " + verbs[(x >> 14) % 5] + " " +
                                     objects[(x >> 20) % 5] + (x >> 26 & 1 ? ". " : ", and ");
        for (const char c : sentence) tokens.push_back(static_cast<unsigned char>(c));
    }
    tokens.resize(size);
    return tokens;
}

/// A small model after a few seconds of training in BF16.
struct TrainedGpt2 {
    std::unique_ptr<Device> device = make_cpu_device({.threads = 2});
    nn::Gpt2Config config{
        .name = "small", .layers = 2, .heads = 4, .channels = 64, .vocabulary = 128, .context = 64};
    std::unique_ptr<Trainer> trainer;
    std::vector<std::int32_t> text = sentences(60000);
    float loss = 0;

    TrainedGpt2() {
        Gpt2Training options{.model = config, .batch = 8, .sequence = 64, .optimizer = clipped(adamw(), 1.0)};
        options.policy = find_policy("bf16");
        options.passes = testing::plain_and({{"lay_out", true}});
        trainer = std::make_unique<Trainer>(gpt2_plan(*device, options));
        const TokenStream stream(text);
        const TextWindows batches(stream, {0, 50000}, 64, {.batch = 8});
        std::vector<std::int32_t> tokens(8 * 64), targets(8 * 64);
        for (std::uint64_t i = 0; i < 300; ++i) {
            batches.fill(i, 0, tokens, targets);
            loss = trainer->step({tokens, targets}, 4e-3).loss;
        }
    }

    Perplexity under(const char* policy) {
        return perplexity(*device, nn::gpt2_language_model(config), find_policy(policy), trainer->state(),
                          {.stream = TokenStream({text.begin() + 50000, text.begin() + 54096})});
    }
};

TEST(QuantizedModel, Int8LosesAHundredthOfPerplexityAtMostAndInt4Three) {
    TrainedGpt2 model;
    ASSERT_LT(model.loss, 1.5f) << "it learned too little to lose anything";
    const Perplexity fp32 = model.under("fp32"), bf16 = model.under("bf16"), int8 = model.under("int8"),
                     int4 = model.under("int4");
    EXPECT_EQ(int8.tokens, 4095);
    EXPECT_NEAR(bf16.value() / fp32.value(), 1, 0.005);
    EXPECT_NEAR(int8.value() / bf16.value(), 1, 0.01);
    // It was quantised: other numbers, not the same by another name. Four bits lose more than eight.
    EXPECT_NE(int8.loss, bf16.loss);
    EXPECT_GT(std::abs(int4.loss - bf16.loss), std::abs(int8.loss - bf16.loss));
    EXPECT_LT(int4.value() / bf16.value(), 1.03);
    std::printf("perplexity: fp32 %.4f, bf16 %.4f, int8 %.4f, int4 %.4f\n", fp32.value(), bf16.value(),
                int8.value(), int4.value());
    for (const char* policy : {"bf16", "int8", "int4"}) {
        TokenGenerator generator(*model.device, nn::gpt2_language_model(model.config), 5,
                                 find_policy(policy));
        generator.allocate(model.trainer->state());
        const Generated generated =
            generate(generator, std::span(model.text).subspan(50000, 5),
                     {.sampling = {.temperature = 0}, .length = 50}, [](std::int32_t) { return true; });
        EXPECT_EQ(generated.tokens.size(), 50u);
        std::printf("%s: %.0f tokens/s\n", policy, generated.tokens_per_second());
    }
}

/// The scores after a prompt and some tokens, against those of the whole text at once under the same policy.
TEST(QuantizedModel, KeptKeysGiveThePerplexityOfTheWhole) {
    const auto device = make_cpu_device({.threads = 2});
    const nn::Gpt2Config config{
        .name = "small", .layers = 2, .heads = 3, .channels = 24, .vocabulary = 71, .context = 19};
    const std::vector<std::int32_t> tokens{3, 14, 15, 9,  26, 53, 58, 9,  7, 9,
                                           3, 23, 8,  46, 26, 43, 38, 32, 7};
    StateBlock parameters(*device, TokenGenerator(*device, nn::gpt2_language_model(config), 1).parameters());
    parameters.initialize(3);
    for (const char* policy : {"fp32", "bf16", "fp16", "int8", "int4"}) {
        const double whole = perplexity(*device, nn::gpt2_language_model(config), find_policy(policy),
                                        parameters, {.stream = TokenStream(tokens)})
                                 .loss;
        TokenGenerator generator(*device, nn::gpt2_language_model(config), 4, find_policy(policy));
        generator.allocate(parameters);
        TokenGenerator first(*device, nn::gpt2_language_model(config), 1, find_policy(policy));
        first.allocate(parameters);
        double loss = 0;
        // Tokens 1 to 3 by one generator, the others after a prompt of 4 by the other.
        std::vector<float> scores = first.prompt(std::span(tokens).first(1));
        for (std::size_t i = 1; i < tokens.size(); ++i) {
            loss -= log_probability(scores, tokens[i]);
            if (i < 3) scores = first.next(tokens[i]);
            if (i == 3) scores = generator.prompt(std::span(tokens).first(4));
            if (i > 3 && i + 1 < tokens.size()) scores = generator.next(tokens[i]);
        }
        // Scores near 0.1 in 8 bits; FP32 logits of the head against rounded ones.
        EXPECT_NEAR(loss / 18, whole, policy == std::string("fp32") ? 1e-5 : 5e-3) << policy;
    }
}

TEST(QuantizedModel, ATextOfOneTokenIsRefused) {
    const auto device = make_cpu_device({.threads = 1});
    const nn::Gpt2Config config = nn::gpt2_config("gpt2-tiny");
    StateBlock parameters(*device, TokenGenerator(*device, nn::gpt2_language_model(config), 1).parameters());
    EXPECT_THROW(perplexity(*device, nn::gpt2_language_model(config), find_policy("int8"), parameters,
                            {.stream = TokenStream(std::vector<std::int32_t>{3})}),
                 UserError);
}

}  // namespace
}  // namespace mantissa
