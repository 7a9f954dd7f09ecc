// Inputs without a batch axis: one value for all examples of a step, given whole on every path. The oracle is
// the same network with that value recorded as a literal.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"
#include "mantissa/nn/losses.h"
#include "mantissa/report/lint.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/predictor.h"
#include "mantissa/train/trainer.h"
#include "tests/support/error_of.h"
#include "tests/support/rank_threads.h"

namespace mantissa {
namespace {

using In = std::span<const Tensor>;

constexpr std::int64_t nodes = 5, node_features = 3;

std::vector<float> sines_from(std::int64_t count, float step) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(step * static_cast<float>(i + 1));
    return values;
}

const std::vector<float> edges = sines_from(nodes * nodes, 0.7f), temperature = {1.7f};

/// One graph [nodes, nodes] under features [B, nodes, features] of each example: linear(edges x), twice.
Tensor graph_network(Tensor x, Tensor of_edges, Tensor scale) {
    const Tensor all = broadcast_to(of_edges, {x.dim(0), nodes, nodes});
    const Tensor hidden =
        tanh(nn::linear(matmul(all, x), "first", {.outputs = 8, .standard_deviation = 0.5}));
    return nn::linear(mean(matmul(all, hidden), {1}), "second", {.outputs = 2, .standard_deviation = 0.5}) *
           scale;
}

/// The edges come between the inputs of each example, the scale behind them.
nn::Model with_inputs() {
    return {.name = "graph",
            .inputs = {{"edges", DType::f32, {nodes, nodes}, nn::BatchAxis::none},
                       {"x", DType::f32, {nodes, node_features}},
                       {"scale", DType::f32, {}, nn::BatchAxis::none},
                       {"y", DType::f32, {2}}},
            .loss = [](In in) { return nn::mse_loss(graph_network(in[1], in[0], in[2]), in[3]); },
            .output = {.inputs = 3, .trace = [](In in) { return graph_network(in[1], in[0], in[2]); }}};
}

nn::Model with_literals() {
    const auto of = [](Tensor x) {
        const auto recorded = [&](const std::vector<float>& values, Shape shape) {
            return literal(x.graph(), {values.begin(), values.end()}, DType::f32, std::move(shape));
        };
        return graph_network(x, recorded(edges, {nodes, nodes}), recorded(temperature, {}));
    };
    return {.name = "graph",
            .inputs = {{"x", DType::f32, {nodes, node_features}}, {"y", DType::f32, {2}}},
            .loss = [of](Tensor x, Tensor y) { return nn::mse_loss(of(x), y); },
            .output = {.trace = of}};
}

std::map<std::string, std::vector<float>> parameters(const Trainer& trainer) {
    std::map<std::string, std::vector<float>> all;
    for (const State& state : trainer.state().states())
        if (is_weight(state)) all[state.name] = trainer.state().read_f32(state.name);
    return all;
}

struct NodeRows {
    std::vector<float> x, y;
    explicit NodeRows(std::int64_t count)
        : x(sines_from(count * nodes * node_features, 0.31f)), y(sines_from(count * 2, 0.53f)) {}
};

TEST(WholeInputs, StepsEvaluationsAndPredictionsAreThoseOfTheNumbersAsLiterals) {
    const auto device = make_cpu_device({.threads = 2});
    for (const char* policy : {"fp32", "bf16"})
        for (const std::int64_t accumulate : {1, 3}) {
            const TrainerOptions options{.batch = 4, .accumulate = accumulate, .policy = policy};
            Trainer given(*device, with_inputs(), options), recorded(*device, with_literals(), options);
            const NodeRows rows(4 * accumulate);
            for (int step = 0; step < 5; ++step)
                EXPECT_NEAR(given.step({edges, rows.x, temperature, rows.y}, 0.01).loss,
                            recorded.step({rows.x, rows.y}, 0.01).loss, 1e-5)
                    << policy << ", " << accumulate << " micro-batches, step " << step;
            const auto expected = parameters(recorded);
            for (const auto& [name, values] : parameters(given))
                for (std::size_t i = 0; i < values.size(); ++i)
                    ASSERT_NEAR(values[i], expected.at(name)[i], 2e-3) << name << " under " << policy;
            // Whole batches of four, rows beside padding, and one row alone.
            Predictor of_given(given), of_recorded(recorded);
            for (const std::int64_t count : {1, 3, 4, 13}) {
                const NodeRows some(count);
                EXPECT_NEAR(given.evaluate({edges, some.x, temperature, some.y}).loss,
                            recorded.evaluate({some.x, some.y}).loss, 2e-3)
                    << count << " rows";
                const std::vector<float> all = of_given.predict({edges, some.x, temperature}),
                                         same = of_recorded.predict({some.x});
                ASSERT_EQ(all.size(), same.size());
                for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], same[i], 2e-2) << count;
            }
        }
}

