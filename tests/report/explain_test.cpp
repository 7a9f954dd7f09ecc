// The report of explain on a step, held against what the kernels are given.
#include "mantissa/report/explain.h"
#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/report/source_lines.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/html_page.h"
#include "tests/support/passes.h"

namespace mantissa {
namespace {

/// With the passes of PipelineOptions, or those of these names.
Explanation explained(const std::string& policy, const std::string& model = "gpt2-tiny",
                      const std::vector<std::string>& passes = {"simplify"}) {
    const auto device = make_cpu_device({.threads = 1});
    Gpt2Training options{.model = nn::gpt2_config(model), .batch = 2, .sequence = 16};
    options.policy = find_policy(policy);
    options.passes = passes;
    options.loss_scale = default_loss_scale(options.policy);
    const TrainingPlan plan = gpt2_plan(*device, options);
    Explanation explanation = explain(plan.step(), plan.pipeline());
    explanation.model.name = model;
    return explanation;
}

TEST(Explain, Gpt2InBf16MultipliesBf16AndAddsInFp32) {
    const Explanation explanation = explained("bf16", "gpt2-124m");
    int contractions = 0;
    for (const ExplainedNode& node : explanation.nodes) {
        if (node.op == "matmul") {
            EXPECT_EQ(arithmetic_of(node), "bf16*bf16+f32") << node.name;
            EXPECT_EQ(node.storage, "bf16");
            EXPECT_EQ(node.rule, "bf16 list: matmul");
            ++contractions;
        }
        for (const char* op : {"softmax", "layer_norm", "cross_entropy"})
            if (node.op == op || node.op == std::string(op) + "_grad") {
                EXPECT_EQ(node.storage, "f32") << node.name;
                EXPECT_EQ(node.multiply, "f32") << node.name;
                EXPECT_EQ(node.sum, "f32") << node.name;
            }
    }
    EXPECT_EQ(contractions, 3 * (12 * 6 + 1));
}

TEST(Explain, NamesTheKernelThatWasChosenForTheseFormats) {
    for (const char* policy : {"fp32", "bf16"}) {
        for (const ExplainedNode& node : explained(policy).nodes) {
            if (node.op != "matmul") continue;
            EXPECT_EQ(node.kernel.find("gemm " + arithmetic_of(node)), 0u)
                << node.kernel << " for " << policy;
        }
    }
}

TEST(Explain, EachParameterIsRoundedOnceAStep) {
    std::map<std::string, int> roundings;
    for (const ExplainedCast& cast : explained("bf16").casts)
        if (cast.pass == "forward" && cast.from == "f32" && cast.to == "bf16" && cast.bytes > 0)
            ++roundings[cast.name];
    // A linear layer rounds its weight, its bias and its input; the tied table and the input of the last
    // product.
    EXPECT_EQ(roundings["h.0.attn.c_attn"], 3);
    EXPECT_EQ(roundings["h.3.mlp.c_fc"], 3);
    EXPECT_EQ(roundings["h.3.mlp.c_proj"], 2);  // GELU's output is BF16 already
    EXPECT_EQ(roundings["lm_head"], 2);
}

TEST(Explain, WithDerivedStatesTheUpdateRoundsEachParameterOnce) {
    std::map<std::string, int> roundings;
    std::int64_t elements = 0;
    for (const ExplainedCast& cast : explained("bf16", "gpt2-tiny", {"simplify", "lay_out"}).casts) {
        if (cast.rule != "copy, bf16 list: matmul") continue;
        EXPECT_EQ(cast.pass, "update");
        ++roundings[cast.name];
        elements += cast.bytes / 2;
    }
    for (const auto& [name, count] : roundings) EXPECT_EQ(count, 1) << name;
    // The roundings: the weight and the bias of four linear layers in four blocks, and the tied table.
    EXPECT_EQ(roundings.size(), 4u * 8 + 1);
    const std::int64_t C = 128;
    EXPECT_EQ(elements, 512 * C + 4 * (12 * C * C + 9 * C));
}

TEST(Explain, JsonHasEveryNodeAndCast) {
    const Explanation explanation = explained("bf16");
    const auto json = nlohmann::json::parse(explain_json(explanation));
    EXPECT_EQ(json["command"], "explain");
    EXPECT_EQ(json["policy"], "bf16");
    EXPECT_EQ(json["nodes"].size(), explanation.nodes.size());
    EXPECT_EQ(json["casts"].size(), explanation.casts.size());
    for (const auto& node : json["nodes"]) {
        for (const char* member :
             {"op", "name", "pass", "storage", "multiply", "sum", "output", "rule", "bytes", "flops"})
            EXPECT_TRUE(node.contains(member)) << member;
        if (node["op"] == "transpose") {
            EXPECT_TRUE(node["multiply"].is_null());
        }
    }
}

TEST(Explain, ThePageHasWhatTheTableHas) {
    Explanation explanation = explained("bf16");
    explanation.model.name = "tiny <&>";
    const std::string page = explain_html(explanation, nullptr, "mantissa explain --model '<'");
    EXPECT_EQ(fault_of_page(page), "");
    for (const char* part :
         {"tiny &lt;&amp;&gt; at ", "policy bf16", "bf16*bf16+f32", "f32 -&gt; bf16", "bf16 list: matmul",
          "h.3.mlp.c_fc", "GFLOP", "mantissa explain --model &#39;&lt;&#39;"})
        EXPECT_NE(page.find(part), std::string::npos) << part << " is missing in\n" << page.substr(0, 8000);
    EXPECT_EQ(page.find("Roofline"), std::string::npos);
    std::size_t rules = 0;
    for (const char* means :
         {"the policy keeps such operations in FP32", "the policy gives such operations BF16",
          "the widest format of the operands", "the formats that the operands are stored in"}) {
        EXPECT_NE(page.find(means), std::string::npos) << means;
        ++rules;
    }
    // As many lines as nodes, kinds, rules, lines of the source and casts, and one heading in each of the six
    // tables.
    std::size_t lines = 0;
    for (std::size_t at = page.find("<tr>"); at != std::string::npos; at = page.find("<tr>", at + 1)) ++lines;
    EXPECT_EQ(lines, explanation.nodes.size() + kinds_of(explanation.nodes).size() +
                         kinds_of(explanation.casts).size() + totals_of(explanation).size() + 1 +
                         lines_of(explanation).rows.size() + rules + 6);
    const Roofline measured{.title = {},
                            .peaks = {.f32_fma = 1e11, .bf16_matrix = 0, .copy = 1e10},
                            .wall_seconds = 1,
                            .entries = {}};
    const std::string both = explain_html(explanation, &measured, "");
    EXPECT_EQ(fault_of_page(both), "");
    EXPECT_NE(both.find("<h2>Roofline</h2>"), std::string::npos);
    EXPECT_NE(both.find("bf16*bf16+f32"), std::string::npos);
}

TEST(Explain, SaysWhatPassesLeftAndWhy) {
    const auto device = make_cpu_device({.threads = 1});
    Gpt2Training options{.model = nn::gpt2_config("gpt2-tiny"), .batch = 2, .sequence = 16};
    const bool fuses = device->target().cannot_compile.empty();
    options.passes = testing::plain_and({{"pad", true}, {"fuse", fuses}});
    const TrainingPlan plan = gpt2_plan(*device, options);
    Explanation explanation = explain(plan.step(), plan.pipeline());
    explanation.refused = plan.refused();
    // Each kind of node that is no nest is refused by name; contractions, sources and the update never are.
    std::set<std::string> refused;
    for (const PassRefusal& refusal : plan.refused()) {
        EXPECT_FALSE(refusal.reason.empty()) << refusal.text();
        refused.insert(refusal.op);
    }
    for (const ExplainedNode& node : explanation.nodes) {
        if (!fuses || node.pass == "update" || node.op == "fused") continue;
        EXPECT_TRUE(node.op == "matmul" || refused.contains(node.op)) << node.op << " " << node.name;
    }
    const std::string table = explain_table(explanation, Detail::kinds);
    const std::string page = explain_html(explanation, nullptr, "");
    const auto json = nlohmann::json::parse(explain_json(explanation));
    EXPECT_EQ(fault_of_page(page), "");
    EXPECT_EQ(json["refused"].size(), plan.refused().size());
    int times = 0;
    for (const auto& [refusal, count] : kinds_of(explanation.refused)) {
        times += count;
        EXPECT_NE(table.find(refusal.reason), std::string::npos) << table;
    }
    EXPECT_EQ(times, static_cast<int>(plan.refused().size()));
    EXPECT_NE(page.find("f32[128] is no matrix"), std::string::npos);
    EXPECT_EQ(json["refused"][0]["pass"], "pad");
}

TEST(Explain, KindsAndTotalsAddUp) {
    const Explanation explanation = explained("bf16");
    std::int64_t flops = 0, bytes = 0, cast_bytes = 0;
    int nodes = 0;
    for (const ExplainedNode& node : explanation.nodes) {
        flops += node.flops;
        bytes += node.bytes;
    }
    for (const ExplainedCast& cast : explanation.casts) cast_bytes += cast.bytes;
    for (const auto& [node, count] : kinds_of(explanation.nodes)) {
        flops -= node.flops;
        nodes += count;
    }
    EXPECT_EQ(flops, 0);
    EXPECT_EQ(nodes, static_cast<int>(explanation.nodes.size()));
    for (const auto& [cast, count] : kinds_of(explanation.casts)) cast_bytes -= cast.bytes;
    EXPECT_EQ(cast_bytes, 0);
    const std::vector<ArithmeticTotal> totals = totals_of(explanation);
    EXPECT_EQ(totals.back().name, "casts");
    for (const ArithmeticTotal& total : totals) bytes -= total.name == "casts" ? 0 : total.bytes;
    EXPECT_EQ(bytes, 0);
}

TEST(Explain, Fp32HasNoCasts) {
    EXPECT_TRUE(explained("fp32").casts.empty());
    const std::string table = explain_table(explained("fp32"), Detail::kinds);
    EXPECT_NE(table.find("no casts"), std::string::npos) << table;
    EXPECT_NE(table.find("f32*f32+f32"), std::string::npos) << table;
}

TEST(Explain, TheDifferenceOfTwoPoliciesNamesContractionsOnly) {
    const std::string text = explain_difference(explained("fp32"), explained("bf16"));
    EXPECT_NE(text.find("f32 -> f32*f32+f32 -> f32"), std::string::npos) << text;
    EXPECT_NE(text.find("bf16 -> bf16*bf16+f32 -> bf16"), std::string::npos) << text;
    EXPECT_EQ(text.find("layer_norm "), std::string::npos) << text;
    const std::string none = explain_difference(explained("bf16"), explained("bf16"));
    EXPECT_NE(none.find("nothing"), std::string::npos) << none;
}

TEST(Explain, TheDifferenceOfTwoPoliciesPairsOperationsByNameAndNamesTheLossScale) {
    // FP16 has operations of the loss scale between those of BF16.
    const Explanation bf16 = explained("bf16"), fp16 = explained("fp16");
    ASSERT_NE(bf16.nodes.size(), fp16.nodes.size());
    const std::string text = explain_difference(bf16, fp16);
    EXPECT_NE(text.find("bf16 -> bf16*bf16+f32 -> bf16  f16 -> f16*f16+f32 -> f16"), std::string::npos)
        << text;
    EXPECT_NE(text.find("not there"), std::string::npos) << text;
    EXPECT_EQ(text.find("\nadamw"), std::string::npos) << text;  // the same in both
    std::int64_t alone = 0;
    std::istringstream lines(text.substr(text.find("operation ")));
    std::string line;
    std::getline(lines, line);
    const std::size_t counts = line.find("nodes"), first = line.find("bf16"), second = line.find("fp16");
    while (std::getline(lines, line)) {
        const bool one_side = line.find("not there") != std::string::npos;
        if (one_side) alone += std::stol(line.substr(counts));
        if (one_side || line.find(" -> ") == std::string::npos) continue;
        // Pairs are the same operation in FP16 where the other has BF16, and nothing else.
        std::string in_bf16 = line.substr(first, second - first);
        in_bf16.erase(in_bf16.find_last_not_of(' ') + 1);
        for (std::size_t at; (at = in_bf16.find("bf16")) != std::string::npos;) in_bf16.erase(at, 1);
        EXPECT_EQ(in_bf16, line.substr(second)) << line;
    }
    EXPECT_GE(alone, static_cast<std::int64_t>(fp16.nodes.size() - bf16.nodes.size()));
    // The other way round the same is said.
    EXPECT_NE(explain_difference(fp16, bf16).find("not there\n"), std::string::npos);
}

/// All operations, those in fused kernels, too.
std::vector<ExplainedNode> with_parts(const Explanation& explanation) {
    std::vector<ExplainedNode> all;
    for (const ExplainedNode& node : explanation.nodes) {
        all.push_back(node);
        all.insert(all.end(), node.parts.begin(), node.parts.end());
    }
    return all;
}

TEST(Explain, FusedKernelsAreListedWithTheirPartsAndTheirRules) {
    const auto device = make_cpu_device({.threads = 1});
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << device->target().cannot_compile;
    const Explanation explanation =
        explained("bf16", "gpt2-tiny", runnable_passes(device->target(), find_policy("bf16")));
    int fused = 0, epilogues = 0;
    for (const ExplainedNode& node : explanation.nodes) {
        fused += node.op == "fused";
        epilogues += node.op == "matmul" && !node.parts.empty();
        if (node.op == "fused") {
            EXPECT_FALSE(node.parts.empty()) << node.name;
        }
        if (node.op == "matmul") {
            EXPECT_EQ(arithmetic_of(node), "bf16*bf16+f32") << node.name;
        }
        for (const ExplainedNode& part : node.parts) {
            EXPECT_NE(part.op, "input");
            EXPECT_FALSE(part.output.empty()) << part.op;
            EXPECT_EQ(part.pass, node.pass);
        }
    }
    EXPECT_GT(fused, 0);
    EXPECT_EQ(epilogues > 0, device->target().epilogues_lose_at_16_bits.empty());
    // An operation that multiplies inside of itself says in what.
    for (const ExplainedNode& node : explanation.nodes)
        if (node.op == "attention" || node.op == "attention_grad" || node.op == "linear_cross_entropy") {
            EXPECT_TRUE(node.contracts) << node.kernel;
            EXPECT_NE(node.kernel.find(arithmetic_of(node)), std::string::npos) << node.kernel;
            EXPECT_EQ(node.sum, "f32");
        }
    // Each rule by which formats were chosen is there still, though its operation is in a kernel.
    std::set<std::string> rules;
    for (const ExplainedNode& node : with_parts(explanation)) rules.insert(node.rule);
    for (const char* rule : {"f32 list: layer_norm", "bf16 list: matmul"})
        EXPECT_TRUE(rules.contains(rule)) << rule;
    const std::string table = explain_table(explanation, Detail::kinds);
    EXPECT_NE(table.find("\n  in it "), std::string::npos) << table;
    EXPECT_NE(table.find("f32 list: layer_norm: "), std::string::npos) << table;
    EXPECT_NE(
        table.find("\npasses: match_attention, fuse_linear_cross_entropy, simplify, pad, lay_out, fuse\n"),
        std::string::npos)
        << table;
    const auto json = nlohmann::json::parse(explain_json(explanation));
    EXPECT_EQ(json["passes"].size(), 6u);
    std::size_t parts = 0;
    for (const auto& node : json["nodes"])
        if (node.contains("parts")) parts += node["parts"].size();
    EXPECT_EQ(parts + explanation.nodes.size(), with_parts(explanation).size());
    EXPECT_EQ(fault_of_page(explain_html(explanation, nullptr, "")), "");
}

TEST(Explain, SaysOfEachAttentionWhichItIs) {
    // A window of 64 in 1,024: of 32 x 8 blocks of 32 queries and 128 keys.
    Graph graph;
    const Type heads{DType::f32, {1, 2, 1024, 8}};
    const Tensor x(graph, graph.add_input("x", heads));
    Graph body;
    const Tensor s(body, body.add_input("s", {DType::f32, {1, 2, 1024, 1024}}));
    const Tensor i = iota(body, {1, 1, 1024, 1}, 2), j = iota(body, {1, 1, 1, 1024}, 3);
    body.add_result("score", (tanh(s) * 30.0).value());
    body.add_result("visible", less(i, j + 64.0).value());
    const Attributes causal{{"causal", true}, {"scale", 0.5}};
    const Tensor o = call(graph, "attention", std::vector{x, x, x}, causal)[0];
    call(graph, "attention", std::vector{o, x, x}, with_score(causal, {.body = Body(body), .operands = {}}));
    Explanation explanation;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id)
        if (graph.node(id).op->name == "attention")
            explanation.attentions.push_back(explain_attention(graph, graph.node(id)));
    ASSERT_EQ(explanation.attentions.size(), 2u);
    const auto blocks = [](auto seen) {
        std::int64_t count = 0;
        for (std::int64_t row = 0; row < 1024; row += 32)
            for (std::int64_t column = 0; column < 1024; column += 128)
                count += seen(row, row + 31, column, column + 127);
        return 2 * count;
    };
    const ExplainedAttention &plain = explanation.attentions[0], &window = explanation.attentions[1];
    EXPECT_EQ(plain.form, "the scaled product, causal");
    EXPECT_EQ(plain.formula, "s where j <= i");
    EXPECT_EQ(plain.all_blocks, 2 * 32 * 8);
    EXPECT_EQ(plain.blocks, blocks([](auto, auto last, auto first_key, auto) { return first_key <= last; }));
    EXPECT_EQ(window.form, "a function of the score, masked by positions");
    EXPECT_EQ(window.formula, "30 * tanh(s) where j <= i and i < j + 64");
    EXPECT_EQ(window.blocks, blocks([](auto first, auto last, auto first_key, auto last_key) {
                  return first_key <= last && first < last_key + 64;
              }));
    const std::string table = explain_table(explanation, Detail::kinds);
    EXPECT_NE(
        table.find("30 * tanh(s) where j <= i and i < j + 64; blocks of 32 x 128: nothing sees the others"),
        std::string::npos)
        << table;
    EXPECT_EQ(nlohmann::json::parse(explain_json(explanation))["attentions"][1]["blocks"]["computed"],
              window.blocks);
    EXPECT_EQ(fault_of_page(explain_html(explanation, nullptr, "")), "");
}

TEST(Explain, LayersThatRunTheSameKernelAreOneLine) {
    const auto device = make_cpu_device({.threads = 1});
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << device->target().cannot_compile;
    const Explanation explanation =
        explained("bf16", "gpt2-tiny", runnable_passes(device->target(), find_policy("bf16")));
    EXPECT_LT(kinds_of(explanation.nodes).size(), explanation.nodes.size() / 2);
    // Kernels with other parts are no line of theirs.
    std::set<std::string> listed;
    int count = 0;
    for (const auto& [node, alike] : kinds_of(explanation.nodes)) {
        count += alike;
        if (node.op != "fused") continue;
        std::string parts = node.pass + node.storage + node.output;
        for (const ExplainedNode& part : node.parts)
            parts += " " + part.op + part.storage + part.output + part.rule;
        EXPECT_TRUE(listed.insert(parts).second) << parts;
    }
    EXPECT_GT(listed.size(), 1u);
    EXPECT_EQ(count, static_cast<int>(explanation.nodes.size()));
}

}  // namespace
}  // namespace mantissa
