// Gradients of every operation whose operands are one value, are shared by two layers or depend on each
// other: against differences of the reference, as they are and after every pass that rewrites them.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/pipeline.h"
#include "tests/support/op_cases.h"
#include "tests/support/passes.h"
#include "tests/support/random_draws.h"
#include "tests/support/shared_operands.h"
#include "tests/support/show_gradients.h"

namespace mantissa {
namespace {

using testing::f32;
using testing::In;
using testing::OpCase;
using testing::Operands;
using testing::SharedOperands;

/// Operations whose operands may all be one value, and forms that a pass makes one operation of.
std::vector<OpCase> cases_of_equal_types() {
    const Attributes epsilon{{"epsilon", 1e-5}};
    const auto op = [](const char* name, std::vector<testing::Operand> operands, Attributes attributes = {}) {
        return OpCase{name, fmt::format("{} of equal types", name), std::move(operands),
                      [=](Graph& g, In x) { return call(g, name, x, attributes); }};
    };
    const auto row = f32({7}), square = f32({6, 6}), heads = f32({1, 2, 5, 4}), filter = f32({2, 2, 2, 2});
    const Attributes convolution{{"dilation", std::vector<std::int64_t>{1, 1}},
                                 {"groups", std::int64_t{1}},
                                 {"padding", std::vector<std::int64_t>{1, 1, 1, 1}},
                                 {"stride", std::vector<std::int64_t>{1, 1}}};
    return {op("matmul", {square, square}, {{"transpose_a", false}, {"transpose_b", true}}),
            op("matmul", {square, square}, {{"transpose_a", true}, {"transpose_b", false}}),
            op("rms_norm", {row, row}, epsilon),
            op("layer_norm", {row, row, row}, epsilon),
            op("batch_norm", {row, row, row}, epsilon),
            op("concat", {square, square}, {{"axis", std::int64_t{1}}}),
            op("attention", {heads, heads, heads}, {{"causal", true}, {"scale", 0.5}}),
            op("conv2d", {filter, filter}, convolution),
            {"rotary",
             "rotary of learned tables",
             {f32({2, 3, 2, 4}), f32({3, 2}), f32({3, 2})},
             [](Graph&, In x) { return std::vector{rotary(x[0], x[1], x[2])}; }},
            {"softmax",
             "attention in its lines",
             {heads, heads, heads},
             [](Graph&, In x) {
                 const Tensor scores = matmul(x[0], x[1], {.transpose_b = true}) * 0.5;
                 return std::vector{matmul(softmax(scores), x[2])};
             }},
            {"cross_entropy",
             "the loss of a linear layer",
             {square, square, testing::ids({6}, 6)},
             [](Graph&, In x) {
                 return std::vector{cross_entropy(matmul(x[0], x[1], {.transpose_b = true}), x[2])};
             }}};
}

/// Passes that rewrite gradients, alone and together.
struct Passes {
    const char* name;
    std::vector<std::string> optional;
    std::set<std::string> recompute = {};
    bool expands = false;  ///< whether every composite is taken apart behind them
};

std::vector<Passes> passes_of_any_operation() {
    return {{"none", {}},
            {"expand", {}, {}, true},
            {"simplify", {"simplify"}},
            {"fuse", {"fuse"}},
            {"recompute", {"simplify"}, {"block", "gelu", "norm", "softmax"}},
            {"all", optional_pass_names(), {"block"}}};
}

std::vector<Passes> all_passes() {
    std::vector<Passes> all = passes_of_any_operation();
    for (Passes& passes : std::vector<Passes>{
             {"fuse_linear_cross_entropy", {"fuse_linear_cross_entropy"}},
             {"fuse_linear_cross_entropy, expanded", {"fuse_linear_cross_entropy"}, {}, true},
             {"match_attention", {"match_attention"}},
             {"match_attention, laid out and expanded", {"match_attention", "simplify", "lay_out"}, {}, true},
             {"pad", {"simplify", "pad"}},
             {"all, expanded", optional_pass_names(), {}, true}})
        all.push_back(std::move(passes));
    return all;
}

struct Model {
    TraceModel loss;
    ReferenceFeed feed;
};

BuiltGraph built(const Model& model, const Passes& passes) {
    PipelineOptions options;
    choose_passes(options, passes.optional);
    options.recompute = passes.recompute;
    Machine machine = testing::any_size();  // such small tensors save little
    machine.target.extent_multiple = 8;
    BuiltGraph step = build_training_step(model.loss, testing::show_gradients, options, machine);
    if (passes.expands) step.graph = expand(step.graph, [](const Graph&, const Node&) { return true; });
    return step;
}

/// By state: the gradient along a direction of its own.
using Slopes = std::map<std::string, double>;

std::vector<double> direction_of(const State& state) {
    return testing::values_of({state.type}, static_cast<std::uint32_t>(state.name.back()));
}

/// By the difference quotient of five points: step^4 = 1e-12 of the fifth derivative, and 1e-16 / step of the
/// sum.
Slopes differences(const Model& model) {
    Graph graph;
    const Tensor loss = model.loss(graph);
    Slopes slopes;
    for (const State& state : graph.states()) {
        const std::vector<double> direction = direction_of(state);
        const auto at = [&](double step) {
            ReferenceFeed feed = model.feed;
            std::vector<double>& x = feed[state.name];
            for (std::size_t i = 0; i < x.size(); ++i) x[i] += step * direction[i];
            return ReferenceRun(graph, feed)[loss.value()].values[0];
        };
        const double h = 1e-4;
        slopes[state.name] = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    }
    return slopes;
}

Slopes slopes_of(const Model& model, const BuiltGraph& step) {
    ReferenceFeed feed = model.feed;
    if (!step.derive.states().empty()) {
        for (const State& state : step.derive.states())
            if (state.kind == State::Kind::derived)
                feed[state.name].resize(static_cast<std::size_t>(state.type.shape.elements()));
        feed = ReferenceRun(step.derive, feed).next(feed);
    }
    const ReferenceRun run(step.graph, feed);
    Slopes slopes;
    for (const State& state : step.graph.states()) {
        if (state.kind != State::Kind::parameter) continue;
        const std::vector<double> direction = direction_of(state);
        const std::vector<double>& gradient = run.result(state.name).values;
        for (std::size_t i = 0; i < direction.size(); ++i) slopes[state.name] += gradient[i] * direction[i];
    }
    return slopes;
}

constexpr double tolerance = 1e-7;

/// How often a pass made this of a model's graph.
using Made = std::map<std::string_view, int>;

void expect_right(const Model& model, std::span<const Passes> some, const std::string& name, Made& made) {
    const Slopes expected = differences(model);
    std::set<std::string> known;  // where a pass finds nothing to do
    for (const Passes& passes : some) {
        const BuiltGraph step = built(model, passes);
        if (!known.insert(print(step.graph)).second) continue;
        for (std::size_t id = 0; id < step.graph.size(); ++id)
            ++made[step.graph.node(static_cast<NodeId>(id)).op->name];
        for (const auto& [state, slope] : slopes_of(model, step))
            EXPECT_NEAR(slope, expected.at(state), tolerance * (1 + std::abs(expected.at(state))))
                << name << ", passes " << passes.name << ": gradient of " << state;
    }
}

/// Sweeps that are not whole have two kinds by turns and `at_once` of the passes by turns.
void expect_right(const std::vector<OpCase>& cases, std::vector<Passes> some, std::size_t at_once,
                  Made& made) {
    const bool all = testing::sweeps_are_whole();
    std::vector<Operands> kinds{Operands::states, Operands::random};
    if (all) kinds.insert(kinds.end(), {Operands::equal, Operands::computed});
    for (const OpCase& test : cases)
        for (const Operands operands : kinds) {
            if (!all && operands != kinds[static_cast<std::size_t>(&test - cases.data()) % 2]) continue;
            if (!testing::has_gradient(test)) continue;
            std::ranges::rotate(some, some.begin() + 1);
            const SharedOperands shared(test, operands, 1);
            expect_right({[&](Graph& graph) { return shared.loss(graph); }, shared.feed()},
                         std::span(some).first(all ? some.size() : at_once),
                         fmt::format("{}, operands {}", test.name, static_cast<int>(operands)), made);
        }
}

TEST(SharedOperands, GradientsOfEveryOperationAreThoseOfTheReference) {
    Made made;
    expect_right(testing::op_cases(), passes_of_any_operation(), 3, made);
    for (const Op* op : op_table())
        if (op->gradient && op->name != "state") {
            EXPECT_GT(made[op->name], 0) << op->name;
        }
    EXPECT_GT(made["fused"], 50);
}

TEST(SharedOperands, GradientsOfOperandsOfOneTypeAreThoseOfTheReferenceUnderEveryPass) {
    Made made;
    const std::vector<Passes> all = all_passes();
    expect_right(cases_of_equal_types(), all, all.size(), made);
    for (const char* const op : {"fused", "attention", "attention_grad", "linear_cross_entropy"})
        EXPECT_GT(made[op], 2) << op;
}

/// Twice h + norm(h) w^T, with one scale for both: the mean square of h - y.
Tensor loss_of_two_norms(Graph& graph, const std::string& norm) {
    const auto state = [&](const char* name, Shape shape) {
        const Type type{DType::f32, std::move(shape)};
        return Tensor(graph, graph.add_state({.name = name, .type = type, .initializer = {}}));
    };
    std::vector<Tensor> scales{state("gamma", {32})};
    if (norm == "layer_norm") scales.push_back(state("beta", {32}));
    const Tensor y(graph, graph.add_input("y", {DType::f32, {8, 32}}));
    Tensor h(graph, graph.add_input("x", {DType::f32, {8, 32}}));
    for (const char* const name : {"w0", "w1"}) {
        std::vector<Tensor> operands{h};
        operands.insert(operands.end(), scales.begin(), scales.end());
        const Tensor normed = call(graph, norm, operands, {{"epsilon", 1e-5}})[0];
        h = h + matmul(normed, state(name, {32, 32}), {.transpose_b = true});
    }
    return mean((h - y) * (h - y), {0, 1});
}

TEST(SharedOperands, AScaleOfTwoNormsOneBehindTheOther) {
    Made made;
    for (const std::string norm : {"layer_norm", "rms_norm"}) {
        ReferenceFeed feed;
        for (const char* const name : {"x", "y"}) feed[name] = testing::values_of(f32({8, 32}), 1);
        for (const char* const name : {"gamma", "beta"}) feed[name] = testing::values_of(f32({32}), 2);
        for (const char* const name : {"w0", "w1"}) feed[name] = testing::values_of(f32({32, 32}), 3);
        expect_right({[&](Graph& graph) { return loss_of_two_norms(graph, norm); }, feed}, all_passes(), norm,
                     made);
    }
}

}  // namespace
}  // namespace mantissa
