// Updates of many parameters as one node: the same numbers, written where the states lie.
#include "mantissa/passes/join_updates.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/graph/reference.h"
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/count_nodes.h"
#include "tests/support/op_cases.h"

namespace mantissa {
namespace {

using testing::count;

const auto anything = [](const Graph&, const Node&) { return true; };

/// A step of a small GPT-2, laid out so that matrices have copies in BF16.
Graph step_with(const Optimizer& optimizer, bool joins) {
    PipelineOptions options{.policy = find_policy("bf16"), .simplify = true, .lay_out = true, .fuse = joins};
    return build_training_step(testing::traced_gpt2(testing::small_gpt2(2, 8, 7), {2, 5}),
                               optimizer_update(optimizer), options, {.target = {.joins_updates = joins}})
        .graph;
}

ReferenceFeed positive_feed(const Graph& graph) {
    ReferenceFeed feed;
    std::uint32_t which = 1;
    const auto values = [&](const Type& type) {
        return testing::values_of(type.dtype == DType::i32
                                      ? testing::ids(type.shape, 7)
                                      : testing::Operand{type, testing::Values::positive},
                                  which++);
    };
    for (const NodeId id : graph.inputs())
        feed[graph.node(id).attributes.word("name")] = values(graph.node(id).outputs[0]);
    for (const State& state : graph.states()) feed[state.name] = values(state.type);
    return feed;
}

TEST(JoinUpdates, ReadsLikeThis) {
    Graph graph;
    std::vector<Tensor> states;
    for (const char* const name : {"a", "b"}) {
        const Type type{DType::f32, name[0] == 'a' ? Shape{3} : Shape{2, 2}};
        states.emplace_back(
            graph,
            graph.add_state({.kind = State::Kind::parameter, .name = name, .type = type, .initializer = {}}));
    }
    const Tensor rate(graph, graph.add_input("rate", {DType::f32, {}})),
        apply(graph, graph.add_input("apply", {DType::boolean, {}}));
    Origin update;
    update.stage = Stage::update;
    const OriginScope scope(graph, update);
    for (int i = 0; i < 2; ++i) {
        const Tensor& state = states[static_cast<std::size_t>(i)];
        graph.add_update(
            i, call1("sgd", {state, state, rate, rate, apply},
                     {{"dampening", 0.0}, {"momentum", 0.0}, {"nesterov", false}, {"weight_decay", 0.0}})
                   .value());
    }
    const Graph joined = join_updates(graph, anything);
    verify(joined, "join_updates");
    EXPECT_EQ(count(joined, "sgd"), 0);
    const std::string text = print(joined);
    EXPECT_NE(
        text.find(
            "f32[3], f32[2, 2] = joined_updates(%a, %a, %rate, %rate, %apply, %b, %b, %rate, %rate, %apply) "
            "{dampening=0, momentum=0, nesterov=false, parts=2, update=sgd, weight_decay=0}"),
        std::string::npos)
        << text;
    EXPECT_EQ(print(join_updates(joined, anything)), text);
    // Nobody may run it: it stays.
    EXPECT_EQ(print(join_updates(graph, [](const Graph&, const Node&) { return false; })), print(graph));
}

TEST(JoinUpdates, KeepEveryBitOfAStepAndAreWrittenInPlace) {
    for (const Optimizer& optimizer : {adamw(), sgd({}), sgd({.momentum = 0.9})}) {
        const Graph apart = step_with(optimizer, false), fused = step_with(optimizer, true);
        // The table of tokens, without a copy, is the only one of its kind.
        EXPECT_LE(count(fused, optimizer.name), 1) << optimizer.name;
        EXPECT_GE(count(fused, "joined_updates"), 2);
        EXPECT_EQ(count(apart, "joined_updates"), 0) << "it is asked for";
        const Graph joined = join_updates(apart, anything);
        verify(joined, "join_updates");
        const int alone = count(joined, optimizer.name);
        EXPECT_EQ(alone, count(fused, optimizer.name));
        EXPECT_EQ(joined.size(),
                  apart.size() - count(apart, optimizer.name) + alone + count(joined, "joined_updates"));
        const ReferenceFeed feed = positive_feed(apart);
        const ReferenceRun expected(apart, feed), got(joined, feed);
        EXPECT_TRUE(got.next(feed) == expected.next(feed)) << optimizer.name;
        EXPECT_EQ(plan_memory(joined).copied_updates, plan_memory(apart).copied_updates);
    }
}

TEST(JoinUpdates, WhatOthersReadOrDiffersStays) {
    Graph read = step_with(adamw(), false);
    const auto is_update = [&](NodeId id) { return read.node(id).op->name == "adamw"; };
    NodeId first = 0;
    while (!is_update(first)) ++first;
    const int before = count(join_updates(read, anything), "adamw");
    const Tensor doubled = Tensor(read, {first, 0}) + Tensor(read, {first, 0});
    read.add_result("doubled", doubled.value());
    const Graph joined = join_updates(read, anything);
    verify(joined, "join_updates");
    EXPECT_EQ(count(joined, "adamw"), before + 1);
}

}  // namespace
}  // namespace mantissa
