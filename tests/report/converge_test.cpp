// The same training in several precisions: who agrees, who does not and where to look, and the page.
#include "mantissa/report/converge.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "tests/support/error_of.h"
#include "tests/support/gpt2.h"
#include "tests/support/html_page.h"

namespace mantissa {
namespace {

TokenStream some_tokens() {
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < 2000; ++i) tokens.push_back(i * i % 89);
    return TokenStream(tokens);
}

ConvergeOptions small_comparison(std::vector<Policy> policies) {
    return {.policies = std::move(policies),
            .model = nn::gpt2_model(nn::gpt2_config("gpt2-tiny"), 32),
            .trainer = {.batch = 2},
            .steps = 4};
}

ConvergeReport converged(const ConvergeOptions& options) {
    const auto device = make_cpu_device();
    const TokenStream tokens = some_tokens();
    return run_converge(*device, TextWindows(tokens, tokens.all(), 32, {.batch = 2}), options);
}

TEST(Converge, EveryPrecisionAgreesWithFp32) {
    const ConvergeReport report = converged(small_comparison(
        {find_policy("fp32"), find_policy("tf32"), find_policy("bf16"), find_policy("fp16")}));
    ASSERT_EQ(report.runs.size(), 4u);
    EXPECT_EQ(report.runs[0].furthest, 0);
    for (const ConvergedRun& run : report.runs) {
        EXPECT_EQ(run.losses.size(), 4u);
        EXPECT_LT(run.losses.back(), run.losses.front());
        EXPECT_TRUE(run.agrees()) << run.policy << " by " << run.difference;
        EXPECT_EQ(run.mean, run.losses.back());  // of four steps the last is judged
        EXPECT_EQ(run.difference, run.mean - report.runs[0].mean);
        EXPECT_EQ(run.scaled, run.policy == "fp16");
        if (&run == &report.runs.front()) continue;
        EXPECT_NE(run.losses, report.runs[0].losses) << run.policy;  // so they were computed differently
        EXPECT_EQ(run.furthest, run.losses[static_cast<std::size_t>(run.furthest_step)] -
                                    report.runs[0].losses[static_cast<std::size_t>(run.furthest_step)]);
    }
    EXPECT_TRUE(report.runs[0].weights.empty());
    for (std::size_t i = 1; i < 4; ++i) {
        const std::vector<WeightApart>& weights = report.runs[i].weights;
        ASSERT_EQ(weights.size(), 3u);
        EXPECT_GE(weights[0].share, weights[1].share);
        EXPECT_GE(weights[1].share, weights[2].share);
        EXPECT_GT(weights[0].share, 0);
        EXPECT_LT(weights[0].share, 2);  // of two steps of AdamW that go opposite ways
        EXPECT_EQ(weights[0].line.find("decoder.cpp:"), 0u) << weights[0].name << " at " << weights[0].line;
    }
    EXPECT_TRUE(where_to_look(report).empty());
    EXPECT_EQ(report.averaged, 1);
    EXPECT_TRUE(report.all_agree());
    // Three trainings in FP32, of which the first is the one above.
    EXPECT_EQ(report.spread.seeds, (std::vector<std::uint64_t>{1337, 1338, 1339}));
    EXPECT_EQ(report.spread.means[0], report.runs[0].mean);
    EXPECT_GT(report.spread.largest, 0);
    EXPECT_EQ(report.runs[2].allowed, std::max(0.02, report.spread.largest));
    EXPECT_EQ(report.runs[1].allowed, std::max(0.001, report.spread.largest));
}

TEST(Converge, OneSeedOrAToleranceTrainsNoOther) {
    ConvergeOptions options = small_comparison({find_policy("fp32"), find_policy("tf32")});
    options.seeds = 1;
    const ConvergeReport one = converged(options);
    EXPECT_EQ(one.spread.seeds.size(), 1u);
    EXPECT_EQ(one.runs[1].allowed, 0.001);
    EXPECT_NE(converge_table(one).find("fp32 was trained from one seed"), std::string::npos);
    options.seeds = 3;
    options.tolerance = 0.5;
    const ConvergeReport told = converged(options);
    EXPECT_EQ(told.spread.seeds.size(), 1u);
    EXPECT_EQ(told.runs[1].allowed, 0.5);
}

TEST(Converge, EmulationsTrainAsTheFormatsDo) {
    const ConvergeReport report = converged(small_comparison(
        {find_policy("fp32"), find_policy("tf32"), emulated("tf32"), emulated("bf16"), emulated("fp16")}));
    for (const ConvergedRun& run : report.runs)
        EXPECT_TRUE(run.agrees()) << run.policy << " by " << run.difference;
    const auto device = make_cpu_device();
    if (device->target().bf16_unit != "amx") {
        // There TF32 is three products of BF16; elsewhere it is this rounding and nothing more.
        EXPECT_EQ(report.runs[1].losses, report.runs[2].losses);
    }
    EXPECT_NE(report.runs[0].losses, report.runs[3].losses);
    EXPECT_EQ(report.runs[3].policy, "emulated bf16");
    EXPECT_EQ(report.runs[3].allowed, std::max(0.02, report.spread.largest));
    EXPECT_TRUE(report.runs[4].scaled);
    EXPECT_GT(report.runs[4].loss_scale, 1);
}

TEST(Converge, ARunThatDisagreesGetsTheOrderOfLooking) {
    ConvergeOptions options =
        small_comparison({find_policy("fp32"), find_policy("tf32"), find_policy("fp16")});
    options.tolerance = 0;
    options.fixed_loss_scale = 1;
    const std::vector<std::string> places = where_to_look(converged(options));
    ASSERT_EQ(places.size(), 4u);
    EXPECT_NE(places[0].find("Try TF32"), std::string::npos) << places[0];
    EXPECT_NE(places[0].find("does not agree either"), std::string::npos) << places[0];
    EXPECT_NE(places[1].find("fp16: 1 after the last step, 0 of 4 steps skipped"), std::string::npos)
        << places[1];
    EXPECT_NE(places[2].find("loss with and without the scale"), std::string::npos) << places[2];
    EXPECT_NE(places[3].find(" % of the gradients became zero"), std::string::npos) << places[3];
}

TEST(Converge, ARunThatIsNotFiniteIsGivenUpAndNamed) {
    ConvergeOptions options = small_comparison({find_policy("fp32"), find_policy("bf16")});
    options.steps = 9;
    options.learning_rate.peak = options.learning_rate.least =
        1e38;  // the first update makes weights with which no loss is finite
    const ConvergeReport report = converged(options);
    for (const ConvergedRun& run : report.runs) {
        EXPECT_EQ(run.losses.size(), 4u);
        EXPECT_EQ(run.gave_up.find("3 steps in a row were not finite, the last at step 3: "), 0u)
            << run.gave_up;
        EXPECT_FALSE(run.agrees());
    }
    const auto json = nlohmann::json::parse(converge_json(report));
    EXPECT_TRUE(json["runs"][0]["losses"][3].is_null());
    EXPECT_FALSE(json["runs"][0]["agrees"].get<bool>());
    EXPECT_EQ(fault_of_page(converge_html(report, "")), "");
    const std::vector<std::string> places = where_to_look(report);
    ASSERT_EQ(places.size(), 1u);
    EXPECT_EQ(
        places[0],
        "Look at the training, not at the precisions: fp32, what the others are held against, broke down "
        "itself. Lower the learning rate 1e+38 until it trains, and compare then.");
}

TEST(Converge, ATrainingThatClimbsSaysNothingOfPrecisions) {
    ConvergeReport report;
    report.learning_rate.peak = 1;
    report.runs = {{.policy = "fp32", .losses = {5, 9}, .mean = 8, .allowed = 0.1},
                   {.policy = "bf16", .losses = {5, 7}, .mean = 6, .difference = -2, .allowed = 1}};
    ASSERT_EQ(where_to_look(report).size(), 1u);
    EXPECT_NE(where_to_look(report)[0].find("came from a loss of 5.0000 to 8.0000 itself"),
              std::string::npos);
    report.runs[0].mean = 4;
    EXPECT_EQ(where_to_look(report).size(), 4u);
}

TEST(Converge, PrecisionsOfATrainingThatClimbsDoNotAgree) {
    ConvergeReport report;
    report.runs = {{.policy = "fp32", .losses = {6, 30}, .mean = 20, .allowed = 9},
                   {.policy = "bf16", .losses = {6, 28}, .mean = 19, .difference = -1, .allowed = 9}};
    EXPECT_FALSE(report.all_agree());
    EXPECT_EQ(verdict(report),
              "fp32 does not train, so there is nothing to agree with: it came from a loss of 6.0000 to "
              "20.0000 itself");
    const auto json = nlohmann::json::parse(converge_json(report));
    EXPECT_FALSE(json["agree"].get<bool>());
    EXPECT_FALSE(json["trains"].get<bool>());
    EXPECT_LT(converge_html(report, "").find("fp32 does not train"),
              converge_html(report, "").find("<table"));
    // Trainings from initial weights that do not train say nothing of how far losses lie apart.
    ConvergeOptions options = small_comparison({find_policy("fp32"), find_policy("bf16")});
    options.steps = 8;
    options.learning_rate.peak = options.learning_rate.least = 3;
    EXPECT_TRUE(converged(options).spread.means.empty());
}

TEST(Converge, BadOptionsAreRefused) {
    const auto says = [](const ConvergeOptions& options) {
        return testing::error_of([&] { converged(options); });
    };
    EXPECT_EQ(says(small_comparison({find_policy("fp32")})), "two precisions or more are compared, got 1");
    EXPECT_EQ(says(small_comparison({find_policy("bf16"), find_policy("bf16")})),
              "the policy bf16 was named twice");
    ConvergeOptions no_steps = small_comparison({find_policy("fp32"), find_policy("bf16")});
    no_steps.steps = 0;
    EXPECT_EQ(says(no_steps), "steps must be 1 or more, got 0");
    ConvergeOptions no_seed = small_comparison({find_policy("fp32"), find_policy("bf16")});
    no_seed.seeds = 0;
    EXPECT_EQ(says(no_seed), "seeds must be 1 or more, got 0");
}

ConvergeReport written_convergence() {
    ConvergeReport report{
        .model = {.name = "tiny <&>", .batch = 2, .unit = "tokens", .examples = "2 x 32 tokens"},
        .steps = 3,
        .seed = 7,
        .runs = {}};
    report.spread = {.seeds = {7, 8}, .means = {1.5, 1.53}, .largest = 0.03};
    report.runs = {{.policy = "fp32", .losses = {3, 2, 1.5}, .mean = 1.5},
                   {.policy = "bf16",
                    .losses = {3, 2.25, 1.51},
                    .mean = 1.51,
                    .difference = 0.01,
                    .allowed = 0.03,
                    .furthest = 0.25,
                    .furthest_step = 1},
                   {.policy = "fp16",
                    .losses = {3},
                    .gave_up = "infinite <gelu>",
                    .mean = 3,
                    .difference = 1.5,
                    .allowed = 0.03,
                    .scaled = true,
                    .loss_scale = 256,
                    .skipped = 3,
                    .lost = 0.125}};
    report.runs[1].weights = {{.name = "h.0.<w>", .line = "model.py:52", .share = 0.25},
                              {.name = "bias", .line = ""}};
    return report;
}

TEST(Converge, TableAndJsonHaveLossesAndWhatWasHeldAgainstWhat) {
    const std::string table = converge_table(written_convergence());
    for (const char* part :
         {"\n   1  2.000000  2.250000         -\n",
          "fp32 from the seeds 7, 8 ends at 1.50000, 1.53000: 0.030000 apart\n", "mean, last 1 ",
          "bf16         1.51000  +0.010000  0.030000          +0.250000        1", "  agrees\n",
          "fp16 does not agree with fp32; bf16 does, by the last step's loss\n", "given up: infinite <gelu>",
          "bf16    h.0.<w>                     model.py:52                25 %\n",
          "where to look for the fault", "1. Try TF32", "It was not run here", "4. Look for underflow"})
        EXPECT_NE(table.find(part), std::string::npos) << part << " is missing in\n" << table;
    const auto json = nlohmann::json::parse(converge_json(written_convergence()));
    EXPECT_EQ(json["command"], "numerics converge");
    EXPECT_EQ(json["runs"][1]["furthest"], 0.25);
    EXPECT_EQ(json["runs"][1]["furthest_step"], 1);
    EXPECT_EQ(json["runs"][1]["difference"], 0.01);
    EXPECT_EQ(json["runs"][1]["allowed"], 0.03);
    EXPECT_EQ(json["spread"]["largest"], 0.03);
    EXPECT_EQ(json["averaged"], 1);
    EXPECT_FALSE(json["agree"].get<bool>());
    EXPECT_TRUE(json["runs"][1]["agrees"].get<bool>());  // one step apart by 0.25 is no disagreement
    EXPECT_FALSE(json["runs"][2]["agrees"].get<bool>());
    EXPECT_TRUE(json["runs"][0]["loss_scale"].is_null());
    EXPECT_EQ(json["runs"][2]["gave_up"], "infinite <gelu>");
    EXPECT_EQ(json["runs"][1]["weights"][0]["name"], "h.0.<w>");
    EXPECT_EQ(json["runs"][1]["weights"][0]["line"], "model.py:52");
    EXPECT_EQ(json["runs"][1]["weights"][0]["share"], 0.25);
    EXPECT_TRUE(json["runs"][1]["weights"][1]["line"].is_null());
    EXPECT_TRUE(json["runs"][0]["weights"].empty());
    EXPECT_EQ(json["where_to_look"].size(), 4u);
}

TEST(Converge, TheConclusionDoesNotContradictTheVerdicts) {
    ConvergeReport report = written_convergence();
    const auto run = [](const std::string& policy, double difference) {
        ConvergedRun made{.policy = policy, .losses = {2}};
        made.difference = difference;
        made.allowed = 0.02;
        return made;
    };
    report.runs = {run("fp32", 0), run("tf32", 0.05), run("bf16", 0.01), run("fp16", 0.05)};
    EXPECT_EQ(verdict(report), "tf32, fp16 do not agree with fp32; bf16 does, by the last step's loss");
    std::string tf32 = where_to_look(report)[0];
    EXPECT_EQ(tf32.find("more than 10 bits"), std::string::npos) << tf32;
    EXPECT_NE(tf32.find("but bf16 does, which has no more bits of fraction"), std::string::npos) << tf32;
    report.runs[2] = run("bf16", -0.05);
    tf32 = where_to_look(report)[0];
    EXPECT_NE(tf32.find("wants more than 10 bits"), std::string::npos) << tf32;
    report.runs[1] = run("tf32", 0.001);
    EXPECT_NE(where_to_look(report)[0].find("10 bits of fraction are enough"), std::string::npos);
    report.averaged = 5;
    EXPECT_EQ(verdict(report),
              "bf16, fp16 do not agree with fp32; tf32 does, by the mean of the last 5 losses");
    report.runs = {run("fp32", 0), run("bf16", 0.01)};
    EXPECT_EQ(verdict(report), "all agree with fp32, by the mean of the last 5 losses");
    EXPECT_TRUE(where_to_look(report).empty());
}

TEST(Converge, SeedsFurtherApartThanTheLossHasFallenDecideNothing) {
    ConvergeOptions options = small_comparison({find_policy("fp32"), find_policy("tf32"), emulated("bf16")});
    options.learning_rate.peak = options.learning_rate.least = 1e-5;
    const ConvergeReport report = converged(options);
    ASSERT_GT(report.spread.largest, report.runs[0].fallen());
    EXPECT_TRUE(report.runs[2].undecided) << report.runs[2].difference;
    EXPECT_FALSE(report.all_agree());
    EXPECT_TRUE(report.none_differs());
    EXPECT_EQ(verdict(report).find("cannot tell whether "), 0u) << verdict(report);
    EXPECT_NE(verdict(report).find(" with fp32: seeds end further apart ("), std::string::npos);
    EXPECT_NE(converge_table(report).find("  cannot tell\n"), std::string::npos);
    const auto json = nlohmann::json::parse(converge_json(report));
    EXPECT_FALSE(json["agree"].get<bool>());
    EXPECT_TRUE(json["runs"][2]["undecided"].get<bool>());
    EXPECT_EQ(where_to_look(report).size(), 1u);
    // A difference within the ladder's tolerance needs no seeds, once the loss has fallen further than that.
    options.learning_rate.peak = options.learning_rate.least = 1e-3;
    const ConvergeReport fallen = converged(options);
    EXPECT_GT(fallen.runs[0].fallen(), 0.02);
    EXPECT_TRUE(fallen.all_agree()) << verdict(fallen);
}

TEST(Converge, NoMoreLossesAreCalledAveragedThanWere) {
    ConvergeOptions options = small_comparison({find_policy("fp32"), find_policy("bf16")});
    options.steps = 20;
    options.seeds = 1;
    const ConvergeReport report = converged(options);
    EXPECT_EQ(report.averaged, 5);
    double sum = 0;
    for (std::size_t i = 15; i < 20; ++i) sum += report.runs[1].losses[i];
    EXPECT_DOUBLE_EQ(report.runs[1].mean, sum / 5);
    EXPECT_NE(converge_table(report).find("mean, last 5"), std::string::npos);
}

TEST(Converge, ThePageHasCurvesAndEscapesNames) {
    const std::string page = converge_html(written_convergence(), "mantissa numerics converge '<'");
    EXPECT_EQ(fault_of_page(page), "");
    for (const char* part : {"tiny &lt;&amp;&gt; in 3 precisions", "bf16, step 1: 2.25", "bf16, step 1: 0.25",
                             "given up: infinite &lt;gelu&gt;", "h.0.&lt;w&gt;", "model.py:52",
                             "<li>Try TF32", "12.5 %", "converge &#39;&lt;&#39;"})
        EXPECT_NE(page.find(part), std::string::npos) << part << " is missing in\n" << page;
}

}  // namespace
}  // namespace mantissa