TEST(WholeInputs, OfASourceAreInEveryBatchAsTheyAre) {
    const nn::Model model = with_inputs();
    const NodeRows rows(7);
    const Examples examples(model, {edges, rows.x, temperature, rows.y},
                            {.batch = 2, .accumulate = 2, .order = BatchOrder::random});
    EXPECT_EQ(examples.count(), 7U);
    BatchBuffer buffer(model, 2, 2);
    for (std::uint64_t step = 0; step < 3; ++step) {
        const Batch batch = buffer.fill(examples, step);
        require_fit(batch, model, 4);
        const auto is = [&](std::size_t input, const std::vector<float>& values) {
            return std::ranges::equal(batch.values()[input].bytes, std::as_bytes(std::span(values)));
        };
        EXPECT_TRUE(is(0, edges) && is(2, temperature)) << "step " << step;
    }
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer(*device, model, {.batch = 2, .accumulate = 2});
    const float first = trainer.step(examples, 0.02).loss;
    for (int step = 0; step < 60; ++step) trainer.step(examples, 0.02);
    EXPECT_LT(trainer.evaluate({edges, rows.x, temperature, rows.y}).loss, first / 2);
}

TEST(WholeInputs, EveryRankIsGivenThemWhole) {
    const auto device = make_cpu_device({.threads = 1});
    const NodeRows rows(4);
    Trainer alone(*device, with_inputs(), {.batch = 2, .accumulate = 2});
    const float expected = alone.step({edges, rows.x, temperature, rows.y}, 0.01).loss;
    const auto after = parameters(alone);
    testing::run_good_ranks(2, [&](Ranks& ranks) {
        const auto own = make_cpu_device({.threads = 1, .ranks = &ranks});
        Trainer trainer(*own, with_inputs(), {.batch = 2, .ranks = &ranks});
        const auto half = [&](const std::vector<float>& values) {
            return std::span(values).subspan(static_cast<std::size_t>(ranks.rank()) * values.size() / 2,
                                             values.size() / 2);
        };
        EXPECT_EQ(trainer.step({edges, half(rows.x), temperature, half(rows.y)}, 0.01).loss, expected);
        EXPECT_EQ(parameters(trainer), after);
    });
}

TEST(WholeInputs, OtherShapesAreNamed) {
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer(*device, with_inputs(), {.batch = 4});
    Predictor predictor(trainer);
    const NodeRows rows(4);
    std::vector<float> four;
    for (int i = 0; i < 4; ++i) four.insert(four.end(), edges.begin(), edges.end());
    const std::string text =
        "model graph: input 'edges' has no batch axis, it is one f32[5, 5], 25 numbers, "
        "got 100";
    EXPECT_EQ(testing::error_of<UserError>([&] {
                  trainer.step({four, rows.x, temperature, rows.y}, 0.1);
              }),
              text);
    EXPECT_EQ(testing::error_of<UserError>([&] {
                  trainer.evaluate({four, rows.x, temperature, rows.y});
              }),
              text);
    EXPECT_EQ(testing::error_of<UserError>([&] { predictor.predict({four, rows.x, temperature}); }), text);
    EXPECT_EQ(testing::error_of<UserError>([&] {
                  trainer.step({edges, rows.x, std::vector<float>(4), rows.y}, 0.1);
              }),
              "model graph: input 'scale' has no batch axis, it is one f32[], 1 number, got 4");
}

/// The batch is that of the examples, not an extent of the input in front.
TEST(WholeInputs, LintSpeaksOfTheBatch) {
    const auto device = make_cpu_device({.threads = 1});
    const LintReport report =
        run_lint(*device, with_inputs(), {.policy = find_policy("fp32"), .batch = 3, .repeats = 0});
    const auto of_batch = std::ranges::find(report.findings, "batch",
                                            [](const LintFinding& finding) { return finding.rule->size; });
    ASSERT_NE(of_batch, report.findings.end());
    EXPECT_EQ(of_batch->extent, 3);
}

}  // namespace
}  // namespace mantissa
