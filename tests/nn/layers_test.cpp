// Layers: the parameters that they create, under which names and with which initial values, and what they
// compute.
#include "mantissa/nn/layers.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/reference.h"

namespace mantissa::nn {
namespace {

Tensor input(Graph& graph, Shape shape) {
    return {graph, graph.add_input("x", {DType::f32, std::move(shape)})};
}

void expect_parameter(const State& state, const std::string& name, const Shape& shape,
                      const Initializer& starts) {
    EXPECT_EQ(state.kind, State::Kind::parameter) << name;
    EXPECT_EQ(state.name, name);
    EXPECT_EQ(state.type, (Type{DType::f32, shape})) << name;
    EXPECT_EQ(state.initializer.kind, starts.kind) << name;
    EXPECT_EQ(state.initializer.mean, starts.mean) << name;
    EXPECT_EQ(state.initializer.standard_deviation, starts.standard_deviation) << name;
}

Initializer constant_of(double value) { return {.kind = Initializer::Kind::constant, .mean = value}; }

TEST(Layers, LinearHasAWeightOfNormalNumbersAndABiasOfZeros) {
    Graph graph;
    const OriginScope block(graph, "h.0");
    const Tensor y = linear(input(graph, {2, 5, 3}), "c_fc", {.outputs = 4, .standard_deviation = 0.5});
    EXPECT_EQ(y.shape(), (Shape{2, 5, 4}));
    ASSERT_EQ(graph.states().size(), 2u);
    expect_parameter(graph.states()[0], "h.0.c_fc.weight", {4, 3},
                     {.kind = Initializer::Kind::normal, .mean = 0, .standard_deviation = 0.5});
    expect_parameter(graph.states()[1], "h.0.c_fc.bias", {4}, constant_of(0));
    EXPECT_EQ(graph.origin.scope, "h.0") << "the layer leaves the scope that it opened";
}

TEST(Layers, LinearWithoutABiasHasNone) {
    Graph graph;
    linear(input(graph, {5, 3}), "head", {.outputs = 4, .bias = false});
    ASSERT_EQ(graph.states().size(), 1u);
    EXPECT_EQ(graph.states()[0].name, "head.weight");
    EXPECT_EQ(graph.states()[0].initializer.standard_deviation, 0.02);
}

TEST(Layers, LinearIsTheProductWithTheTransposedWeightPlusTheBias) {
    Graph graph;
    graph.add_result("y", linear(input(graph, {2, 3}), "c", {.outputs = 2}).value());
    const ReferenceRun run(
        graph, {{"x", {1, 2, 3, 4, 5, 6}}, {"c.weight", {1, 0, 2, 0, 1, 1}}, {"c.bias", {10, 20}}});
    EXPECT_EQ(run.result("y").values, (std::vector<double>{1 + 6 + 10, 2 + 3 + 20, 4 + 12 + 10, 5 + 6 + 20}));
}

TEST(Layers, LayerNormHasAWeightOfOnesAndABiasOfZeros) {
    Graph graph;
    const Tensor y = layer_norm(input(graph, {2, 5, 3}), "ln_f");
    EXPECT_EQ(y.shape(), (Shape{2, 5, 3}));
    ASSERT_EQ(graph.states().size(), 2u);
    expect_parameter(graph.states()[0], "ln_f.weight", {3}, constant_of(1));
    expect_parameter(graph.states()[1], "ln_f.bias", {3}, constant_of(0));
}

TEST(Layers, LayerNormScalesRowsToOneAndAddsTheBias) {
    Graph graph;
    graph.add_result("y", layer_norm(input(graph, {1, 2}), "ln", {.epsilon = 3.0}).value());
    // Mean 2, variance 1: divided by sqrt(1 + 3).
    const ReferenceRun run(graph, {{"x", {1, 3}}, {"ln.weight", {1, 4}}, {"ln.bias", {0, 7}}});
    EXPECT_EQ(run.result("y").values, (std::vector<double>{-0.5, 4 * 0.5 + 7}));
}

TEST(Layers, ANameThatIsTakenIsRefused) {
    Graph graph;
    const Tensor x = input(graph, {5, 3});
    linear(x, "c", {.outputs = 4});
    try {
        linear(x, "c", {.outputs = 4});
        FAIL() << "two parameters of one name";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "there are two states named 'c.weight'");
    }
}

TEST(Layers, BatchNormFollowsItsBatchesWhileTraining) {
    Graph graph;
    const Mode mode = Mode::training(graph);
    const OriginScope block(graph, "layer1.0.bn2");
    const Tensor y = batch_norm(graph, input(graph, {2, 3, 3, 5}), mode, {.momentum = 0.25});
    EXPECT_EQ(y.shape(), (Shape{2, 3, 3, 5}));
    EXPECT_EQ(graph.node(y.value().node).op->name, "batch_norm");
    ASSERT_EQ(graph.states().size(), 4u);
    expect_parameter(graph.states()[0], "layer1.0.bn2.weight", {5}, constant_of(1));
    expect_parameter(graph.states()[1], "layer1.0.bn2.bias", {5}, constant_of(0));
    const auto expect_running = [&](std::size_t index, const char* name, double start) {
        const State& state = graph.states()[index];
        EXPECT_EQ(state.kind, State::Kind::running);
        EXPECT_EQ(state.name, name);
        EXPECT_EQ(state.type, (Type{DType::f32, {5}}));
        EXPECT_EQ(state.initializer.mean, start);
    };
    expect_running(2, "layer1.0.bn2.running_mean", 0);
    expect_running(3, "layer1.0.bn2.running_var", 1);
    ASSERT_EQ(graph.updates().size(), 2u);
    for (const Update& update : graph.updates()) {
        const Node& node = graph.node(update.value.node);
        EXPECT_EQ(node.op->name, "running_average");
        EXPECT_EQ(node.attributes.number("momentum"), 0.25);
        EXPECT_EQ(node.origin.stage, Stage::update);
    }
}

TEST(Layers, BatchNormInEvaluationReadsWhatItFollowed) {
    Graph graph;
    const Tensor y = batch_norm(graph, input(graph, {2, 1}), Mode(), {.epsilon = 0.5});
    EXPECT_TRUE(graph.updates().empty());
    const ReferenceRun run(
        graph,
        {{"x", {5, 9}}, {"weight", {3}}, {"bias", {10}}, {"running_mean", {4}}, {"running_var", {3.5}}});
    EXPECT_EQ(run[y.value()].values, (std::vector<double>{1 / 2.0 * 3 + 10, 5 / 2.0 * 3 + 10}));
}

TEST(Layers, TheRunningVarianceIsUnbiasedUnlessAskedOtherwise) {
    for (const bool unbiased : {true, false}) {
        Graph graph;
        const Mode mode = Mode::training(graph);
        batch_norm(graph, input(graph, {2, 1}), mode, {.momentum = 1, .unbiased = unbiased});
        const ReferenceFeed feed{
            {"x", {1, 5}}, {"weight", {1}}, {"bias", {0}}, {"running_mean", {0}}, {"running_var", {1}}};
        ReferenceFeed next = ReferenceRun(graph, feed).next(feed);
        EXPECT_EQ(next["running_mean"], (std::vector<double>{3}));
        EXPECT_EQ(next["running_var"], (std::vector<double>{unbiased ? 8.0 : 4.0}));
    }
}

TEST(Layers, BatchNormRefusesWhatHasNoStatistic) {
    const auto error = [](const BatchNormOptions& options) -> std::string {
        Graph graph;
        const Mode mode = Mode::training(graph);
        const OriginScope scope(graph, "bn1");
        try {
            batch_norm(graph, input(graph, {1, 3}), mode, options);
        } catch (const UserError& thrown) {
            return thrown.what();
        }
        return "";
    };
    EXPECT_NE(error({}).find("batch_norm in bn1: an unbiased variance needs two elements a channel or more, "
                             "got f32[1, 3]; train on more, or set BatchNormOptions::unbiased to false"),
              std::string::npos)
        << error({});
    EXPECT_EQ(error({.unbiased = false}), "");
    EXPECT_NE(error({.momentum = 1.5, .unbiased = false}).find("momentum must lie between 0 and 1, got 1.5"),
              std::string::npos);
}

}  // namespace
}  // namespace mantissa::nn
