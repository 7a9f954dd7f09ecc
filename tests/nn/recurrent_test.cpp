// Recurrent layers: what they compute, by plain loops, the names of their parameters, and that no product of
// inputs is left in the loop.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/reference.h"
#include "mantissa/nn/layers.h"
#include "mantissa/passes/analysis/uses.h"
#include "tests/support/error_of.h"
#include "tests/support/recording.h"

namespace mantissa::nn {
namespace {

using testing::error_of;
using testing::Numbers;

constexpr std::size_t B = 2, T = 4, C = 3, H = 5;

Numbers numbers(std::size_t count, std::size_t which) {
    Numbers values;
    for (std::size_t i = 0; i < count; ++i)
        values.push_back(0.6 * std::sin(static_cast<double>(11 * i + which)));
    return values;
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

/// A layer with its parameters in a feed, recorded and evaluated.
struct Evaluated {
    Graph graph;
    ReferenceFeed feed{{"x", numbers(B* T* C, 1)}};
    Numbers y;

    template <class Layer>
    Evaluated(Layer layer, const RecurrentOptions& options) {
        const Tensor x(graph,
                       graph.add_input("x", {DType::f32,
                                             {static_cast<std::int64_t>(B), static_cast<std::int64_t>(T),
                                              static_cast<std::int64_t>(C)}}));
        const Tensor out = layer(x, "rnn", options, Where::current());
        for (const State& state : graph.states())
            feed[state.name] = numbers(static_cast<std::size_t>(state.type.shape.elements()), feed.size());
        y = ReferenceRun(graph, feed)[out.value()].values;
    }

    /// Row `row` of a parameter's matrix times a vector, with the bias's element.
    double sum(const char* weight, const char* bias, std::size_t row, const Numbers& by) const {
        const Numbers& w = feed.at(std::string("rnn.") + weight);
        double total =
            feed.contains(std::string("rnn.") + bias) ? feed.at(std::string("rnn.") + bias)[row] : 0;
        for (std::size_t i = 0; i < by.size(); ++i) total += w[row * by.size() + i] * by[i];
        return total;
    }
    Numbers input(std::size_t b, std::size_t t) const {
        const auto first = feed.at("x").begin() + static_cast<std::ptrdiff_t>((b * T + t) * C);
        return {first, first + static_cast<std::ptrdiff_t>(C)};
    }
    void expect_hidden(std::size_t b, std::size_t t, const Numbers& h) const {
        for (std::size_t i = 0; i < H; ++i) EXPECT_NEAR(y[(b * T + t) * H + i], h[i], 1e-13);
    }
};

TEST(Recurrent, LstmIsItsFormula) {
    for (const bool bias : {true, false}) {
        const Evaluated of(lstm, {.hidden = static_cast<std::int64_t>(H), .bias = bias});
        ASSERT_EQ(of.graph.states().size(), bias ? 4u : 2u);
        EXPECT_EQ(of.graph.states()[0].name, "rnn.weight_ih_l0");
        EXPECT_EQ(of.graph.states()[1].type.shape, (Shape{20, 5}));
        for (std::size_t b = 0; b < B; ++b) {
            Numbers h(H), c(H);
            for (std::size_t t = 0; t < T; ++t) {
                const Numbers x = of.input(b, t), before = h;
                const auto gate = [&](std::size_t which, std::size_t i) {
                    return of.sum("weight_ih_l0", "bias_ih_l0", which * H + i, x) +
                           of.sum("weight_hh_l0", "bias_hh_l0", which * H + i, before);
                };
                for (std::size_t i = 0; i < H; ++i) {
                    c[i] = sigmoid_of(gate(1, i)) * c[i] + sigmoid_of(gate(0, i)) * std::tanh(gate(2, i));
                    h[i] = sigmoid_of(gate(3, i)) * std::tanh(c[i]);
                }
                of.expect_hidden(b, t, h);
            }
        }
    }
}

TEST(Recurrent, GruIsItsFormula) {
    for (const bool bias : {true, false}) {
        const Evaluated of(gru, {.hidden = static_cast<std::int64_t>(H), .bias = bias});
        EXPECT_EQ(of.graph.states()[0].type.shape, (Shape{15, 3}));
        for (std::size_t b = 0; b < B; ++b) {
            Numbers h(H);
            for (std::size_t t = 0; t < T; ++t) {
                const Numbers x = of.input(b, t), before = h;
                const auto by_input = [&](std::size_t row) {
                    return of.sum("weight_ih_l0", "bias_ih_l0", row, x);
                };
                const auto by_state = [&](std::size_t row) {
                    return of.sum("weight_hh_l0", "bias_hh_l0", row, before);
                };
                for (std::size_t i = 0; i < H; ++i) {
                    const double r = sigmoid_of(by_input(i) + by_state(i));
                    const double z = sigmoid_of(by_input(H + i) + by_state(H + i));
                    const double n = std::tanh(by_input(2 * H + i) + r * by_state(2 * H + i));
                    h[i] = (1 - z) * n + z * before[i];
                }
                of.expect_hidden(b, t, h);
            }
        }
    }
}

/// A loop multiplies its state alone.
TEST(Recurrent, ProductsOfInputsAreOutsideOfTheLoop) {
    const Evaluated of(lstm, {.hidden = static_cast<std::int64_t>(H), .layers = 2});
    int loops = 0, products = 0;
    for (NodeId id = 0; id < of.graph.end(); ++id) {
        const Node& node = of.graph.node(id);
        products += node.op->name == "matmul";
        if (node.op->name != "scan") continue;
        ++loops;
        const Graph& body = node.attributes.body("body").graph();
        int inside = 0;
        for (NodeId i = 0; i < body.end(); ++i) inside += body.node(i).op->name == "matmul";
        EXPECT_EQ(inside, 1);
    }
    EXPECT_EQ(loops, 2);
    EXPECT_EQ(products, 2);
    EXPECT_EQ(of.graph.states()[4].name, "rnn.weight_ih_l1");
}

/// The loop that goes back multiplies the gradient of its gates; what the layer multiplied, it reads.
TEST(Recurrent, GradientsMultiplyNothingAgain) {
    for (const auto layer : {lstm, gru}) {
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::f32, {2, 4, 3}}));
        const Tensor y = layer(x, "rnn", {.hidden = 5}, Where::current());
        const Tensor ones = constant(graph, 1.0, DType::f32, y.shape());
        std::vector<Tensor> weights;
        for (const State& state : graph.states()) weights.emplace_back(graph, Value{state.node, 0});
        backpropagate(graph, {&y, 1}, {&ones, 1}, weights);
        int loops = 0;
        for (NodeId id = 0; id < graph.end(); ++id) {
            const Node& node = graph.node(id);
            if (node.op->name != "scan" || ++loops != 2) continue;
            const Graph& body = node.attributes.body("body").graph();
            const std::vector<bool> live = live_nodes(body);
            int products = 0;
            for (NodeId i = 0; i < body.end(); ++i) products += live[i] && body.node(i).op->name == "matmul";
            EXPECT_EQ(products, 1);
        }
        EXPECT_EQ(loops, 2);
    }
}

TEST(Recurrent, WhatMakesNoLayerIsRefused) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {2, 3}}));
    const Tensor y(graph, graph.add_input("y", {DType::f32, {2, 3, 4}}));
    EXPECT_NE(error_of<UserError>([&] { lstm(x, "rnn", {.hidden = 2}); }).find("[B, T, C]"),
              std::string::npos);
    EXPECT_NE(error_of<UserError>([&] { gru(y, "rnn", {}); }).find("hidden and layers must be 1 or more"),
              std::string::npos);
}

}  // namespace
}  // namespace mantissa::nn
