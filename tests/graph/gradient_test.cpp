// Gradients of every operation against central differences of the reference, both in FP64.
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/op_cases.h"
#include "tests/support/shared_operands.h"

namespace mantissa {
namespace {

using testing::differentiated_outputs;
using testing::has_gradient;
using testing::OpCase;
using testing::Recorded;

/// sum_i <weights of output i, output i>, of the outputs that have a weight.
double weighted_sum(const Graph& graph, const ReferenceFeed& feed, const std::vector<Tensor>& outputs,
                    const std::vector<std::vector<double>>& weights) {
    const ReferenceRun run(graph, feed);
    double total = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i)
        for (std::size_t j = 0; j < weights[i].size(); ++j)
            total += weights[i][j] * run[outputs[i].value()].values[j];
    return total;
}

/// The largest of |gradient - difference| / (1 + |difference|) over all elements of all floating operands, of
/// the gradients as they are and of those with a planted error.
struct Worst {
    double difference = 0, with_planted_error = 0;
};

constexpr double planted_factor = 1.0 + 1e-6;

Worst worst_difference(const OpCase& test) {
    Recorded recorded(test);
    Graph forward = recorded.graph;
    std::vector<Tensor> cotangents;
    std::vector<std::vector<double>> weights(recorded.outputs.size());
    for (std::size_t i = 0; i < recorded.outputs.size(); ++i) {
        cotangents.emplace_back();
        if (i >= differentiated_outputs(test, recorded.outputs.size())) continue;
        const Type type = recorded.outputs[i].type();
        const std::string name = fmt::format("w{}", i);
        weights[i] = testing::values_of({type}, 100 + static_cast<std::uint32_t>(i));
        cotangents[i] = Tensor(recorded.graph, recorded.graph.add_input(name, type));
        recorded.feed[name] = weights[i];
    }
    const auto gradients = backpropagate(recorded.graph, recorded.outputs, cotangents, recorded.inputs);
    const ReferenceRun run(recorded.graph, recorded.feed);
    Worst worst;
    for (std::size_t i = 0; i < recorded.inputs.size(); ++i) {
        if (!is_floating(test.operands[i].type.dtype)) continue;
        EXPECT_TRUE(gradients[i]) << test.name << " has no gradient for operand " << i;
        if (!gradients[i]) return {INFINITY, INFINITY};
        const std::vector<double>& gradient = run[gradients[i].value()].values;
        // Every so many elements of long operands: 300 to 600 of them.
        const std::size_t apart = std::max<std::size_t>(1, gradient.size() / 300);
        for (std::size_t j = 0; j < gradient.size(); j += apart) {
            // Truncation leaves about step^2 = 1e-10, cancellation 1e-16 / step = 1e-11 of the sum.
            const double step = 1e-5;
            ReferenceFeed feed = recorded.feed;
            double& x = feed[fmt::format("x{}", i)][j];
            const double middle = x;
            x = middle + step;
            const double above = weighted_sum(forward, feed, recorded.outputs, weights);
            x = middle - step;
            const double below = weighted_sum(forward, feed, recorded.outputs, weights);
            const double difference = (above - below) / (2 * step);
            const auto take = [&](double& largest, double of) {
                const double error = std::abs(of - difference) / (1 + std::abs(difference));
                largest = !(error <= largest) ? error : largest;  // NaN is worst
            };
            take(worst.difference, gradient[j]);
            take(worst.with_planted_error, gradient[j] * planted_factor);
        }
    }
    return worst;
}

/// A hundred times the error of the difference quotient itself.
constexpr double tolerance = 1e-8;

class AgreeWithDifferences : public ::testing::TestWithParam<OpCase> {};

TEST_P(AgreeWithDifferences, Case) {
    const OpCase& test = GetParam();
    const Worst worst = worst_difference(test);
    EXPECT_LE(worst.difference, tolerance);
    // A case without a floating-point operand has no gradient to be wrong.
    const bool any = std::ranges::any_of(test.operands,
                                         [](const auto& operand) { return is_floating(operand.type.dtype); });
    if (any) {
        EXPECT_GT(worst.with_planted_error, tolerance) << "an error of one part in a million";
    }
}

std::vector<OpCase> cases_with_gradients() {
    std::vector<OpCase> all = testing::op_cases();
    // The operation is evaluated twice for each element: sizes that only kernels need are left out.
    constexpr std::int64_t max_elements = 6000;
    const auto is_large = [](const OpCase& test) {
        return std::ranges::any_of(
            test.operands, [](const auto& operand) { return operand.type.shape.elements() > max_elements; });
    };
    std::erase_if(all, [&](const OpCase& test) { return !has_gradient(test) || is_large(test); });
    return all;
}
INSTANTIATE_TEST_SUITE_P(Gradients, AgreeWithDifferences, ::testing::ValuesIn(cases_with_gradients()),
                         [](const auto& each) { return testing::test_name(each.param); });

TEST(Gradients, EveryOperationIsTestedOrSaysWhyItHasNone) {
    std::set<std::string> tested;
    for (const OpCase& test : testing::op_cases()) tested.insert(test.op);
    tested.insert("state");  // as an input, but kept
    for (const Op* op : op_table()) {
        EXPECT_TRUE(tested.contains(std::string(op->name)))
            << op->name << " has no case in tests/support/op_cases.cpp";
        EXPECT_NE(op->gradient == nullptr, op->no_gradient.empty()) << op->name;
    }
}

TEST(Gradients, TiesAreSharedAsWritten) {
    Graph graph;
    const Tensor a(graph, graph.add_input("a", {DType::f32, {3}})),
        b(graph, graph.add_input("b", {DType::f32, {3}}));
    const std::vector<Tensor> y{maximum(a, b), max(a, {0})}, inputs{a, b};
    const std::vector<Tensor> ones{constant(graph, 1.0, DType::f32, {3}), constant(graph, 10.0)};
    const auto gradients = backpropagate(graph, y, ones, inputs);
    const ReferenceRun run(graph, {{"a", {2, 2, 1}}, {"b", {2, 1, 3}}});
    // maximum: half at the tie; max over a: the two equal maxima share 10.
    EXPECT_EQ(run[gradients[0].value()].values, (std::vector<double>{0.5 + 5, 1 + 5, 0}));
    EXPECT_EQ(run[gradients[1].value()].values, (std::vector<double>{0.5, 0, 1}));
}

/// The largest difference between two gradients, over all their tensors.
double largest_difference(const ReferenceRun& run, const std::vector<Tensor>& by_hand,
                          const std::vector<Tensor>& by_machine) {
    double worst = 0;
    for (std::size_t i = 0; i < by_hand.size(); ++i) {
        const auto &hand = run[by_hand[i].value()].values, &machine = run[by_machine[i].value()].values;
        for (std::size_t j = 0; j < machine.size(); ++j)
            if (const double difference = std::abs(hand.at(j) - machine[j]); !(difference <= worst))
                worst = difference;
    }
    return worst;
}

TEST(Gradients, OfGradientCompositesEqualTheMachinesOwn) {
    // Those that are written by hand: the same as differentiating the definition.
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 9}})),
        dy(graph, graph.add_input("dy", {DType::f32, {4, 9}})),
        gamma(graph, graph.add_input("gamma", {DType::f32, {9}}));
    const std::vector<Tensor> softmax_by_hand{call1("softmax_grad", {dy, softmax(x)})};
    const std::vector<Tensor> softmax_by_machine = differentiate_definition(
        {.op = "softmax", .inputs = {x}, .cotangents = {dy}, .saved = {}}, graph, {});
    const Attributes epsilon{{"epsilon", 1e-5}};
    const auto y = call(graph, "batch_norm", std::vector{x, gamma, gamma}, epsilon);
    const auto norm_by_hand = call(graph, "batch_norm_grad", std::vector{dy, x, gamma, y[1], y[3]}, epsilon);
    const Tensor beta = constant(graph, 0.0, DType::f32, {9});
    const std::vector<Tensor> norm_by_machine = differentiate_definition(
        {.op = "batch_norm", .inputs = {x, gamma, beta}, .cotangents = {dy, {}, {}, {}}, .saved = {}}, graph,
        epsilon);
    const ReferenceRun run(graph, {{"x", testing::values_of(testing::f32({4, 9}), 1)},
                                   {"dy", testing::values_of(testing::f32({4, 9}), 2)},
                                   {"gamma", testing::values_of(testing::f32({9}), 3)}});
    EXPECT_LE(largest_difference(run, softmax_by_hand, softmax_by_machine), 1e-15);
    EXPECT_LE(largest_difference(run, norm_by_hand, norm_by_machine), 1e-13);
    EXPECT_GT(largest_difference(run, {norm_by_hand[1]}, {norm_by_machine[2]}), 1e-3) << "it can tell";
}

}  // namespace
}  // namespace mantissa
