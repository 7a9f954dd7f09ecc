// Generating: keys and values that are kept change no score, and a text follows from model, prompt and seed.
#include "mantissa/train/generate.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/reference.h"
#include "mantissa/train/text_model.h"
#include "tests/support/gpt2.h"
#include "tests/support/largest_difference.h"
#include "tests/train/tenfold_parameters.h"

namespace mantissa {
namespace {

using testing::largest_difference;

const nn::Gpt2Config odd_gpt2{
    .name = "small", .layers = 2, .heads = 3, .channels = 24, .vocabulary = 71, .context = 19};

std::vector<std::int32_t> some_tokens(std::int64_t count) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < count; ++i)
        tokens.push_back(static_cast<std::int32_t>((i * i * 3 + 11 * i + 5) % odd_gpt2.vocabulary));
    return tokens;
}

struct ModelOnCpu {
    std::unique_ptr<Device> device;
    std::unique_ptr<StateBlock> parameters;

    explicit ModelOnCpu(int threads = 2)
        : device(make_cpu_device({.threads = threads})),
          parameters(testing::tenfold_parameters(*device, nn::gpt2_language_model(odd_gpt2))) {}
};

/// The scores [T, V] of the whole sequence at once, without anything kept.
struct Full {
    std::vector<float> scores;
    std::vector<double> exact;  ///< in FP64

    Full(ModelOnCpu& model, const std::vector<std::int32_t>& tokens) {
        Graph graph;
        const Tensor input(
            graph, graph.add_input("tokens", {DType::i32, {1, static_cast<std::int64_t>(tokens.size())}}));
        graph.add_result("logits", nn::gpt2_logits(odd_gpt2, input).value());
        const Plan plan(graph, *model.device);
        const auto arena =
            model.device->allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
        Execution execution(plan, *model.parameters, *arena);
        execution.set_input("tokens", std::span<const std::int32_t>(tokens));
        execution.run();
        const std::vector<std::byte> bytes = execution.read_result("logits");
        scores.resize(bytes.size() / sizeof(float));
        std::memcpy(scores.data(), bytes.data(), bytes.size());
        ReferenceFeed feed{{"tokens", {tokens.begin(), tokens.end()}}};
        for (const State& state : model.parameters->states()) {
            const std::vector<float> values = model.parameters->read_f32(state.name);
            feed[state.name] = {values.begin(), values.end()};
        }
        exact = ReferenceRun(graph, feed).result("logits").values;
    }
};

TEST(TokenGenerator, ScoresAreThoseOfTheWholeSequenceAtEveryPosition) {
    ModelOnCpu model;
    const std::vector<std::int32_t> tokens = some_tokens(odd_gpt2.context);
    const Full full(model, tokens);
    const auto V = static_cast<std::size_t>(odd_gpt2.vocabulary);
    // The same sums with other neighbours: the error of the pass without a cache is the measure, and twice
    // that the class.
    const double allowed = 2 * largest_difference(full.scores, full.exact);
    ASSERT_LT(allowed, 1e-4);
    for (std::int64_t prompt : {1, 2, 7, 18, 19}) {
        TokenGenerator generator(*model.device, nn::gpt2_language_model(odd_gpt2), prompt);
        generator.allocate(*model.parameters);
        std::vector<float> scores =
            generator.prompt(std::span(tokens).first(static_cast<std::size_t>(prompt)));
        for (std::int64_t last = prompt - 1;; ++last) {
            const auto exact = std::span(full.exact).subspan(static_cast<std::size_t>(last) * V, V);
            EXPECT_LE(largest_difference(scores, exact), allowed)
                << "prompt " << prompt << ", position " << last;
            if (last + 1 == odd_gpt2.context) break;
            scores = generator.next(tokens[static_cast<std::size_t>(last + 1)]);
        }
        EXPECT_EQ(generator.length(), odd_gpt2.context);
        EXPECT_THROW(generator.next(0), InternalError);
    }
}

