// The memory plan against lifetimes worked out by code of its own.
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <map>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/gpt2.h"
#include "tests/support/random_draws.h"
#include "tests/support/random_graph.h"

namespace mantissa {
namespace {

/// The largest sum of live bytes over all nodes, found by walking the graph backwards from each use: which is
/// another way than the planner's, which walks forwards.
std::int64_t largest_live_sum(const Graph& graph, const MemoryPlan& plan) {
    std::map<Value, NodeId> last;  // by owner of the memory
    const auto owner = [&](Value value) {
        while (is_view(graph, graph.node(value.node))) value = graph.node(value.node).inputs[0];
        return value;
    };
    const NodeId end = static_cast<NodeId>(graph.size());
    const auto use = [&](Value value, NodeId at) {
        NodeId& known = last.try_emplace(owner(value), at).first->second;
        known = std::max(known, at);
    };
    for (const Result& result : graph.results()) use(result.value, end);
    for (int index : plan.copied_updates) use(graph.updates()[static_cast<std::size_t>(index)].value, end);
    for (NodeId id = end; id-- > 0;)
        for (const Value& input : graph.node(id).inputs) use(input, id);
    std::vector<std::int64_t> live(graph.size() + 1);
    for (NodeId id = 0; id < end; ++id) {
        if (is_view(graph, graph.node(id))) continue;
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.node(id).outputs.size()); ++i) {
            const Value value{id, i};
            if (plan.place(value).kind != Place::Kind::arena) continue;
            const NodeId until = last.contains(value) ? last[value] : id;
            for (NodeId at = id; at <= std::min(until, end); ++at)
                live[static_cast<std::size_t>(at)] += align_up(graph.type(value).bytes(), 64);
        }
    }
    return *std::max_element(live.begin(), live.end());
}

Graph adamw_step(const nn::Gpt2Config& config, std::int64_t batch, std::int64_t sequence) {
    return build_training_step(testing::traced_gpt2(config, {batch, sequence}), optimizer_update(adamw()))
        .graph;
}

TEST(MemoryPlan, ArenaIsWithinFivePercentOfTheLargestLiveSum) {
    for (const char* model : {"gpt2-tiny", "gpt2-124m"})
        for (std::int64_t sequence : {37, 256}) {
            const Graph graph = adamw_step(nn::gpt2_config(model), 4, sequence);
            const MemoryPlan plan = plan_memory(graph);
            const std::int64_t bound = largest_live_sum(graph, plan);
            EXPECT_GE(plan.arena_bytes, bound);
            EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.05 * static_cast<double>(bound))
                << model << " at sequence " << sequence;
        }
}

TEST(MemoryPlan, LiteralsHavePlacesOfTheirOwnAndDoNotRun) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4}}));
    const Tensor table = literal(graph, {1, 2, 3, 4}, DType::f32, {4});
    graph.add_result("y", (x * table).value());
    const MemoryPlan plan = plan_memory(graph);
    EXPECT_EQ(plan.place(table.value()).kind, Place::Kind::constant);
    EXPECT_EQ(plan.constants, std::vector{table.value().node});
    EXPECT_EQ(plan.state_bytes, 64);
    EXPECT_EQ(plan.arena_bytes, 64);
}

TEST(MemoryPlan, RandomGraphsNeverShareMemoryWhileBothLive) {
    for (int seed = 0, draws = testing::random_draws(300); seed < draws; ++seed) {
        const testing::RandomGraph random(static_cast<std::uint64_t>(seed));
        const MemoryPlan plan =
            plan_memory(random.graph, {.workspace = [](NodeId id) { return id % 3 == 0 ? 100 : 0; }});
        check_no_overlap(plan);
        EXPECT_GE(plan.arena_bytes, largest_live_sum(random.graph, plan));
    }
}

TEST(MemoryPlan, APlantedWrongLifetimeIsCaught) {
    // Two values that follow one another share memory; let the first live one node longer, as a plan made
    // with a wrong lifetime would have to be read.
    const Graph graph = adamw_step(nn::gpt2_config("gpt2-tiny"), 2, 16);
    MemoryPlan plan = plan_memory(graph);
    int caught = 0;
    for (Allocation& allocation : plan.allocations) {
        const NodeId last = allocation.last;
        allocation.last = static_cast<NodeId>(graph.size());
        try {
            check_no_overlap(plan);
        } catch (const InternalError&) {
            ++caught;
        }
        allocation.last = last;
    }
    EXPECT_GT(caught, static_cast<int>(plan.allocations.size()) / 2);
}

TEST(MemoryPlan, UpdatesOfATrainingStepAreWrittenInPlace) {
    const Graph graph = adamw_step(nn::gpt2_config("gpt2-tiny"), 2, 16);
    const MemoryPlan plan = plan_memory(graph);
    // All but the counter, whose new value is chosen between two scalars.
    ASSERT_EQ(plan.copied_updates.size(), 1u);
    const Update& copied = graph.updates()[static_cast<std::size_t>(plan.copied_updates[0])];
    EXPECT_EQ(graph.states()[static_cast<std::size_t>(copied.state)].name, "adamw.step");
}

