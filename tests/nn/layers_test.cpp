// Layers: the parameters that they create, under which names and with which initial values, and what they
// compute.
#include "mantissa/nn/layers.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/reference.h"
#include "tests/support/error_of.h"

namespace mantissa::nn {
namespace {

using testing::error_here;

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
        EXPECT_EQ(std::string(error.what())
                      .find("there are two states named 'c.weight': the first (traced in c at "
                            "layers_test.cpp:"),
                  0u)
            << error.what();
    }
}

TEST(Layers, WhatIsForgottenOrDoesNotFitNamesTheLineThatCallsTheLayer) {
    Graph graph;
    const Tensor x = input(graph, {5, 3}), scalar = sum(x, {0, 1}), none;
    const OriginScope block(graph, "h.0");
    EXPECT_EQ(error_here([&] { linear(x, "a", {}); }),
              "linear (traced in h.0.a at HERE): outputs must be 1 or more, got 0; set them");
    EXPECT_EQ(error_here([&] { conv2d(x, "a", {}); }),
              "conv2d (traced in h.0.a at HERE): outputs must be 1 or more, got 0; set them");
    EXPECT_EQ(error_here([&] { linear(scalar, "a", {.outputs = 2}); }),
              "linear (traced in h.0.a at HERE): expected [..., C], got f32[]");
    EXPECT_EQ(error_here([&] { layer_norm(scalar, "a"); }),
              "layer_norm (traced in h.0.a at HERE): expected [..., C], got f32[]");
    EXPECT_EQ(error_here([&] { linear(none, "a", {.outputs = 2}); }),
              "a (traced at HERE): the layer is given an empty Tensor");
    EXPECT_EQ(error_here([&] { rms_norm(none, "a"); }),
              "a (traced at HERE): the layer is given an empty Tensor");
    const Tensor image = reshape(x, {1, 5, 1, 3});
    EXPECT_EQ(
        error_here([&] { conv2d(image, "b", {.outputs = 2}); }).find("conv2d (traced in h.0.b at HERE): "),
        0u);
    EXPECT_EQ(error_here([&] { parameter(graph, "c", {-1}, {}); }),
              "state (traced in h.0 at HERE): extents must not be negative, got [-1]");
    EXPECT_EQ(error_here([&] { Mode().random(); }),
              "a Mode of evaluation has no random numbers; ask Mode::is_training first");
    EXPECT_EQ(graph.origin.line.text(), "") << "a layer leaves the line that it named";
}

TEST(Layers, TwoBatchNormsOfOneNameAreRefusedWithBothLines) {
    Graph graph;
    const Tensor x = input(graph, {5, 3});
    batch_norm(x, "bn", Mode());
    const std::string text = error_here([&] { batch_norm(x, "bn", Mode()); });
    EXPECT_EQ(text, "there are two states named 'bn.weight': the first (traced in bn at layers_test.cpp:" +
                        std::to_string(__LINE__ - 3) +
                        "), the second (traced in bn at HERE); give the layers different names, or an "
                        "nn::Scope around one (nn.scope in Python)");
}

/// An error speaks of the batch that there will be, and a shape of that batch is one.
TEST(Model, FactsAreOfTheBatchThatIsTrained) {
    const auto model = [](Shape shape) {
        return Model{.name = "flat",
                     .inputs = {{"x", DType::f32, {8, 8, 3}}},
                     .loss = [shape](Graph&, std::span<const Tensor> in, const Mode&) {
                         return mean(linear(reshape(in[0], shape), "head", {.outputs = 2}), {0, 1});
                     }};
    };
    EXPECT_EQ(facts_of(model({4, 192}), 4).parameters, 192 * 2 + 2);
    EXPECT_EQ(facts_of(model({-1, 192}), 4).flops_per_example, facts_of(model({-1, 192})).flops_per_example);
    EXPECT_NE(error_here([&] {
                  facts_of(model({4, 100}), 4);
              }).find("f32[4, 8, 8, 3] has 768 elements, [4, 100] has 400"),
              std::string::npos);
}

/// A head that trains and predicts nothing has parameters and work, too.
TEST(Model, FactsAreOfTheModelInTraining) {
    const Model model{
        .name = "two heads",
        .inputs = {{"x", DType::f32, {6}}},
        .loss = [](Graph&, std::span<const Tensor> in, const Mode& mode) {
            Tensor loss = mean(linear(in[0], "head", {.outputs = 2, .bias = false}), {0, 1});
            if (mode.is_training())
                loss = loss + mean(linear(dropout(in[0], 0.5, mode), "aside", {.outputs = 3, .bias = false}),
                                   {0, 1});
            return loss;
        }};
    EXPECT_EQ(facts_of(model).parameters, 6 * 2 + 6 * 3);
    // A product forward and two backward: dX, which formulas count, and dW.
    EXPECT_EQ(facts_of(model).flops_per_example, 3 * 2 * (6 * 2 + 6 * 3));
}

TEST(Layers, BatchNormFollowsItsBatchesWhileTraining) {
    Graph graph;
    const Mode mode = Mode::training(graph);
    const OriginScope block(graph, "layer1.0");
    const Tensor y = batch_norm(input(graph, {2, 3, 3, 5}), "bn2", mode, {.momentum = 0.25});
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
    const Tensor y = batch_norm(input(graph, {2, 1}), "bn", Mode(), {.epsilon = 0.5});
    EXPECT_TRUE(graph.updates().empty());
    const ReferenceRun run(graph, {{"x", {5, 9}},
                                   {"bn.weight", {3}},
                                   {"bn.bias", {10}},
                                   {"bn.running_mean", {4}},
                                   {"bn.running_var", {3.5}}});
    EXPECT_EQ(run[y.value()].values, (std::vector<double>{1 / 2.0 * 3 + 10, 5 / 2.0 * 3 + 10}));
}

TEST(Layers, TheRunningVarianceIsUnbiasedUnlessAskedOtherwise) {
    for (const bool unbiased : {true, false}) {
        Graph graph;
        const Mode mode = Mode::training(graph);
        batch_norm(input(graph, {2, 1}), "bn", mode, {.momentum = 1, .unbiased = unbiased});
        const ReferenceFeed feed{{"x", {1, 5}},
                                 {"bn.weight", {1}},
                                 {"bn.bias", {0}},
                                 {"bn.running_mean", {0}},
                                 {"bn.running_var", {1}}};
        ReferenceFeed next = ReferenceRun(graph, feed).next(feed);
        EXPECT_EQ(next["bn.running_mean"], (std::vector<double>{3}));
        EXPECT_EQ(next["bn.running_var"], (std::vector<double>{unbiased ? 8.0 : 4.0}));
    }
}

TEST(Layers, BatchNormRefusesWhatHasNoStatistic) {
    const auto error = [](const BatchNormOptions& options) -> std::string {
        Graph graph;
        const Mode mode = Mode::training(graph);
        try {
            batch_norm(input(graph, {1, 3}), "bn1", mode, options);
        } catch (const UserError& thrown) {
            return thrown.what();
        }
        return "";
    };
    EXPECT_NE(error({}).find("an unbiased variance needs two elements a channel or more, "
                             "got f32[1, 3]; train on more, or set BatchNormOptions::unbiased to false"),
              std::string::npos)
        << error({});
    EXPECT_EQ(error({.unbiased = false}), "");
    EXPECT_NE(error({.momentum = 1.5, .unbiased = false}).find("momentum must lie between 0 and 1, got 1.5"),
              std::string::npos);
}

}  // namespace
}  // namespace mantissa::nn