TEST(TokenGenerator, AnotherPromptStartsAnew) {
    ModelOnCpu model;
    const std::vector<std::int32_t> tokens = some_tokens(12);
    TokenGenerator used(*model.device, nn::gpt2_language_model(odd_gpt2), 4),
        fresh(*model.device, nn::gpt2_language_model(odd_gpt2), 4);
    used.allocate(*model.parameters);
    fresh.allocate(*model.parameters);
    used.prompt(std::span(tokens).first(4));
    for (int i = 4; i < 12; ++i) used.next(tokens[static_cast<std::size_t>(i)]);
    const auto prompt = std::span(tokens).last(4);
    EXPECT_TRUE(used.prompt(prompt) == fresh.prompt(prompt));
    EXPECT_TRUE(used.next(9) == fresh.next(9));
}

TEST(TokenGenerator, PromptsThatDoNotFitAreRefused) {
    const auto device = make_cpu_device({.threads = 1});
    const auto error_of = [&](std::int64_t tokens) -> std::string {
        try {
            TokenGenerator(*device, nn::gpt2_language_model(odd_gpt2), tokens);
        } catch (const UserError& error) {
            return error.what();
        }
        return "no error";
    };
    EXPECT_EQ(error_of(0), "the prompt is empty; give it one token or more");
    EXPECT_EQ(error_of(20), "the prompt has 20 tokens, small has a context of 19; give a shorter prompt");
    EXPECT_EQ(error_of(19), "no error");
}

std::vector<std::int32_t> text_of(const GenerateOptions& options, int threads = 2) {
    ModelOnCpu model(threads);
    TokenGenerator generator(*model.device, nn::gpt2_language_model(odd_gpt2), 3);
    generator.allocate(*model.parameters);
    std::vector<std::int32_t> shown;
    const Generated generated = generate(generator, some_tokens(3), options, [&](std::int32_t token) {
        shown.push_back(token);
        return true;
    });
    EXPECT_EQ(shown, generated.tokens);
    return shown;
}

TEST(Generate, TheTextFollowsFromTheSeed) {
    GenerateOptions options{.sampling = {.seed = 5}, .length = 12};
    const std::vector<std::int32_t> text = text_of(options);
    ASSERT_EQ(text.size(), 12u);
    EXPECT_EQ(text_of(options), text);
    EXPECT_EQ(text_of(options, 1), text);
    EXPECT_EQ(text_of(options, 3), text);
    options.length = 7;
    EXPECT_EQ(text_of(options), std::vector<std::int32_t>(text.begin(), text.begin() + 7));
    options.sampling.seed = 6;
    EXPECT_NE(text_of(options), std::vector<std::int32_t>(text.begin(), text.begin() + 7));
}

TEST(Generate, APenaltyKeepsTokensOfPromptAndTextFromComingAgain) {
    ModelOnCpu model;
    const std::vector<std::int32_t> prompt = some_tokens(6);
    TokenGenerator generator(*model.device, nn::gpt2_language_model(odd_gpt2), std::ssize(prompt));
    generator.allocate(*model.parameters);
    const auto different = [&](double penalty) {
        std::set<std::int32_t> tokens(prompt.begin(), prompt.end());
        const Generated generated = generate(
            generator, prompt, {.sampling = {.temperature = 0, .repetition_penalty = penalty}, .length = 12},
            [&](std::int32_t token) {
                tokens.insert(token);
                return true;
            });
        EXPECT_EQ(generated.tokens.size(), 12U);
        return tokens.size();
    };
    const std::size_t all = std::set<std::int32_t>(prompt.begin(), prompt.end()).size() + 12;
    EXPECT_LT(different(1), all) << "the likeliest tokens repeat";
    EXPECT_EQ(different(1e6), all);
}

