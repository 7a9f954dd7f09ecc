#include "mantissa/graph/graph.h"
#include "mantissa/graph/call.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "mantissa/base/error.h"
#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

using testing::error_of;

Tensor input(Graph& graph, const char* name, Shape shape, DType dtype = DType::f32) {
    return {graph, graph.add_input(name, {dtype, std::move(shape)})};
}

TEST(Graph, PrintsAsAPersonWouldWriteIt) {
    Graph graph;
    const Tensor x = input(graph, "x", {4, 8});
    const OriginScope scope(graph, "h.0");
    const Tensor w(graph, graph.add_state({.name = "w", .type = {DType::f32, {3, 8}}, .initializer = {}}));
    const Tensor y = matmul(x, w, {.transpose_b = true}) * 0.5;
    graph.add_result("y", y.value());
    EXPECT_EQ(print(graph),
              "%0: f32[4, 8] = input() {dtype=f32, name=x, shape=[4, 8]}\n"
              "%1: f32[3, 8] = state() {dtype=f32, name=w, shape=[3, 8]}  # h.0\n"
              "%2: f32[4, 3] = matmul(%x, %w) {transpose_a=false, transpose_b=true}  # h.0\n"
              "%4: f32[4, 3] = mul(%2, 0.5)  # h.0\n"
              "result y = %4\n");
}

std::int64_t bytes_of(const Graph& graph, Tensor y) {
    const Node& node = graph.node(y.value().node);
    return node.op->cost(graph.input_types(node), node.outputs, node.attributes).bytes;
}

/// A table of 50,257 rows is not read for the row of one token, nor what is kept for one position that is
/// added.
TEST(Graph, WhatTouchesRowsCostsTheRowsThatItTouches) {
    Graph graph;
    const Tensor table = input(graph, "table", {1000, 8}), ids = input(graph, "ids", {5}, DType::i32);
    EXPECT_EQ(bytes_of(graph, embedding(table, ids)), 5 * 4 + 2 * 5 * 8 * 4);
    const Tensor dy = input(graph, "dy", {5, 8});
    const auto gradient = [&](std::int64_t rows, std::vector<Tensor> inputs) {
        return call(graph, "embedding_grad", inputs, {{"rows", rows}})[0];
    };
    EXPECT_EQ(bytes_of(graph, gradient(1000, {dy, ids})), 3 * 5 * 8 * 4 + 5 * 4 + 1000 * 8 * 4);
    EXPECT_EQ(bytes_of(graph, gradient(1000, {dy, ids, table})), 3 * 5 * 8 * 4 + 5 * 4);
    EXPECT_EQ(bytes_of(graph, gradient(2, {dy, ids})), 5 * 8 * 4 + 5 * 4 + 3 * 2 * 8 * 4);
    const Tensor kept = input(graph, "kept", {4, 100, 2}), part = input(graph, "part", {4, 1, 2}),
                 start = input(graph, "start", {}, DType::i32);
    EXPECT_EQ(bytes_of(graph, write_slice(kept, part, start, 1)), 2 * 4 * 2 * 4 + 4);
    EXPECT_EQ(bytes_of(graph, slice(kept, 1, 3, 5)), 2 * 4 * 2 * 2 * 4);
}

/// Where output `output` of a node lies in its operand's memory, by its row; -1 where it has its own.
std::int64_t place_in_operand(const Graph& graph, Tensor y, int output = 0) {
    const Node& node = graph.node(y.value().node);
    return node.op->view ? node.op->view(graph, node, output).value_or(-1) : -1;
}

