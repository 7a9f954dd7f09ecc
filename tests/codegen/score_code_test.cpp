// Score functions as attention's kernels get them: forward and backward they hold the body's values and
// derivatives, and where no function can be made there is a reason.
#include "mantissa/codegen/score_code.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/op_case.h"

namespace mantissa::codegen {
namespace {

using Makes = ScoreCode::Makes;

constexpr std::int64_t B = 1, H = 2, T = 3, S = 4;
const Shape pairs{B, H, T, S};

/// A body with scores and one operand.
struct Body {
    Graph graph;
    Tensor scores, operand;

    explicit Body(Type type = {DType::f32, {H, 1, 1}})
        : scores(graph, graph.add_input("s", {DType::f32, pairs})),
          operand(graph, graph.add_input("x", type)) {}
    Tensor query() { return iota(graph, pairs, 2, DType::f32); }
    Tensor key() { return iota(graph, pairs, 3, DType::f32); }
    void result(const char* name, Tensor x) { graph.add_result(name, x.value()); }
};

/// 30 tanh(s / 30) + slope * (key - query), as the header has it.
Body capped_with_slope() {
    Body body;
    body.result("score", tanh(body.scores * (1.0 / 30)) * 30.0 + body.operand * (body.key() - body.query()));
    return body;
}

/// Every output of a code, on numbers for its inputs: x0 scores, x1 the operand by pairs, then a cotangent.
std::vector<std::vector<double>> outputs_of(const ScoreCode& code) {
    ReferenceFeed feed;
    for (const NodeId id : code.graph.inputs()) {
        const Node& node = code.graph.node(id);
        feed[node.attributes.word("name")] =
            testing::values_of({node.outputs[0]}, static_cast<std::uint32_t>(feed.size()));
    }
    const ReferenceRun run(code.graph, feed);
    std::vector<std::vector<double>> outputs;
    for (std::size_t i = 0; i < code.outputs.size(); ++i)
        outputs.push_back(run.result(fmt::format("y{}", i)).values);
    return outputs;
}
std::vector<double> given(std::uint32_t which) { return testing::values_of(testing::f32(pairs), which); }

void expect_values(const std::vector<double>& got, const std::function<double(std::size_t)>& expected) {
    ASSERT_EQ(got.size(), static_cast<std::size_t>(pairs.elements()));
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected(i), 1e-12) << "pair " << i;
}
double distance(std::size_t pair) {
    return static_cast<double>(pair % S) - static_cast<double>(pair / S % T);
}

TEST(ScoreCode, HoldsTheBodysScoresTheirSlopesAndTheGradientOfAnOperand) {
    const Body body = capped_with_slope();
    const Expected<ScoreForm> form =
        score_form({.body = body.graph, .operands = {AlongPairs{}}, .gradients = {true}});
    ASSERT_TRUE(form) << form.reason();
    const std::vector<double> s = given(0), slope = given(1), cotangent = given(2);
    const auto score = [&](std::size_t i) { return 30 * std::tanh(s[i] / 30) + slope[i] * distance(i); };
    const auto derivative = [&](std::size_t i) { return 1 - std::pow(std::tanh(s[i] / 30), 2); };

    ASSERT_EQ(form->forward.outputs.size(), 1u);
    expect_values(outputs_of(form->forward)[0], score);
    ASSERT_EQ(form->backward.outputs.size(), 2u);
    EXPECT_EQ(form->backward.outputs[1].makes, Makes::slopes);
    expect_values(outputs_of(form->backward)[0], score);
    expect_values(outputs_of(form->backward)[1], derivative);
    ASSERT_EQ(form->sums.outputs.size(), 1u);
    EXPECT_EQ(form->sums.outputs[0].makes, Makes::gradient);
    expect_values(outputs_of(form->sums)[0], [&](std::size_t i) { return cotangent[i] * distance(i); });
    EXPECT_FALSE(form->is_score || form->unit_slope || form->hides || form->multiplies);
}

TEST(ScoreCode, ADerivativeOfOneIsSaidAndNotMade) {
    Body body;
    body.result("score", body.scores + body.operand);
    const Expected<ScoreForm> form = score_form({.body = body.graph, .operands = {AlongPairs{}}});
    ASSERT_TRUE(form) << form.reason();
    EXPECT_TRUE(form->unit_slope);
    EXPECT_EQ(form->backward.outputs.size(), 1u);
    EXPECT_TRUE(form->sums.outputs.empty()) << "no gradient was asked for";
}

TEST(ScoreCode, MaskedScoresAreInfinitelySmallWhereNothingIsSeen) {
    Body body({DType::f32, {1}});
    body.result("score", body.scores * 2.0);
    body.result("visible", less_equal(body.key(), body.query()));
    const Expected<ScoreForm> form = score_form({.body = body.graph, .operands = {AlongPairs{}}});
    ASSERT_TRUE(form) << form.reason();
    ASSERT_TRUE(form->hides);
    const std::vector<double> s = given(0);
    for (const ScoreCode* const code : {&form->forward_masked, &form->forward_mask}) {
        const double factor = code == &form->forward_mask ? 1 : 2;  // the mask's scores are the scaled ones
        const std::vector<double> scores = outputs_of(*code)[0];
        for (std::size_t i = 0; i < scores.size(); ++i)
            EXPECT_EQ(scores[i], distance(i) <= 0 ? factor * s[i] : -INFINITY) << "pair " << i;
    }
}

TEST(ScoreCode, OperandsGoAlongLanesOrRowsAsTheyLie) {
    Body body({DType::bf16, {T, S}});
    body.result("score", body.scores + cast(body.operand, DType::f32));
    // Keys of a query are neighbours: lanes of keys read them, lanes of queries need a copy.
    const Expected<ScoreForm> form = score_form({.body = body.graph, .operands = {{.query = S, .key = 1}}});
    ASSERT_TRUE(form) << form.reason();
    const ScoreCode::Operand &forward = form->forward.operands[0], &backward = form->backward.operands[0];
    EXPECT_TRUE(form->forward.lanes_are_queries && !form->backward.lanes_are_queries);
    EXPECT_EQ(form->forward.lanes, forward_score_lanes);
    EXPECT_EQ(form->backward.lanes, backward_score_lanes);
    EXPECT_EQ(forward.lanes, 1);
    EXPECT_EQ(forward.dtype, DType::f32) << "a copy is of FP32";
    EXPECT_EQ(backward.lanes, 1);
    EXPECT_EQ(backward.dtype, DType::bf16) << "read where it lies";
    EXPECT_TRUE(forward.rows && backward.rows);
}

TEST(ScoreCode, EqualCodesHaveEqualTextsAndOthersOthers) {
    const Body body = capped_with_slope(), same = capped_with_slope();
    const auto text_of = [](const Body& of, bool rounded) {
        return text(score_form({.body = of.graph, .operands = {AlongPairs{}}, .rounded = rounded})->forward);
    };
    EXPECT_EQ(text_of(body, false), text_of(same, false));
    EXPECT_NE(text_of(body, false), text_of(body, true));
    const Expected<ScoreForm> form = score_form({.body = body.graph, .operands = {AlongPairs{}}});
    EXPECT_NE(text(form->forward), text(form->backward));
}

TEST(ScoreCode, SaysWhyNoFunctionIsMade) {
    const auto reason = [](Body body, const std::function<Tensor(Body&)>& score) {
        body.result("score", score(body));
        const Expected<ScoreForm> form = score_form({.body = body.graph, .operands = {AlongPairs{}}});
        return form ? "none" : form.reason();
    };
    EXPECT_EQ(reason(Body(), [](Body& b) { return b.scores - max(b.scores, {3}, KeepAxes::yes); }),
              "max goes over pairs");
    EXPECT_EQ(reason(Body({DType::f32, {5, 1}}),
                     [](Body& b) {
                         return b.scores + sum(b.operand, {0, 1});
                     }),
              "f32[5, 1] does not go along the axes of scores [1, 2, 3, 4]");
    EXPECT_EQ(reason(Body({DType::i64, {S}}), [](Body& b) { return b.scores + cast(b.operand, DType::f32); }),
              "i64[4] has no lanes");
    EXPECT_EQ(reason(Body({DType::f32, {T, S}}),
                     [](Body& b) {
                         return b.scores + reshape(reshape(b.operand, {S, T}), {T, S});
                     }),
              "[3, 4] to [4, 3] moves elements");
    EXPECT_EQ(reason(Body(), [](Body& b) { return cast(b.scores, DType::bf16); }),
              "scores are made in f32, not bf16[1, 2, 3, 4]");
    Body none;
    EXPECT_EQ(score_form({.body = none.graph, .operands = {AlongPairs{}}}).reason(),
              "the body gives no score");
}

}  // namespace
}  // namespace mantissa::codegen