TEST(Generate, EndsAtItsLengthAFullContextOrTheEndOfText) {
    ModelOnCpu model;
    TokenGenerator generator(*model.device, nn::gpt2_language_model(odd_gpt2), 3);
    generator.allocate(*model.parameters);
    const auto ended = [&](const GenerateOptions& options) {
        return generate(generator, some_tokens(3), options, [](std::int32_t) { return true; });
    };
    EXPECT_EQ(ended({.length = 5}).end, TextEnd::length);
    // 16 tokens fill the context, and from the scores of the last of them one more is drawn.
    EXPECT_EQ(ended({.length = 17}).end, TextEnd::length);
    const Generated full = ended({.length = 18});
    EXPECT_EQ(full.end, TextEnd::context);
    EXPECT_EQ(full.tokens.size(), 17u);
    const Generated stopped = ended({.length = 17, .last_tokens = {full.tokens[6]}});
    EXPECT_EQ(stopped.end, TextEnd::end_of_text);
    const auto first = std::find(full.tokens.begin(), full.tokens.end(), full.tokens[6]);
    EXPECT_EQ(stopped.tokens, std::vector<std::int32_t>(full.tokens.begin(), first));
    EXPECT_THROW(ended({.length = 0}), UserError);
    int shown = 0;
    const Generated told =
        generate(generator, some_tokens(3), {.length = 17}, [&](std::int32_t) { return ++shown < 4; });
    EXPECT_EQ(told.end, TextEnd::stopped);
    EXPECT_EQ(told.tokens, std::vector<std::int32_t>(full.tokens.begin(), full.tokens.begin() + 4));
}

/// Tokens of the rule as it is written, each text read from its beginning for every token.
std::vector<std::int32_t> slid_by_hand(ModelOnCpu& model, std::vector<std::int32_t> text, std::int64_t length,
                                       std::int64_t kept_first) {
    std::vector<std::int32_t> made, window = text;
    for (std::int64_t i = 0; i < length; ++i) {
        if (static_cast<std::int64_t>(window.size()) > odd_gpt2.context) {
            std::vector<std::int32_t> left(window.begin(), window.begin() + kept_first);
            left.insert(left.end(), text.end() - (10 - kept_first), text.end());
            window = left;
        }
        const Full full(model, window);
        const std::span<const double> last = std::span(full.exact).last(odd_gpt2.vocabulary);
        made.push_back(static_cast<std::int32_t>(std::ranges::max_element(last) - last.begin()));
        window.push_back(made.back());
        text.push_back(made.back());
    }
    return made;
}

TEST(Generate, GoesOnPastTheContextWithItsNewerHalf) {
    ModelOnCpu model;
    ASSERT_EQ(slid_length(odd_gpt2.context), 10);
    const std::int64_t lengths[] = {3, 10};
    TokenGenerator generator(*model.device, nn::gpt2_language_model(odd_gpt2), lengths, {}, 1);
    generator.allocate(*model.parameters);
    const auto generated = [&](GenerateOptions options) {
        options.full_context = FullContext::slides;
        options.length = 40;
        return generate(generator, some_tokens(3), options, [](std::int32_t) { return true; });
    };
    for (const std::int64_t kept_first : {0, 2}) {
        const Generated greedy = generated({.sampling = {.temperature = 0}, .kept_first = kept_first});
        EXPECT_EQ(greedy.tokens, slid_by_hand(model, some_tokens(3), 40, kept_first)) << kept_first;
        EXPECT_EQ(greedy.end, TextEnd::length);
        // After 17 tokens, and then after 10 each: 27, 37.
        EXPECT_EQ(greedy.slides, 3);
    }
    EXPECT_EQ(generated({.sampling = {.temperature = 0}, .kept_first = 5}).tokens,
              generated({.sampling = {.temperature = 0}}).tokens);
    // Random numbers go on where they were: the first tokens are those of a text that ends at the context.
    const Generated drawn = generated({.sampling = {.temperature = 0.9, .seed = 5}});
    const Generated full =
        generate(generator, some_tokens(3), {.sampling = {.temperature = 0.9, .seed = 5}, .length = 40},
                 [](std::int32_t) { return true; });
    ASSERT_EQ(full.tokens.size(), 17u);
    EXPECT_TRUE(std::equal(full.tokens.begin(), full.tokens.end(), drawn.tokens.begin()));
}

