// Passes that rewrite graphs: they keep meaning, are idempotent, and take away what they promise to.
#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/passes/simplify.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/gpt2.h"
#include "tests/support/random_draws.h"
#include "tests/support/random_graph.h"

namespace mantissa {
namespace {

const int random_graphs = testing::random_draws(1000);

std::vector<std::vector<double>> results(const Graph& graph, const ReferenceFeed& feed) {
    const ReferenceRun run(graph, feed);
    std::vector<std::vector<double>> values;
    for (const Result& result : graph.results()) values.push_back(run[result.value].values);
    return values;
}

const auto every_composite = [](const Graph&, const Node&) { return true; };

TEST(Simplify, KeepsEveryBitOfRandomGraphsAndIsIdempotent) {
    std::size_t before = 0, after = 0;
    for (int seed = 0; seed < random_graphs; ++seed) {
        const testing::RandomGraph random(static_cast<std::uint64_t>(seed));
        const Graph simple = simplify(random.graph);
        verify(simple, "simplify");
        ASSERT_EQ(results(simple, random.feed), results(random.graph, random.feed)) << "seed " << seed;
        ASSERT_EQ(print(simplify(simple)), print(simple)) << "seed " << seed;
        before += random.graph.size();
        after += simple.size();
    }
    EXPECT_LT(after, before * 3 / 4);  // the graphs are made with much to take away
}

TEST(Expand, KeepsMeaningOfRandomGraphsAndIsIdempotent) {
    for (int seed = 0; seed < random_graphs; ++seed) {
        const testing::RandomGraph random(static_cast<std::uint64_t>(seed));
        const Graph expanded = expand(random.graph, every_composite);
        verify(expanded, "expand");
        ASSERT_EQ(results(expanded, random.feed), results(random.graph, random.feed)) << "seed " << seed;
        ASSERT_EQ(print(expand(expanded, every_composite)), print(expanded)) << "seed " << seed;
    }
}

TEST(Simplify, MergesEqualNodesAndDropsTheUnused) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {2, 3}}));
    exp(x);
    graph.add_result("y", (tanh(x) + tanh(x)).value());
    EXPECT_EQ(print(simplify(graph)),
              "%0: f32[2, 3] = input() {dtype=f32, name=x, shape=[2, 3]}\n"
              "%1: f32[2, 3] = tanh(%x)\n"
              "%2: f32[2, 3] = add(%1, %1)\n"
              "result y = %2\n");
}

TEST(Simplify, LiteralsOfEqualBytesAreOne) {
    Graph graph;
    std::vector<double> numbers(100, 0.5);
    const auto table = [&] { return literal(graph, numbers, DType::f32, {100}); };
    const Tensor x = table(), same = table();
    numbers[99] = 0.25;
    const Tensor other = table();
    graph.add_result("y", (x + same).value());
    graph.add_result("z", (x + other).value());
    const Graph simple = simplify(graph);
    EXPECT_EQ(simple.size(), 4u) << print(simple);
    EXPECT_EQ(results(simple, {}), results(graph, {}));
}

TEST(Simplify, KeepsAdditionOfZeroSinceItChangesTheSignOfZero) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {1}}));
    graph.add_result("y", (x + 0.0).value());
    const ReferenceRun run(simplify(graph), {{"x", {-0.0}}});
    EXPECT_FALSE(std::signbit(results(simplify(graph), {{"x", {-0.0}}})[0][0]));
}

TEST(Simplify, KeepsACastToANarrowerFormatAndBackSinceItRounds) {
    for (const DType narrow : {DType::bf16, DType::f16}) {
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::f32, {1}}));
        graph.add_result("y", (cast(cast(x * 2.0, narrow), DType::f32) * 0.5).value());
        const ReferenceFeed feed{{"x", {1 + 0x1p-20}}};
        EXPECT_EQ(results(simplify(graph), feed)[0][0], 1) << name_of(narrow);
    }
}

TEST(Simplify, TellsConstantsApartInTheirLastDigitAndTheirSign) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f64, {1}}));
    graph.add_result("a", (x * 1.0000001).value());
    graph.add_result("b", (x * 1.0000005).value());
    graph.add_result("c", (x - -0.0).value());
    const ReferenceFeed feed{{"x", {1}}}, zero{{"x", {-0.0}}};
    EXPECT_EQ(results(simplify(graph), feed), results(graph, feed));
    EXPECT_FALSE(std::signbit(results(simplify(graph), zero)[2][0]));
}

