// The forms in which a model's loss and output may be written.
#include <gtest/gtest.h>

#include <functional>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"

namespace mantissa {
namespace {

/// The number of operations that a trace of y = x w, (y - target)^2 records, from whatever form.
std::size_t recorded(nn::Trace loss) {
    Graph graph;
    const nn::Model model{
        .name = "line", .inputs = {{"x", DType::f32, {3}}, {"y", DType::f32, {1}}}, .loss = std::move(loss)};
    EXPECT_EQ(nn::trace_loss(model, graph, 4).rank(), 0);
    return graph.size();
}

Tensor mean_error(Tensor x, Tensor y) { return mean(nn::linear(x, "line", {.outputs = 1}) - y); }

TEST(Trace, IsAFunctionOfTensorsOrOfInputsOrAlsoOfModeAndGraph) {
    const std::size_t size = recorded(mean_error);
    EXPECT_GT(size, 4u);
    EXPECT_EQ(recorded([](Tensor x, Tensor y) { return mean_error(x, y); }), size);
    EXPECT_EQ(recorded([](std::span<const Tensor> in) { return mean_error(in[0], in[1]); }), size);
    EXPECT_EQ(recorded([](auto in) { return mean_error(in[0], in[1]); }), size);
    EXPECT_EQ(recorded([](auto in, const nn::Mode& mode) {
                  EXPECT_FALSE(mode.is_training());
                  return mean_error(in[0], in[1]);
              }),
              size);
    EXPECT_EQ(recorded([](Graph& graph, auto in, const nn::Mode&) {
                  EXPECT_EQ(&graph, &in[0].graph());
                  return mean_error(in[0], in[1]);
              }),
              size);
    EXPECT_LT(recorded([](Tensor x) { return mean(x); }), size);
}

TEST(Trace, OfMoreTensorsThanTheModelHasIsRefused) {
    try {
        recorded([](Tensor x, Tensor, Tensor) { return mean(x); });
        FAIL();
    } catch (const UserError& error) {
        EXPECT_EQ(std::string(error.what()), "the model has 2 inputs, and what is recorded of them takes 3");
    }
}

TEST(Scope, NamesWhatIsRecordedAndParametersInIt) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 3}}));
    {
        const nn::Scope outer(graph, "layer0");
        const nn::Scope inner(x, "attention");
        nn::linear(x, "out", {.outputs = 2});
    }
    nn::linear(x, "head", {.outputs = 2});
    EXPECT_GE(graph.find_state("layer0.attention.out.weight"), 0);
    EXPECT_GE(graph.find_state("head.weight"), 0);
}

}  // namespace
}  // namespace mantissa