/// Texts of unlike prompts and lengths, some of which end early.
TEST(Generate, TextsAtOnceAreThoseThatEachIsAlone) {
    ModelOnCpu model;
    const std::vector<std::vector<std::int32_t>> prompts{some_tokens(3), some_tokens(1), some_tokens(9),
                                                         some_tokens(3)};
    const std::vector<std::uint64_t> seeds{0, 0, 0, 7};
    for (const char* policy : {"fp32", "int8", "int4"}) {
        std::vector<std::vector<std::int32_t>> alone;
        std::vector<TextEnd> ends;
        GenerateOptions options{.sampling = {.temperature = 0.7, .seed = 11}, .length = 12};
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            TokenGenerator one(*model.device, nn::gpt2_language_model(odd_gpt2), std::ssize(prompts[i]),
                               find_policy(policy));
            one.allocate(*model.parameters);
            GenerateOptions own = options;
            own.sampling.seed += seeds[i];
            if (i == 1) own.length = 1;
            const Generated generated = generate(one, prompts[i], own, [](std::int32_t) { return true; });
            alone.push_back(generated.tokens);
            ends.push_back(generated.end);
        }
        EXPECT_NE(alone[0], alone[3]) << "seeds of their own";
        EXPECT_EQ(ends[2], TextEnd::context) << "of 19 tokens";
        const std::int64_t lengths[] = {3, 1, 9};
        TokenGenerator together(*model.device, nn::gpt2_language_model(odd_gpt2), lengths,
                                find_policy(policy), 4);
        together.allocate(*model.parameters);
        const std::vector<Generated> all = generate_together(
            together, prompts, seeds, options, [](std::size_t text, std::int32_t) { return text != 1; });
        for (std::size_t i = 0; i < prompts.size(); ++i)
            EXPECT_EQ(all[i].tokens, alone[i]) << policy << " " << i;
        EXPECT_EQ(all[1].end, TextEnd::stopped);
        EXPECT_EQ(all[2].end, TextEnd::context);
    }
    // Each slides when it is full, whatever the others do.
    GenerateOptions slides{.sampling = {.temperature = 0.7, .seed = 11}, .length = 33};
    slides.full_context = FullContext::slides;
    const std::int64_t lengths[] = {3, 1, 9, 10};
    TokenGenerator together(*model.device, nn::gpt2_language_model(odd_gpt2), lengths, {}, 4);
    together.allocate(*model.parameters);
    const std::vector<Generated> all = generate_together(
        together, prompts, seeds, slides, [](std::size_t text, std::int32_t) { return text != 1; });
    for (const std::size_t i : {0u, 2u, 3u}) {
        TokenGenerator one(*model.device, nn::gpt2_language_model(odd_gpt2), lengths, {}, 1);
        one.allocate(*model.parameters);
        GenerateOptions own = slides;
        own.sampling.seed += seeds[i];
        const Generated alone = generate(one, prompts[i], own, [](std::int32_t) { return true; });
        EXPECT_EQ(all[i].tokens, alone.tokens) << i;
        EXPECT_EQ(all[i].tokens.size(), 33u);
        EXPECT_EQ(all[i].slides, alone.slides);
    }
    EXPECT_THROW(
        TokenGenerator(*model.device, nn::gpt2_language_model(odd_gpt2), std::vector<std::int64_t>{3}, {}, 0),
        UserError);
}

TEST(StopSequences, EndTheTextBeforeThem) {
    const auto shown = [](const std::vector<std::string>& words, const std::vector<std::string>& parts) {
        StopSequences stop(words);
        std::string text;
        for (const std::string& part : parts) text += stop.push(part) + "|";
        return text + (stop.found() ? "found" : stop.finish());
    };
    EXPECT_EQ(shown({"end"}, {"the e", "n", "d is"}), "the |||found") << "over parts";
    EXPECT_EQ(shown({"end"}, {"the e", "ight"}), "the |eight|");
    EXPECT_EQ(shown({"end"}, {"lend"}), "l|found");
    EXPECT_EQ(shown({"end", "he"}, {"the end"}), "t|found") << "the first of them";
    EXPECT_EQ(shown({"aab"}, {"aa", "ab"}), "|a|found");
    EXPECT_EQ(shown({"end"}, {"the en"}), "the |en");
    EXPECT_EQ(shown({}, {"the ", "end"}), "the |end|");
    EXPECT_THROW(StopSequences({"end", ""}), UserError);
}