TEST(MemoryPlan, KeysAndValuesAreWrittenInPlace) {
    Graph graph;
    const Tensor tokens(graph, graph.add_input("tokens", {DType::i32, {1, 3}})),
        positions(graph, graph.add_input("positions", {DType::i32, {1, 3}}));
    graph.add_result("logits", nn::gpt2_next_logits(nn::gpt2_config("gpt2-tiny"), tokens, positions).value());
    EXPECT_EQ(graph.updates().size(), 8u);  // of four layers
    EXPECT_TRUE(plan_memory(graph).copied_updates.empty());
}

TEST(MemoryPlan, AStateThatIsReadLaterIsNotWrittenOver) {
    Graph graph;
    const Tensor s(graph, graph.add_state({.name = "s", .type = {DType::f32, {4}}, .initializer = {}}));
    const Tensor next = s + 1.0;
    graph.add_update(0, next.value());
    graph.add_result("old", exp(s).value());  // reads s after `next` was made
    EXPECT_EQ(plan_memory(graph).copied_updates.size(), 1u);
}

TEST(MemoryPlan, AStateOfWhichAnotherOperandIsAPartIsNotWrittenOver) {
    Graph graph;
    const Tensor s(graph, graph.add_state({.name = "s", .type = {DType::f32, {4, 6}}, .initializer = {}}));
    const Tensor less_first = s - slice(s, 0, 0, 1);  // of every row, the first
    graph.add_update(0, less_first.value());
    EXPECT_EQ(plan_memory(graph).copied_updates.size(), 1u);
    graph.replace_update(0, (s - 1.0).value());
    EXPECT_EQ(plan_memory(graph).copied_updates.size(), 0u);
}

TEST(MemoryPlan, AnUpdateThatDoesNotReadItsStateIsWrittenInPlace) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4}}));
    const Tensor s(graph, graph.add_state({.name = "s", .type = {DType::f32, {4}}, .initializer = {}}));
    const Tensor t(graph, graph.add_state({.name = "t", .type = {DType::f32, {4}}, .initializer = {}}));
    graph.add_result("sum", (s + t).value());
    const Tensor next = exp(x);
    graph.add_update(0, next.value());
    graph.add_update(1, next.value());  // one value, two states: made in the first, copied to the second
    const MemoryPlan plan = plan_memory(graph);
    EXPECT_EQ(plan.copied_updates, std::vector<int>{1});
    EXPECT_EQ(plan.place(next.value()).kind, Place::Kind::state);
    EXPECT_EQ(plan.place(next.value()).index, 0);
}

TEST(MemoryPlan, AResultThatTheRunReplacesIsRefused) {
    Graph graph;
    const Tensor s(graph, graph.add_state({.name = "s", .type = {DType::f32, {4}}, .initializer = {}}));
    graph.add_update(0, (s + 1.0).value());
    graph.add_result("s", reshape(s, {2, 2}).value());
    EXPECT_THROW(plan_memory(graph), InternalError);
}

TEST(MemoryPlan, ViewsHaveNoMemoryOfTheirOwn) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {6, 4}}));
    const auto parts = split(exp(x), 0, 3);
    graph.add_result("y", reshape(parts[1], {8}).value());
    const MemoryPlan plan = plan_memory(graph);
    EXPECT_EQ(plan.allocations.size(), 1u);
    EXPECT_EQ(plan.place(graph.results()[0].value).offset,
              2 * 4 * 4);  // the second of three parts of 2 x 4 floats
}

/// Every kernel may write its only output over its first operand.
const KernelMemory first_operand{.may_write_over = [](NodeId) { return std::vector<std::vector<int>>{{0}}; }};

TEST(MemoryPlan, AnOutputTakesThePlaceOfAnOperandThatNobodyReadsLater) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 6}}));
    const Tensor a = exp(x), b = tanh(a), c = tanh(reshape(b, {24}));
    graph.add_result("y", (c + 1.0).value());
    const MemoryPlan plan = plan_memory(graph, first_operand);
    EXPECT_EQ(plan.allocations.size(), 1u);  // x itself is the caller's
    EXPECT_EQ(plan.arena_bytes, align_up(4 * 6 * 4, 64));
    EXPECT_EQ(plan.place(graph.results()[0].value).kind, Place::Kind::arena);
    EXPECT_EQ(plan_memory(graph).allocations.size(), 4u);
}

TEST(MemoryPlan, WhatIsReadLaterOrTwiceOrIsLargerIsNotWrittenOver) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 6}}));
    const Tensor a = exp(x);
    const Tensor later = tanh(a);                 // a is read below
    const Tensor twice = a + reshape(a, {4, 6});  // one memory behind two operands
    const Tensor small = cast(twice, DType::bf16);
    const Tensor part = exp(slice(later, 0, 0, 2));  // a view of half of it
    graph.add_result("small", small.value());
    graph.add_result("part", part.value());
    graph.add_result("later", later.value());
    EXPECT_EQ(plan_memory(graph, first_operand).allocations.size(), 5u);
}

TEST(MemoryPlan, OfAPartOnlyTheBeginningIsWrittenOver) {
    for (const std::int64_t start : {0, 2}) {
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 6}}));
        const Tensor y = tanh(slice(exp(x), 0, start, start + 2));
        graph.add_result("y", y.value());
        const MemoryPlan plan = plan_memory(graph, first_operand);
        EXPECT_EQ(plan.allocations.size(), start == 0 ? 1u : 2u);
    }
}

}  // namespace
}  // namespace mantissa
