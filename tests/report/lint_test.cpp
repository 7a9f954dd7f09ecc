// Ugly sizes: found in whatever model has them, once each, with a change that cures them; and what is
// printed.
#include "mantissa/report/lint.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/image_model.h"
#include "mantissa/nn/layers.h"
#include "mantissa/passes/pipeline.h"
#include "tests/support/gpt2.h"

namespace mantissa {
namespace {

Graph forward(const nn::Gpt2Config& config, std::int64_t batch, std::int64_t sequence,
              const std::string& policy = "bf16", bool chunked = false) {
    const auto trace = [&](Graph& graph) {
        const Type ids{DType::i32, {batch, sequence}};
        const Tensor tokens(graph, graph.add_input("tokens", ids));
        const Tensor targets(graph, graph.add_input("targets", ids));
        return nn::gpt2_loss(config, tokens, targets);
    };
    return build_evaluation(
               trace,
               {.policy = find_policy(policy), .match_attention = true, .fuse_linear_cross_entropy = chunked})
        .graph;
}

/// "size is -> change_to", in the order found.
std::vector<std::string> sizes(const std::vector<LintFinding>& findings) {
    std::vector<std::string> text;
    for (const LintFinding& finding : findings)
        text.push_back(std::string(finding.rule->size) + " " + std::to_string(finding.extent) + " -> " +
                       std::to_string(finding.change_to));
    return text;
}

using Sizes = std::vector<std::string>;

TEST(Lint, NamesThe25HeadsAndTheVocabularyOfGpt2Xl) {
    const std::vector<LintFinding> findings = lint(forward(nn::gpt2_config("gpt2-1558m"), 1, 1024), {});
    ASSERT_EQ(sizes(findings), (Sizes{"vocabulary 50257 -> 50304", "heads 25 -> 20"}));
    EXPECT_EQ(findings[0].where, Sizes{"wte.weight"});
    EXPECT_EQ(findings[0].multiple, 128);
    EXPECT_EQ(findings[1].where.size(), 48u);
    EXPECT_EQ(findings[1].where[47], "h.47.attn");
    EXPECT_EQ(findings[1].note, "heads of 80 for 64, which keeps the 1600 channels");
    EXPECT_EQ(findings[1].nice.extents, (std::vector<std::int64_t>{1, 20, 1024, 80}));
}

TEST(Lint, OfTheOtherPublishedModelsNamesTheVocabularyAlone) {
    for (const char* model : {"gpt2-124m", "gpt2-355m", "gpt2-774m"})
        for (const bool chunked : {false, true})
            EXPECT_EQ(sizes(lint(forward(nn::gpt2_config(model), 4, 1024, "bf16", chunked), {})),
                      Sizes{"vocabulary 50257 -> 50304"})
                << model;
    EXPECT_TRUE(lint(forward(nn::gpt2_config("gpt2-tiny"), 8, 256), {}).empty());
}

TEST(Lint, AChangedModelHasNoUglySizeLeft) {
    const nn::Gpt2Config ugly{
        .name = "ugly", .layers = 2, .heads = 7, .channels = 7 * 12, .vocabulary = 509, .context = 128};
    const std::vector<LintFinding> findings = lint(forward(ugly, 3, 50), {});
    EXPECT_EQ(sizes(findings), (Sizes{"vocabulary 509 -> 512", "channels 84 -> 64", "heads 7 -> 8",
                                      "head size 12 -> 8", "sequence 50 -> 64", "batch 3 -> 4"}));
    EXPECT_EQ(findings[2].note, "heads of 8 for 12, which makes 64 channels of 84");
    // 3 C of c_attn and 4 C of c_fc come with C, and are no findings of their own.
    EXPECT_EQ(findings[1].where.size(), 9u);
    nn::Gpt2Config nice = ugly;
    nice.vocabulary = 512;
    nice.heads = 8;
    nice.channels = 8 * 8;
    EXPECT_TRUE(lint(forward(nice, 4, 64), {}).empty());
}

TEST(Lint, ReadsAnyGraph) {
    const auto network = [](Graph& graph) {
        const Tensor x(graph, graph.add_input("x", {DType::f32, {100, 50}}));
        const Tensor targets(graph, graph.add_input("targets", {DType::i32, {100}}));
        const Tensor hidden = gelu(nn::linear(x, "first", {.outputs = 192}));
        return cross_entropy(nn::linear(hidden, "second", {.outputs = 10}), targets);
    };
    const Graph graph = build_evaluation(network).graph;
    Target target;
    target.extent_multiple = 16;
    const std::vector<LintFinding> findings = lint(graph, target);
    ASSERT_EQ(sizes(findings), (Sizes{"classes 10 -> 16", "channels 50 -> 64", "batch 100 -> 112"}));
    EXPECT_EQ(findings[0].where, Sizes{"second.weight"});
    EXPECT_EQ(findings[1].where, Sizes{"first.weight"});
    EXPECT_EQ(findings[2].note, "with 1 row each, 112 in all");
}

/// Images of 3 channels through three convolutions, of which the second has groups.
Graph convolutions(std::int64_t first, std::int64_t second, std::int64_t groups, DType dtype = DType::f32) {
    Graph graph;
    const auto filter = [&](const char* name, std::vector<std::int64_t> shape) {
        State state;
        state.name = name;
        state.type = {dtype, Shape(std::move(shape))};
        return Tensor(graph, graph.add_state(std::move(state)));
    };
    const Tensor x(graph, graph.add_input("images", {dtype, {2, 12, 10, 3}}));
    const Tensor a = conv2d(x, filter("a", {3, 3, 3, first}), {.padding = {1, 1, 1, 1}});
    const Tensor b =
        conv2d(a, filter("b", {3, 3, first / groups, first}), {.stride = {2, 2}, .groups = groups});
    graph.add_result("y", conv2d(b, filter("c", {1, 1, first, second})).value());
    return graph;
}

TEST(Lint, ReadsConvolutions) {
    const std::vector<LintFinding> findings = lint(convolutions(20, 44, 4), {});
    ASSERT_EQ(sizes(findings), (Sizes{"few filters 20 -> 32", "filters 44 -> 48", "groups 4 -> 1"}));
    EXPECT_EQ(findings[0].where, (Sizes{"a", "c"}));
    EXPECT_EQ(findings[0].nice.extents, (std::vector<std::int64_t>{2, 12, 10, 3, 3, 3, 32}))
        << "the pictures' channels stay";
    EXPECT_EQ(findings[1].where, Sizes{"c"});
    EXPECT_EQ(findings[1].nice.extents[6], 48);
    EXPECT_EQ(findings[2].where, Sizes{"b"});
    EXPECT_EQ(findings[2].note, "of 5 channels and 5 filters each");
    EXPECT_EQ(findings[2].nice.attributes.integer("groups"), 1);
    EXPECT_TRUE(lint(convolutions(32, 40, 1), {}).empty());
}

TEST(Lint, TheBatchOfANetworkForImagesIsNoFinding) {
    const auto network = [](Graph& graph) {
        const Tensor images(graph, graph.add_input("images", {DType::f32, {3, 32, 32, 3}}));
        const nn::ImageModel model = nn::image_model("ResNet20", {.classes = 128, .image = 32, .width = 32});
        return mean(model.logits(images, {}), {0, 1});
    };
    EXPECT_TRUE(lint(build_evaluation(network, {.policy = find_policy("fp32")}).graph, {}).empty());
}

TEST(Lint, MeasuresConvolutions) {
    const auto device = make_cpu_device({.threads = 1});
    for (const DType dtype : {DType::f32, DType::bf16})
        for (const LintFinding& finding : lint(convolutions(20, 44, 4, dtype), device->target())) {
            const LintMeasurement measured = measure_lint(*device, finding, 3);
            EXPECT_GT(measured.ugly_milliseconds, 0) << finding.rule->size;
            EXPECT_GT(measured.nice_milliseconds, 0) << finding.rule->size;
            EXPECT_GT(measured.gain, 0) << finding.rule->size;
        }
}

TEST(Lint, HeadsThatNoOtherNumberSharesKeepTheirSize) {
    nn::Gpt2Config config = nn::gpt2_config("gpt2-tiny");
    config.heads = 3;
    config.channels = 3 * 64;
    const std::vector<LintFinding> found = lint(forward(config, 1, 128), {});
    ASSERT_EQ(sizes(found), Sizes{"heads 3 -> 4"});
    EXPECT_EQ(found[0].note, "heads of 48 for 64, which keeps the 192 channels");
    config.heads = 13;
    config.channels = 13 * 8;
    const std::vector<LintFinding> other = lint(forward(config, 1, 128), {});
    ASSERT_EQ(sizes(other), (Sizes{"channels 104 -> 128", "heads 13 -> 16"}));
    EXPECT_EQ(other[1].note, "heads of 8 for 8, which makes 128 channels of 104");
}

TEST(Lint, HeadsAndTheirSizeMakeTheChannelsThatItProposes) {
    nn::Gpt2Config config = nn::gpt2_config("gpt2-tiny");
    config.heads = 4;
    config.channels = 100;
    const std::vector<LintFinding> found = lint(forward(config, 4, 64), {});
    ASSERT_EQ(sizes(found), (Sizes{"channels 100 -> 128", "head size 25 -> 32"}));
    EXPECT_EQ(found[1].note, "4 heads of it, which makes 128 channels of 100");
    config.heads = 20;
    EXPECT_EQ(sizes(lint(forward(config, 4, 64), {})), (Sizes{"channels 100 -> 128", "head size 5 -> 8"}));
    // 16 heads of 8 make them: 20 do not.
    EXPECT_EQ(lint(forward(config, 4, 64), {})[1].note, "16 heads of it, which makes 128 channels of 100");
}

TEST(Lint, ResultsOfTheModelAreNotToBeChanged) {
    const auto network = [](Graph& graph) {
        const Tensor x(graph, graph.add_input("x", {DType::f32, {64, 64}}));
        return mean(nn::linear(gelu(nn::linear(x, "first", {.outputs = 96})), "second", {.outputs = 1}),
                    {0, 1});
    };
    const std::vector<LintFinding> findings = lint(build_evaluation(network).graph, {});
    EXPECT_EQ(sizes(findings), (Sizes{"channels 96 -> 128", "batch 64 -> 128"}));
    EXPECT_EQ(findings[0].nice.extents, (std::vector<std::int64_t>{64, 128, 64}));
}

TEST(Lint, MeasuresContractionsAndAttentionWhateverTheGain) {
    const auto device = make_cpu_device({.threads = 1});
    const nn::Gpt2Config ugly{
        .name = "ugly", .layers = 1, .heads = 3, .channels = 36, .vocabulary = 61, .context = 64};
    for (const char* policy : {"fp32", "tf32", "bf16", "fp16"}) {
        const std::vector<LintFinding> findings = lint(forward(ugly, 1, 50, policy), device->target());
        EXPECT_EQ(findings.size(), 6u);
        for (const LintFinding& finding : findings) {
            const LintMeasurement measured = measure_lint(*device, finding, 3);
            EXPECT_GT(measured.ugly_milliseconds, 0);
            EXPECT_GT(measured.nice_milliseconds, 0);
            EXPECT_GT(measured.gain, 0);
            EXPECT_GE(measured.noise, 0.02);
        }
    }
    try {
        measure_lint(*device, lint(forward(ugly, 1, 50), {})[0], 0);
        FAIL() << "nothing was measured";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "repeats must be 1 or more, got 0");
    }
}

TEST(Lint, AGainWithinTheNoiseIsNone) {
    const LintMeasurement none = measurement_of({1.0, 1.2, 1.1}, {1.0, 1.19, 1.09}, 1);
    EXPECT_DOUBLE_EQ(none.gain, 1.2 / 1.19);
    EXPECT_EQ(none.noise, 0.02);
    EXPECT_FALSE(none.gains());
    // Ten hundredths count where turns agree, and do not where they differ by as much.
    EXPECT_TRUE(measurement_of({1.1, 1.1, 1.11}, {1, 1, 1}, 1).gains());
    const LintMeasurement noisy = measurement_of({1.1, 1.3, 0.9}, {1, 1, 1}, 1);
    EXPECT_NEAR(noisy.noise, 0.4, 1e-9);
    EXPECT_FALSE(noisy.gains());
    const LintMeasurement for_more = measurement_of({1, 1, 1}, {1, 1, 1}, 1.5);
    EXPECT_EQ(for_more.gain, 1.5);
    EXPECT_FALSE(measurement_of({1, 1, 1}, {2, 2, 2}, 1).gains());
}

LintReport example() {
    LintReport report{
        .model = {.name = "ugly", .batch = 1, .units_per_example = 64, .examples = "1 x 64 tokens"},
        .policy = "bf16",
        .target = {},
        .findings = {}};
    report.target.name = "a processor";
    report.target.isa = "avx2";
    return report;
}

TEST(Lint, TheTableSaysWhatWhereAndWhy) {
    LintReport report = example();
    EXPECT_EQ(lint_table(report),
              "ugly, 1 x 64 tokens a step, bf16, on a processor (avx2, 1 thread)\nno ugly size found\n");
    nn::Gpt2Config config = nn::gpt2_config("gpt2-tiny");
    config.heads = 3;
    config.channels = 192;
    report.findings = lint(forward(config, 1, 128), {});
    const std::string unmeasured = lint_table(report);
    for (const char* part :
         {"heads               3        4  h.0.attn and 3 more  not measured",
          "not a multiple of 4 (heads of 48 for 64, which keeps the 192 channels): attention is shared"})
        EXPECT_NE(unmeasured.find(part), std::string::npos) << part << "\n" << unmeasured;
    report.findings[0].measured = LintMeasurement{0.2, 0.0944, 1.5, 1.75, 0.02};
    EXPECT_NE(lint_table(report).find(
                  "0.200 ms -> 0.0944 ms for 1.50x the work, gain 1.750x for the same arithmetic\n"),
              std::string::npos);
    report.findings[0].measured = LintMeasurement{2.0, 1.0, 1.5, 1.008, 0.02};
    const std::string harmless = lint_table(report);
    for (const char* part :
         {"no ugly size found\n", "changing them gains nothing here: within the noise of measuring\n",
          "gain 1.008x for the same arithmetic, noise 0.020\n"})
        EXPECT_NE(harmless.find(part), std::string::npos) << part << "\n" << harmless;
    EXPECT_EQ(harmless.find("not a multiple"), std::string::npos) << harmless;
}

TEST(Lint, TheJsonHasEveryMember) {
    LintReport report = example();
    nn::Gpt2Config config = nn::gpt2_config("gpt2-tiny");
    config.vocabulary = 509;
    report.findings = lint(forward(config, 1, 128), {});
    auto json = nlohmann::json::parse(lint_json(report));
    EXPECT_EQ(json["command"], "lint");
    EXPECT_EQ(json["machine"]["isa"], "avx2");
    ASSERT_EQ(json["findings"].size(), 1u);
    EXPECT_TRUE(json["findings"][0]["measured"].is_null());
    report.findings[0].measured = LintMeasurement{3.0, 2.0, 1.0, 1.5, 0.25};
    json = nlohmann::json::parse(lint_json(report))["findings"][0];
    EXPECT_EQ(json["size"], "vocabulary");
    EXPECT_EQ(json["is"], 509);
    EXPECT_EQ(json["change_to"], 512);
    EXPECT_EQ(json["multiple"], 128);
    EXPECT_EQ(json["where"], nlohmann::json::array({"wte.weight"}));
    EXPECT_EQ(json["note"], "");
    EXPECT_EQ(json["why"], lint_rules()[0].why);
    EXPECT_EQ(
        json["measured"],
        nlohmann::json::parse(
            R"({"ugly_ms": 3.0, "nice_ms": 2.0, "work": 1.0, "gain": 1.5, "noise": 0.25, "gains": true, "by": "result"})"));
}

}  // namespace
}  // namespace mantissa