/// ln softmax(scores)[token] in FP64.
double log_softmax(const double* scores, std::int32_t token) {
    double total = 0;
    for (std::int64_t id = 0; id < odd_gpt2.vocabulary; ++id) total += std::exp(scores[id]);
    return scores[token] - std::log(total);
}

TEST(Generate, SaysHowProbableEachTokenWas) {
    ModelOnCpu model;
    TokenGenerator generator(*model.device, nn::gpt2_language_model(odd_gpt2), 3);
    generator.allocate(*model.parameters);
    // At this temperature most tokens drawn are improbable ones, of all over the vocabulary.
    const Generated generated = generate(
        generator, some_tokens(3), {.sampling = {.temperature = 4, .top_k = 60, .seed = 5}, .length = 12},
        [](std::int32_t) { return true; });
    ASSERT_EQ(generated.log_probabilities.size(), 12u);
    std::vector<std::int32_t> tokens = some_tokens(3);
    tokens.insert(tokens.end(), generated.tokens.begin(), generated.tokens.end());
    const Full full(model, tokens);
    // A score's error passes into a log-probability once for the token and once for the sum; the scores'
    // own class is that of ScoresAreThoseOfTheWholeSequenceAtEveryPosition.
    const double allowed = 4 * largest_difference(full.scores, full.exact);
    ASSERT_LT(allowed, 2e-4);
    for (std::size_t i = 0; i < generated.tokens.size(); ++i) {
        const double* scores = full.exact.data() + (2 + i) * static_cast<std::size_t>(odd_gpt2.vocabulary);
        EXPECT_NEAR(generated.log_probabilities[i], log_softmax(scores, generated.tokens[i]), allowed) << i;
    }
}

TEST(Sampling, LogProbabilityOfLargeScores) {
    const std::vector<float> scores{1000, 1000, -1000};
    EXPECT_DOUBLE_EQ(log_probability(scores, 1), -std::log(2.0));
    EXPECT_DOUBLE_EQ(log_probability(scores, 2), -2000 - std::log(2.0));
}

TEST(Sampling, LogProbabilitiesOfManyScoresAgreeWithFp64) {
    std::vector<float> scores;
    for (int i = 0; i < 50257; ++i) scores.push_back(30 * std::sin(static_cast<float>(i) * 0.37f));
    double total = 0;
    for (const float score : scores) total += std::exp(static_cast<double>(score));
    // Weights of two units in the last place each.
    for (const std::int32_t token : {0, 4, 50256})
        EXPECT_NEAR(log_probability(scores, token),
                    static_cast<double>(scores[static_cast<std::size_t>(token)]) - std::log(total),
                    4 * 0x1p-24 * 30);
}

TEST(Sampling, ANucleusOfManyTokensIsFound) {
    // 1,000 equal scores: half of them make up a half.
    const std::vector<float> scores(1000, 1.5f);
    for (std::int64_t position = 0; position < 200; ++position)
        EXPECT_LT(sample(scores, {.top_p = 0.5}, position), 500);
}

TEST(Sampling, AtTemperatureZeroTheLargestScoreWins) {
    const std::vector<float> scores{1, 4, 2, 4, -1};
    for (std::int64_t position = 0; position < 20; ++position) {
        EXPECT_EQ(sample(scores, {.temperature = 0}, position), 1);  // of equal scores the lower token
        EXPECT_EQ(sample(scores, {.top_k = 1}, position), 1);
        EXPECT_EQ(sample(scores, {.temperature = 0, .tokens = 1}, position), 0);
    }
}

/// How often each of four tokens was drawn.
std::vector<double> frequencies(const SamplingOptions& options) {
    const std::vector<float> scores{0, std::log(2.0f), std::log(5.0f), std::log(2.0f)};
    constexpr int draws = 20000;
    std::vector<double> counts(scores.size());
    for (int position = 0; position < draws; ++position)
        counts[static_cast<std::size_t>(sample(scores, options, position))] += 1.0 / draws;
    return counts;
}