TEST(Graph, RowsSayWhichOutputsAreViewsAndWhereTheyLie) {
    Graph graph;
    const Tensor x = input(graph, "x", {4, 6}), flat = input(graph, "flat", {1, 6});
    EXPECT_EQ(place_in_operand(graph, reshape(x, {24})), 0);
    EXPECT_EQ(place_in_operand(graph, stop_gradient(x)), 0);
    EXPECT_EQ(place_in_operand(graph, slice(x, 0, 1, 3)), 6 * 4);
    EXPECT_EQ(place_in_operand(graph, slice(x, 1, 1, 3)), -1) << "rows of it are apart";
    EXPECT_EQ(place_in_operand(graph, slice(flat, 1, 2, 3)), 2 * 4) << "nothing lies outside of its axis";
    EXPECT_EQ(place_in_operand(graph, split(x, 0, 2)[1], 1), 12 * 4);
    EXPECT_EQ(place_in_operand(graph, split(x, 1, 2)[1], 1), -1);
    EXPECT_EQ(place_in_operand(graph, transpose(x, {1, 0})), -1);
    EXPECT_EQ(place_in_operand(graph, x + x), -1);
    const auto state = [&](const char* name, std::int64_t zero_rows) {
        return Tensor(
            graph,
            graph.add_state(
                {.name = name, .type = {DType::f32, {3, 8}}, .initializer = {}, .zero_rows = zero_rows}));
    };
    const Tensor padded = state("padded", 5);
    EXPECT_EQ(place_in_operand(graph, pad(padded, 0, 0, 5)), 0);
    EXPECT_EQ(place_in_operand(graph, pad(padded, 0, 0, 6)), -1) << "it keeps five rows of zeros";
    EXPECT_EQ(place_in_operand(graph, pad(padded, 1, 0, 5)), -1);
    EXPECT_EQ(place_in_operand(graph, pad(state("plain", 0), 0, 0, 1)), -1);
}

TEST(Graph, ErrorsNameTheOperationWhereItWasTracedAndBothShapes) {
    Graph graph;
    const Tensor a = input(graph, "a", {4, 8}), b = input(graph, "b", {9, 3});
    const OriginScope scope(graph, "h.3");
    const std::string text = error_of([&] { matmul(a, b); });
    EXPECT_NE(text.find("matmul (traced in h.3 at graph_test.cpp:"), std::string::npos) << text;
    EXPECT_NE(text.find("inner extents differ: 8 of f32[4, 8] and 9 of f32[9, 3]"), std::string::npos)
        << text;
}

TEST(Graph, EachTypeRuleRefusesWhatDoesNotFit) {
    Graph graph;
    const Tensor x = input(graph, "x", {4, 6}), ids = input(graph, "ids", {4}, DType::i32);
    EXPECT_EQ(error_of([&] { reshape(x, {5, 5}); }).substr(0, 8), "reshape ");
    EXPECT_NE(error_of([&] { x + input(graph, "y", {5}); }).find("shapes [4, 6] and [5] do not fit"),
              std::string::npos);
    EXPECT_NE(error_of([&] { transpose(x, {0, 0}); }).find("must name each axis"), std::string::npos);
    EXPECT_NE(error_of([&] { slice(x, 1, 2, 7); }).find("[2, 7) is outside axis 1"), std::string::npos);
    EXPECT_NE(error_of([&] { split(x, 1, 4); }).find("cannot be cut into 4"), std::string::npos);
    const Attributes momentum{
        {"momentum", 0.9}, {"dampening", 0.0}, {"nesterov", false}, {"weight_decay", 0.0}};
    EXPECT_NE(error_of([&] {
                  call(graph, "sgd", std::vector(5, x), momentum);
              }).find("with momentum 0.9 it takes 7 operands, and a copy if there is one, got 5"),
              std::string::npos);
    const Tensor start = input(graph, "start", {}, DType::i32);
    EXPECT_NE(error_of([&] {
                  write_slice(x, input(graph, "part", {5, 6}), start, 0);
              }).find("f32[5, 6] is no part of f32[4, 6]"),
              std::string::npos);
    EXPECT_NE(error_of([&] {
                  write_slice(x, input(graph, "other", {2, 5}), start, 0);
              }).find("differ in more than axis 0"),
              std::string::npos);
    EXPECT_NE(error_of([&] { exp(ids); }).find("must be floating-point"), std::string::npos);
    EXPECT_NE(error_of([&] { embedding(x, x); }).find("must be i32"), std::string::npos);
    EXPECT_NE(error_of([&] { cross_entropy(x, input(graph, "t", {5}, DType::i32)); }).find("shape [4]"),
              std::string::npos);
    EXPECT_NE(error_of([&] {
                  graph.add_input("n", {DType::f32, {-3}});
              }).find("negative"),
              std::string::npos);
    EXPECT_NE(error_of([&] {
                  Shape({1ll << 40, 1ll << 40}).elements();
              }).find("more elements"),
              std::string::npos);
}

