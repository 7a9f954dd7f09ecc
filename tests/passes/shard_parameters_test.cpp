// Parameters of which a run reads rounded copies alone: ranks keep parts, and copies travel.
#include "mantissa/passes/shard_parameters.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/distribute.h"

namespace mantissa {
namespace {

constexpr int ranks = 2;
const Shape whole{8, 300};  // two parts of 2,048 elements, a block of which the second fills up

enum class Read : std::uint8_t { copy, parameter };

/// The states of a step: a parameter, and the copy of it that lay_out made.
void add_states(Graph& graph) {
    graph.add_state({.name = "w", .type = {DType::f32, whole}, .initializer = {}});
    graph.add_state(
        {.kind = State::Kind::derived, .name = "bf16.w", .type = {DType::bf16, whole}, .initializer = {}});
}

Tensor state_of(Graph& graph, int index) { return {graph, {graph.state(index).node, 0}}; }

/// A step whose update doubles the parameter in parts, and makes its copy anew.
Graph step_that_reads(Read read) {
    Graph graph;
    add_states(graph);
    graph.add_result("y", exp(state_of(graph, read == Read::copy ? 1 : 0)).value());
    const Tensor part = call1("own_shard", {state_of(graph, 0)}, {{"ranks", std::int64_t{ranks}}}) * 2.0;
    const std::vector<Tensor> parts{part};
    const Tensor updated =
        all_gathered(graph, parts, std::vector<Shape>{whole}, {.ranks = ranks, .bucket_bytes = 1})[0];
    graph.add_update(0, updated.value());
    graph.add_update(1, cast(updated, DType::bf16).value());
    return graph;
}

Graph derive_copy() {
    Graph graph;
    add_states(graph);
    graph.add_update(1, cast(state_of(graph, 0), DType::bf16).value());
    return graph;
}

/// The types of what the graph puts together.
std::vector<Type> sent_in(const Graph& graph) {
    std::vector<Type> types;
    for (NodeId id = 0; id < graph.end(); ++id)
        if (graph.node(id).op->name == "all_gather_start")
            for (const Type& type : graph.input_types(graph.node(id))) types.push_back(type);
    return types;
}

TEST(KeepInParts, APartIsKeptAndItsCopyTravels) {
    const Graph graph = step_that_reads(Read::copy);
    ASSERT_EQ(sent_in(graph), (std::vector<Type>{{DType::f32, {2048}}}));
    const ShardedParameters kept = shard_parameters(graph, derive_copy(), ranks);
    verify(kept.graph, "shard_parameters");
    verify(kept.derive, "shard_parameters");
    EXPECT_EQ(kept.names, (std::set<std::string>{"w"}));
    EXPECT_EQ(kept.graph.state(0).type, (Type{DType::f32, {2048}}));
    EXPECT_EQ(kept.graph.state(0).shard_of, whole);
    EXPECT_EQ(kept.graph.state(1).type, (Type{DType::bf16, whole}));
    EXPECT_EQ(sent_in(kept.graph), (std::vector<Type>{{DType::bf16, {2048}}})) << "half the bytes";
    ASSERT_EQ(kept.graph.updates().size(), 2u);
    for (const Update& update : kept.graph.updates())
        EXPECT_EQ(kept.graph.node(update.value.node).op->name, update.state == 0 ? "mul" : "all_gather_wait");
    EXPECT_EQ(sent_in(kept.derive), (std::vector<Type>{{DType::bf16, {2048}}}));
    EXPECT_EQ(kept.derive.state(0).shard_of, whole);
}

TEST(KeepInParts, AParameterThatIsReadItselfStaysWhole) {
    const Graph graph = step_that_reads(Read::parameter);
    const ShardedParameters kept = shard_parameters(graph, derive_copy(), ranks);
    EXPECT_TRUE(kept.names.empty());
    EXPECT_EQ(print(kept.graph), print(graph));
    EXPECT_EQ(sent_in(kept.derive), std::vector<Type>{});
    EXPECT_FALSE(kept.derive.state(0).shard_of);
}

TEST(KeepInParts, AGraphThatReadsWhatIsKeptInPartsIsRefused) {
    Graph reads;
    add_states(reads);
    reads.add_result("y", exp(state_of(reads, 1)).value());
    const Graph parts = with_parts(reads, {"w"}, ranks);
    EXPECT_EQ(parts.state(0).shard_of, whole);
    reads.add_result("z", tanh(state_of(reads, 0)).value());
    try {
        with_parts(reads, {"w"}, ranks);
        FAIL() << "a parameter that ranks have parts of is read whole";
    } catch (const UserError& error) {
        EXPECT_EQ(
            std::string(error.what()),
            "'w' is read by tanh, but ranks have parts of it, since a training step reads copies alone: "
            "give `states` whole");
    }
}

}  // namespace
}  // namespace mantissa