TEST(Sampling, DrawsWithTheProbabilitiesOfSoftmax) {
    const auto expect = [](const SamplingOptions& options, const std::vector<double>& probabilities) {
        const std::vector<double> found = frequencies(options);
        for (std::size_t i = 0; i < found.size(); ++i)  // five standard deviations; counts are sums
            EXPECT_NEAR(found[i], probabilities[i],
                        5 * std::sqrt(probabilities[i] * (1 - probabilities[i]) / 20000) + 1e-9);
    };
    expect({}, {0.1, 0.2, 0.5, 0.2});
    expect({.top_k = 3}, {0, 2.0 / 9, 5.0 / 9, 2.0 / 9});
    expect({.top_k = 2}, {0, 2.0 / 7, 5.0 / 7, 0});  // of equal scores the lower token
    expect({.top_k = 9}, {0.1, 0.2, 0.5, 0.2});
    expect({.tokens = 3}, {1.0 / 8, 2.0 / 8, 5.0 / 8, 0});
    expect({.temperature = 0.5}, {1.0 / 34, 4.0 / 34, 25.0 / 34, 4.0 / 34});
    expect({.top_p = 0.5}, {0, 0, 1, 0});
    expect({.top_p = 0.6}, {0, 2.0 / 7, 5.0 / 7, 0});  // the fewest that make it up
    expect({.top_p = 0.85}, {0, 2.0 / 9, 5.0 / 9, 2.0 / 9});
    expect({.top_k = 2, .top_p = 0.7}, {0, 0, 1, 0});  // of those: 5 / 7
    expect({.top_p = 0.99, .tokens = 3}, {1.0 / 8, 2.0 / 8, 5.0 / 8, 0});
    expect({.min_p = 0.3}, {0, 2.0 / 9, 5.0 / 9, 2.0 / 9});
    expect({.min_p = 0.41}, {0, 0, 1, 0});
    expect({.min_p = 1}, {0, 0, 1, 0});
    // The temperature comes first: 1, 4, 25, 4 of 34.
    expect({.temperature = 0.5, .min_p = 0.1}, {0, 4.0 / 33, 25.0 / 33, 4.0 / 33});
    // The nucleus is found among all, and then thinned.
    expect({.top_p = 0.85, .min_p = 0.41}, {0, 0, 1, 0});
}

TEST(Sampling, APenaltyDividesPositiveScoresAndMultipliesOthersOnce) {
    std::vector<float> scores{3, -2, 0, 1.5f, -4};
    const std::vector<std::int32_t> text{0, 1, 1, 0, 2, 4};
    penalize_repetition(scores, text, 1.25);
    EXPECT_EQ(scores, (std::vector<float>{2.4f, -2.5f, 0, 1.5f, -5}));
    penalize_repetition(scores, {}, 9);
    EXPECT_EQ(scores[0], 2.4f);
}

TEST(Sampling, BadOptionsAndScoresAreRefused) {
    for (const double bad : {-0.1, 1.1, static_cast<double>(NAN)})
        EXPECT_THROW(validate(SamplingOptions{.min_p = bad}), UserError);
    for (const double bad : {0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)})
        EXPECT_THROW(validate(SamplingOptions{.repetition_penalty = bad}), UserError);
    EXPECT_THROW(validate(SamplingOptions{.temperature = -0.1}), UserError);
    EXPECT_THROW(validate(SamplingOptions{.temperature = NAN}), UserError);
    EXPECT_THROW(validate(SamplingOptions{.temperature = INFINITY}), UserError);
    EXPECT_THROW(validate(SamplingOptions{.top_k = -1}), UserError);
    for (const double bad : {0.0, -0.5, 1.01, static_cast<double>(NAN)})
        EXPECT_THROW(validate(SamplingOptions{.top_p = bad}), UserError);
    for (float bad : {NAN, INFINITY}) {
        const std::vector<float> scores{1, bad, 2};
        EXPECT_THROW(sample(scores, {}, 0), UserError);
        EXPECT_THROW(sample(scores, {.temperature = 0}, 0), UserError);
    }
}

}  // namespace
}  // namespace mantissa