TEST(Graph, AttentionRefusesWhatDoesNotFit) {
    Graph graph;
    const Tensor q = input(graph, "q", {2, 3, 5, 4}), k = input(graph, "k", {2, 3, 3, 4});
    EXPECT_NE(error_of([&] {
                  attention(q, input(graph, "k3", {2, 3, 4}), k);
              }).find("must be [..., H, T, D] with equal leading axes"),
              std::string::npos);
    EXPECT_NE(error_of([&] { attention(q, k, q); }).find("operand 2 must have shape [2, 3, 3, 4]"),
              std::string::npos);
    EXPECT_NE(error_of([&] {
                  call1("attention", {q, k, k}, {{"causal", true}, {"scale", 1.0}});
              }).find("5 queries and 3 keys"),
              std::string::npos);
    EXPECT_NE(error_of([&] { attention(q, cast(k, DType::bf16), k); }).find("must have one type"),
              std::string::npos);
    EXPECT_NE(error_of([&] {
                  const Tensor none = input(graph, "none", {2, 3, 0, 4});
                  attention(q, none, none);
              }).find("there must be a key"),
              std::string::npos);
}

/// Attention of [2, 3, 5, 4] to seven keys, under a score whose inputs have these types.
std::string error_of_score(const std::vector<Type>& inputs, const std::string& words,
                           const std::vector<Type>& operands,
                           const std::function<void(Graph&, const std::vector<Tensor>&)>& build) {
    Graph graph;
    std::vector<Tensor> tensors{input(graph, "q", {2, 3, 5, 4}), input(graph, "k", {2, 3, 7, 4}),
                                input(graph, "v", {2, 3, 7, 4})};
    for (std::size_t i = 0; i < operands.size(); ++i)
        tensors.emplace_back(graph, graph.add_input(fmt::format("x{}", i), operands[i]));
    Graph body;
    std::vector<Tensor> given;
    for (std::size_t i = 0; i < inputs.size(); ++i)
        given.emplace_back(body, body.add_input(fmt::format("y{}", i), inputs[i]));
    build(body, given);
    Attributes attributes{{"causal", false}, {"scale", 1.0}, {"score", Body(body)}};
    if (!words.empty()) attributes = attributes.with("score_operands", words);
    return error_of([&] { call(graph, "attention", tensors, attributes); });
}

TEST(Graph, AScoreOfAttentionThatDoesNotFitIsRefused) {
    const Type s{DType::f32, {2, 3, 5, 7}}, heads{DType::f32, {3}}, beside{DType::f32, {1, 3, 1, 1}};
    using Given = const std::vector<Tensor>&;
    const auto same = [](Graph& body, Given x) { body.add_result("score", x[0].value()); };
    const auto expect_error = [&](const std::string& got, const std::string& wanted) {
        EXPECT_NE(got.find(wanted), std::string::npos) << got;
    };
    EXPECT_EQ(error_of_score({s}, "", {}, same), "no error");
    EXPECT_EQ(error_of_score({s, beside}, "h", {heads}, same), "no error");
    for (const char* words : {"x", "hh", "rt", "h,", ",h", "1h"})
        expect_error(error_of_score({s, beside}, words, {heads}, same), "are no axes of operands of a score");
    expect_error(error_of_score({s, beside}, "h", {}, same), "expected 4 operands, got 3");
    expect_error(error_of_score({{DType::f32, {2, 3, 5, 6}}}, "", {}, same),
                 "input 0 of the score must be f32[2, 3, 5, 7], got f32[2, 3, 5, 6]");
    expect_error(error_of_score({s, beside}, "b", {{DType::f32, {2}}}, same),
                 "input 1 of the score must be f32[2, 1, 1, 1], got f32[1, 3, 1, 1]");
    expect_error(error_of_score({s, beside}, "h", {{DType::f32, {1, 3}}}, same),
                 "operand 0 of the score must have shape [3], got f32[1, 3]");
    expect_error(
        error_of_score({s}, "", {},
                       [](Graph& body, Given x) { body.add_result("score", softmax(x[0]).value()); }),
        "the score is made of element-wise primitives, got 'softmax'");
    expect_error(
        error_of_score({s}, "", {},
                       [](Graph& body, Given x) { body.add_result("visible", less(x[0], x[0]).value()); }),
        "the first result of a score is 'score'");
    expect_error(error_of_score({s}, "", {},
                                [](Graph& body, Given x) {
                                    body.add_result("score", x[0].value());
                                    body.add_result("visible", x[0].value());
                                }),
                 "what is visible must be boolean and stretch to [2, 3, 5, 7], got f32[2, 3, 5, 7]");
    expect_error(error_of_score({s}, "", {},
                                [](Graph& body, Given x) {
                                    body.add_result("score", x[0].value());
                                    body.add_result("weights", x[0].value());
                                }),
                 "a score gives 'score', 'visible' and 'multiplier', got 'weights'");
}

