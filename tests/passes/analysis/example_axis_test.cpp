// Results that may be computed for some examples of a batch at a time, and others that may not.
#include "mantissa/passes/analysis/example_axis.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::int64_t B = 4;

struct Case {
    const char* name;
    std::function<Tensor(Graph&, Tensor x)> output;  // x f32 [B, 6]
};

std::string why_mixed(const Case& test) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {B, 6}}));
    const Tensor y = test.output(graph, x);
    return why_examples_mix(y, std::vector<std::string>{"x"}, B);
}

Tensor weight(Graph& graph, Shape shape) {
    const std::string name = "w" + std::to_string(graph.size());
    return {graph, graph.add_state({.kind = State::Kind::parameter,
                                    .name = name,
                                    .type = {DType::f32, std::move(shape)},
                                    .initializer = {},
                                    .values = {}})};
}

TEST(ExampleAxis, ExamplesThatStandAlone) {
    const std::vector<Case> cases = {
        {"elements", [](Graph&, Tensor x) { return exp(x) + x * 2.0; }},
        {"layer",
         [](Graph& g, Tensor x) {
             return matmul(x, weight(g, {6, 3})) + weight(g, {3});
         }},
        {"norm and softmax",
         [](Graph& g, Tensor x) { return softmax(layer_norm(x, weight(g, {6}), weight(g, {6}), 1e-5)); }},
        {"rows of each",
         [](Graph&, Tensor x) {
             return sum(reshape(exp(reshape(x, {B * 2, 3})), {B, 2, 3}), {1});
         }},
        {"products of each",
         [](Graph&, Tensor x) {
             return matmul(reshape(x, {B, 2, 3}), reshape(x, {B, 3, 2}));
         }},
        {"attention",
         [](Graph&, Tensor x) {
             const Tensor q = transpose(reshape(x, {B, 3, 2, 1}), {0, 2, 1, 3});
             return attention(q, q, q, {.causal = true, .scale = 1});
         }},
        {"a part beside what is constant",
         [](Graph& g, Tensor x) {
             const Tensor one = broadcast_to(constant(g, 1.0), {B, 2});
             return concat(std::vector{slice(x, 1, 2, 5), one}, 1);
         }},
        {"positions in an example",
         [](Graph& g, Tensor x) {
             return x + reshape(embedding(weight(g, {6, 1}), iota(g, {6}, 0)), {6});
         }},
    };
    for (const Case& test : cases) EXPECT_EQ(why_mixed(test), "") << test.name;
}

TEST(ExampleAxis, ExamplesThatDoNot) {
    const std::vector<Case> cases = {
        {"mean", [](Graph&, Tensor x) { return x - mean(x, {0}, KeepAxes::yes); }},
        {"gram", [](Graph&, Tensor x) { return matmul(x, x, {.transpose_b = true}); }},
        {"sum over all", [](Graph&, Tensor x) { return matmul(x, matmul(x, x, {.transpose_a = true})); }},
        {"place",
         [](Graph& g, Tensor x) {
             return x * cast(iota(g, {B, 1}, 0), DType::f32);
         }},
        {"a row of its own",
         [](Graph& g, Tensor x) {
             return x * weight(g, {B, 1});
         }},
        {"turned",
         [](Graph&, Tensor x) {
             return softmax(transpose(x, {1, 0}));
         }},
        {"a neighbour", [](Graph&, Tensor x) { return roll(x, 0, 1); }},
        {"read at places", [](Graph& g, Tensor x) { return embedding(x, iota(g, {B}, 0)); }},
        {"of no example",
         [](Graph& g, Tensor) {
             return weight(g, {B, 6}) * 1.0;
         }},
    };
    for (const Case& test : cases) EXPECT_NE(why_mixed(test), "") << test.name;
}

}  // namespace

}  // namespace mantissa
