// The choice of the next token: which are considered, how often each is drawn, and what decides the draw.
#include "mantissa/train/generate.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/support/torch_fixture.h"

namespace mantissa {
namespace {

using testing::error_of;

std::set<std::int32_t> drawn(std::span<const float> logits, const SamplingOptions& options) {
    std::set<std::int32_t> tokens;
    for (std::int64_t position = 0; position < 500; ++position)
        tokens.insert(sample(logits, options, position));
    return tokens;
}

TEST(Sampling, WithoutTemperatureTheLikeliestIsTakenTheLowestOfEqualOnes) {
    const std::vector<float> logits{1, 3, -2, 3, 0};
    EXPECT_EQ(drawn(logits, {.temperature = 0}), (std::set<std::int32_t>{1}));
    EXPECT_EQ(drawn(logits, {.temperature = 0, .tokens = 1}), (std::set<std::int32_t>{0}));
}

TEST(Sampling, OnlyTheConsideredAreDrawn) {
    const std::vector<float> logits{2, 1, 2.5f, 1.5f};
    EXPECT_EQ(drawn(logits, {}), (std::set<std::int32_t>{0, 1, 2, 3}));
    EXPECT_EQ(drawn(logits, {.top_k = 2}), (std::set<std::int32_t>{0, 2}));
    EXPECT_EQ(drawn(logits, {.tokens = 2}), (std::set<std::int32_t>{0, 1}));
    // Shares of the four: 0.28, 0.10, 0.46, 0.17.
    EXPECT_EQ(drawn(logits, {.top_p = 0.4}), (std::set<std::int32_t>{2}));
    EXPECT_EQ(drawn(logits, {.top_p = 0.7}), (std::set<std::int32_t>{0, 2}));
    EXPECT_EQ(drawn(logits, {.top_k = 3, .top_p = 0.9}), (std::set<std::int32_t>{0, 2, 3}));
}

TEST(Sampling, TokensAreDrawnAsOftenAsTheirShareOfTheSoftmax) {
    const std::vector<float> logits{0, std::log(2.0f), std::log(5.0f)};
    for (const double temperature : {1.0, 0.5}) {
        constexpr int draws = 20'000;
        std::array<int, 3> counts = {};
        for (int position = 0; position < draws; ++position)
            ++counts[static_cast<std::size_t>(sample(logits, {.temperature = temperature}, position))];
        double all = 0;
        for (const float logit : logits) all += std::exp(logit / temperature);
        for (std::size_t token = 0; token < 3; ++token) {
            const double share = std::exp(logits[token] / temperature) / all;
            // Four standard deviations of a binomial distribution.
            EXPECT_NEAR(counts[token], share * draws, 4 * std::sqrt(draws * share * (1 - share))) << token;
        }
    }
}

TEST(Sampling, SeedAndPositionDecideTheDraw) {
    const std::vector<float> logits(64, 0.0f);
    const auto tokens = [&](std::uint64_t seed) {
        std::vector<std::int32_t> all;
        for (std::int64_t position = 0; position < 20; ++position)
            all.push_back(sample(logits, {.seed = seed}, position));
        return all;
    };
    EXPECT_EQ(tokens(1), tokens(1));
    EXPECT_NE(tokens(1), tokens(2));
    EXPECT_GT(drawn(logits, {}).size(), 48u) << "positions draw different tokens";
}

TEST(Sampling, TheModelsOwnProbabilityIsItsSoftmax) {
    const std::vector<float> logits{0, std::log(2.0f), std::log(5.0f)};
    EXPECT_NEAR(log_probability(logits, 1), std::log(2.0 / 8), 1e-6);
    double all = 0;
    for (std::int32_t token = 0; token < 3; ++token) all += std::exp(log_probability(logits, token));
    EXPECT_NEAR(all, 1, 1e-6);
}

TEST(Sampling, AScoreThatIsNoNumberIsAnError) {
    for (const std::size_t at : {0u, 17u, 39u}) {
        std::vector<float> logits(40, 1.0f);
        logits[at] = std::numeric_limits<float>::quiet_NaN();
        const std::string said = error_of([&] { sample(logits, {}, 7); });
        EXPECT_EQ(said.find("the model's score of token " + std::to_string(at) + " after 7 tokens is nan: "),
                  0u)
            << said;
        EXPECT_EQ(error_of([&] { sample(logits, {.tokens = static_cast<std::int64_t>(at)}, 7); }),
                  at == 0 ? said : "no error")
            << "those that are not considered may be anything";
    }
}

TEST(Sampling, OptionsThatAreNoneAreRefused) {
    EXPECT_EQ(error_of([] { validate(SamplingOptions{}); }), "no error");
    EXPECT_EQ(error_of([] { validate({.temperature = -1}); }),
              "the temperature must be 0 (always the likeliest token) or more, got -1");
    EXPECT_EQ(error_of([] { validate({.top_k = -1}); }), "top-k must be 0 (all) or more, got -1");
    EXPECT_EQ(error_of([] { validate({.top_p = 0}); }),
              "top-p must lie above 0 and be 1 (all) at most, got 0");
    EXPECT_EQ(error_of([] { validate({.top_p = 1.5}); }),
              "top-p must lie above 0 and be 1 (all) at most, got 1.5");
}

/// Draws so many times and expects each token as often as it is probable.
void expect_drawn_as_probable(std::span<const float> scores, const SamplingOptions& options,
                              std::span<const float> probabilities, const std::string& of) {
    constexpr int draws = 4000;
    std::vector<int> counts(scores.size());
    for (int position = 0; position < draws; ++position)
        ++counts[static_cast<std::size_t>(sample(scores, options, position))];
    for (std::size_t token = 0; token < scores.size(); ++token) {
        const double share = static_cast<double>(probabilities[token]);
        if (share == 0) {
            EXPECT_EQ(counts[token], 0) << of << ", token " << token << " is not considered";
        }
        // Five standard deviations of a binomial distribution, and one draw.
        EXPECT_NEAR(counts[token], share * draws, 5 * std::sqrt(draws * share * (1 - share)) + 1)
            << of << ", token " << token;
    }
}

/// bench/peers/sampling_fixture.py
TEST(SamplingAgainstTransformers, PenaltyAndMinPAreThoseOfItsProcessors) {
    const TorchFixture fixture("sampling");
    for (int number = 0; number < 12; ++number) {
        const std::string of = "." + std::to_string(number);
        const std::vector<float> options = fixture.values<float>("options" + of);
        std::vector<float> scores = fixture.values<float>("scores" + of);
        const double penalty = std::round(static_cast<double>(options[0]) * 10) / 10;
        penalize_repetition(scores, fixture.values<std::int32_t>("text" + of), penalty);
        const std::vector<float> penalized = fixture.values<float>("penalized" + of);
        for (std::size_t i = 0; i < scores.size(); ++i)
            EXPECT_NEAR(scores[i], penalized[i], 1e-6f * (1 + std::abs(penalized[i]))) << of << ", " << i;
        expect_drawn_as_probable(scores,
                                 {.temperature = static_cast<double>(options[1]),
                                  .top_k = static_cast<std::int64_t>(options[2]),
                                  .top_p = static_cast<double>(options[3]),
                                  .min_p = static_cast<double>(options[4])},
                                 fixture.values<float>("probabilities" + of), "case" + of);
    }
}

}  // namespace
}  // namespace mantissa