TEST(Graph, ALayoutOfAttentionThatIsNoneIsRefused) {
    Graph graph;
    const Tensor x = input(graph, "x", {2, 5, 3, 4, 6}), o = input(graph, "o", {2, 5, 4, 6});
    const auto error = [&](const std::string& operands, const std::string& result,
                           const std::vector<Tensor>& tensors) {
        return error_of([&] {
            call(graph, "attention", tensors,
                 {{"causal", false}, {"operands", operands}, {"result", result}, {"scale", 1.0}});
        });
    };
    for (const char* words : {"qkv:btphh", "qkv:btpdh", "qkv:bthd", "qk:btphd", "q:bthd,k:bthd,k:bthd",
                              "q:bthd,k:bthd,v:btphd", "qkv", "", "qkv:btphd,", "qqv:btphd"})
        EXPECT_NE(error(words, "bthd", {x}).find(std::string("'") + words + "' is no layout of attention"),
                  std::string::npos)
            << words;
    EXPECT_NE(error("qkv:btphd", "btphd", {x}).find("'btphd' is no layout of attention"), std::string::npos);
    EXPECT_NE(error("qkv:btphd", "bthd", {x, o}).find("expected 1 operands, got 2"), std::string::npos);
    EXPECT_NE(error("qkv:bthpd", "bthd", {x}).find("operand 0 must have shape [2, 5, 3, 3, 6]"),
              std::string::npos);
    EXPECT_NE(error("qkv:btphd", "bthd", {o}).find("queries and keys and values must be [B, T, 3, H, D]"),
              std::string::npos);
    EXPECT_EQ(error("qkv:btphd", "bthd", {x}), "no error");
}

TEST(Graph, LinearCrossEntropyRefusesWhatDoesNotFit) {
    Graph graph;
    const Tensor x = input(graph, "x", {6, 4}), w = input(graph, "w", {9, 4});
    const Tensor targets(graph, graph.add_input("targets", {DType::i32, {6}}));
    const auto error = [&](const std::vector<Tensor>& operands) {
        return error_of([&] { call(graph, "linear_cross_entropy", operands); });
    };
    EXPECT_EQ(call(graph, "linear_cross_entropy", std::vector{x, w, targets}).size(), 1u);
    EXPECT_NE(error({x, transpose(w, {1, 0}), targets}).find("w must be [V, 4], got f32[4, 9]"),
              std::string::npos);
    EXPECT_NE(error({x, cast(w, DType::bf16), targets}).find("must have one type"), std::string::npos);
    EXPECT_NE(error({reshape(x, {2, 3, 4}), w, targets}).find("x must be [N, C]"), std::string::npos);
    EXPECT_NE(error({x, w, slice(targets, 0, 0, 5)}).find("operand 2 must have shape [6]"),
              std::string::npos);
    EXPECT_NE(error({x, w, targets, w}).find("the seed must be f32[], got f32[9, 4]"), std::string::npos);
}