/// The state may be replaced before the result is read: what is computed of it is no longer what it is.
TEST(Simplify, LeavesResultsAndUpdatesComputedWhereTheyWouldBecomeSources) {
    Graph graph;
    const auto state = [&](const char* name) {
        return Tensor(graph, graph.add_state({.kind = State::Kind::optimizer,
                                              .name = name,
                                              .type = {DType::f32, {2, 3}},
                                              .initializer = {}}));
    };
    const Tensor a = state("a"), b = state("b");
    graph.add_result("same", call1("cast", {a}, {{"dtype", DType::f32}}).value());
    graph.add_result("view", reshape((a * 1.0) * 1.0, {6}).value());
    graph.add_result("inside", exp(a * 1.0).value());
    graph.add_update(graph.find_state("a"), (b * 1.0).value());
    graph.add_update(graph.find_state("b"), exp(b).value());
    const Graph simple = simplify(graph);
    EXPECT_EQ(print(simple),
              "%0: f32[2, 3] = state() {dtype=f32, name=a, shape=[2, 3]}\n"
              "%1: f32[2, 3] = state() {dtype=f32, name=b, shape=[2, 3]}\n"
              "%2: f32[2, 3] = cast(%a) {dtype=f32}\n"
              "%4: f32[2, 3] = mul(%a, 1)\n"
              "%5: f32[6] = reshape(%4) {shape=[6]}\n"
              "%6: f32[2, 3] = exp(%a)\n"
              "%7: f32[2, 3] = mul(%b, 1)\n"
              "%8: f32[2, 3] = exp(%b)\n"
              "result same = %2\n"
              "result view = %5\n"
              "result inside = %6\n"
              "update a = %7\n"
              "update b = %8\n");
    EXPECT_EQ(print(simplify(simple)), print(simple));
    EXPECT_NO_THROW(plan_memory(simple, {}));
}

TEST(Simplify, KeepsInputsAndStatesEvenUnused) {
    Graph graph;
    graph.add_input("x", {DType::f32, {1}});
    graph.add_state({.name = "w", .type = {DType::f32, {1}}, .initializer = {}});
    const Graph simple = simplify(graph);
    EXPECT_EQ(simple.inputs().size(), 1u);
    EXPECT_EQ(simple.find_state("w"), 0);
}

TEST(Pipeline, OptionalPassesAreChosenByName) {
    PipelineOptions options;
    choose_passes(options, std::vector<std::string>{"fuse", "fuse_linear_cross_entropy"});
    EXPECT_TRUE(options.fuse && options.fuse_linear_cross_entropy);
    EXPECT_FALSE(options.simplify || options.match_attention || options.pad);
    try {
        choose_passes(options, std::vector<std::string>{"fuse", "differentiate"});
        FAIL() << "differentiate was taken for an optional pass";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(),
                     "there is no optional pass 'differentiate'; there are: match_attention, "
                     "fuse_linear_cross_entropy, "
                     "simplify, pad, lay_out, fuse");
    }
}

TEST(Pipeline, AStepComputesNothingThatNobodyReads) {
    const TraceModel model = testing::traced_gpt2(nn::gpt2_config("gpt2-tiny"), {2, 8});
    for (const PipelineOptions& options : {PipelineOptions{}, PipelineOptions{.fuse = true}}) {
        const Graph graph = build_training_step(model, optimizer_update(adamw()), options).graph;
        const std::vector<bool> live = live_nodes(graph);
        for (NodeId id = 0; id < graph.end(); ++id)
            EXPECT_TRUE(live[static_cast<std::size_t>(id)] || is_from_outside(graph.node(id)))
                << print(graph, id) << (options.fuse ? ", fused" : "");
    }
}

TEST(Differentiate, ALossMustBeAScalar) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {2}}));
    try {
        differentiate(graph, x);
        FAIL() << "a vector was taken for a loss";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "a loss must be a floating-point scalar, got f32[2]");
    }
}

TEST(Differentiate, AParameterWithoutInfluenceHasZeroGradient) {
    Graph graph;
    const Tensor w(graph, graph.add_state({.name = "w", .type = {DType::f32, {2}}, .initializer = {}}));
    graph.add_state({.name = "unused", .type = {DType::f32, {3}}, .initializer = {}});
    const auto gradients = differentiate(graph, sum(w, {0}));
    const ReferenceRun run(graph, {{"w", {1, 2}}, {"unused", {1, 2, 3}}});
    EXPECT_EQ(run[gradients[0].gradient.value()].values, (std::vector<double>{1, 1}));
    EXPECT_EQ(run[gradients[1].gradient.value()].values, (std::vector<double>{0, 0, 0}));
}

}  // namespace
}  // namespace mantissa