TEST(Graph, ALossOfPaddedLogitsRefusesClassesThatDoNotFit) {
    Graph graph;
    const Tensor x = input(graph, "x", {6, 4}), w = input(graph, "w", {9, 4});
    const Tensor targets(graph, graph.add_input("targets", {DType::i32, {6}}));
    const Tensor logits = matmul(x, w, {.transpose_b = true}), lse = input(graph, "lse", {6});
    const std::pair<std::string, std::vector<Tensor>> losses[] = {
        {"cross_entropy", {logits, targets}},
        {"cross_entropy_grad", {constant(graph, 1.0), logits, targets, lse}},
        {"linear_cross_entropy", {x, w, targets}}};
    for (const std::int64_t classes : {0, 10})
        for (const auto& [op, operands] : losses)
            EXPECT_EQ(error_of([&, &name = op, &given = operands] {
                          call(graph, name, given, {{"classes", classes}});
                      }),
                      op + ": there are 9 logits, not " + std::to_string(classes));
    for (const auto& [op, operands] : losses)
        EXPECT_FALSE(call(graph, op, operands, {{"classes", std::int64_t{9}}}).empty());
}

TEST(Graph, RowsOfZerosBehindAStateAreNoPartOfItsType) {
    Graph graph;
    const Type type{DType::f32, {5, 3}};
    const Tensor w(graph, graph.add_state({.name = "w", .type = type, .initializer = {}, .zero_rows = 3}));
    EXPECT_EQ(w.type(), type);
    EXPECT_EQ(graph.states()[0].type.bytes(), 60);
    EXPECT_EQ(graph.states()[0].stored_bytes(), 96);
    graph.add_update(0, (w + w).value());
    EXPECT_THROW(graph.add_state({.name = "s", .type = {DType::f32, {}}, .initializer = {}, .zero_rows = 1}),
                 InternalError);
}

TEST(Graph, StatesHaveOneNameAndOneUpdate) {
    Graph graph;
    const State state{.name = "w", .type = {DType::f32, {2}}, .initializer = {}};
    const Tensor w(graph, graph.add_state(state));
    EXPECT_NE(error_of([&] { graph.add_state(state); }).find("two states named 'w'"), std::string::npos);
    graph.add_update(0, (w + w).value());
    EXPECT_EQ(error_of([&] { graph.add_update(0, (w * w).value()); }), "update: state 'w' is updated twice");
    EXPECT_EQ(error_of([&] { graph.add_update(0, sum(w, {0}).value()); }),
              "update: state 'w' is f32[2], its update is f32[]");
}

TEST(Graph, NodesAndStatesAreThoseThatThereAre) {
    Graph graph;
    graph.add_state({.name = "w", .type = {DType::f32, {2}}, .initializer = {}});
    EXPECT_EQ(graph.end(), 1);
    EXPECT_EQ(graph.node(0).op->name, "state");
    EXPECT_EQ(graph.state(0).name, "w");
    for (const int none : {-1, 1}) {
        EXPECT_NE(error_of<InternalError>([&] { graph.node(none); }).find("a node of this id"),
                  std::string::npos);
        EXPECT_NE(error_of<InternalError>([&] { graph.state(none); }).find("a state of this index"),
                  std::string::npos);
    }
}

TEST(Verifier, NamesThePassAndTheNodeThatBrokeTheGraph) {
    Graph graph;
    const Tensor x = input(graph, "x", {2});
    const Tensor y = exp(x), z = exp(y);
    graph.add_result("z", z.value());
    verify(graph, "trace");
    graph.replace_uses(x.value(), z.value(), 1);  // %1 now reads what comes after it
    try {
        verify(graph, "planting");
        FAIL() << "a graph that reads ahead was accepted";
    } catch (const InternalError& error) {
        EXPECT_NE(std::string(error.what()).find("graph after planting: an operand of %1"), std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace mantissa
