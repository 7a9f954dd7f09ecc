// Values of the forward pass that nests behind it compute again: where that saves traffic, and not elsewhere.
#include "mantissa/passes/recompute_in_nests.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/graph/tensor.h"

namespace mantissa {
namespace {

/// exp(x) * x, whose exponential a backward pass reads once more beside x; kept, if others read it, too.
struct Step {
    explicit Step(bool is_shown) {
        const Tensor x(graph, graph.add_input("x", {DType::f32, {64, 64}}));
        const Tensor e = exp(x), y = e * x;
        graph.add_result("y", y.value());
        if (is_shown) graph.add_result("e", e.value());
        exponential = e.value().node;
        graph.origin.stage = Stage::backward;
        const Tensor dy(graph, graph.add_input("dy", {DType::f32, {64, 64}}));
        // A product between the passes, without which both would be one nest.
        const Tensor between = matmul(y, dy);
        graph.add_result("dx", (between * e * x).value());
    }

    NestRecomputation recomputed(double instructions_per_byte) const {
        std::vector<PassRefusal> refused;
        const FusionCosts costs{.min_bytes_saved = 0};
        const Grouping grouping(graph, costs, refused);
        return recompute_in_nests(graph, grouping, instructions_per_byte);
    }

    Graph graph;
    NodeId exponential = -1;
};

int count_at(const Graph& graph, std::string_view op, Stage stage) {
    int found = 0;
    for (NodeId id = 0; id < graph.end(); ++id)
        found += graph.node(id).op->name == op && graph.node(id).origin.stage == stage ? 1 : 0;
    return found;
}

TEST(RecomputeInNests, WhatOnlyTheOtherPassReadsIsComputedThereAgain) {
    const Step step(false);
    const NestRecomputation done = step.recomputed(1e9);
    verify(done.graph, "recompute_in_nests");
    EXPECT_EQ(done.values, 1);
    EXPECT_EQ(count_at(done.graph, "exp", Stage::forward), 1);
    EXPECT_EQ(count_at(done.graph, "exp", Stage::backward), 1);
    constexpr std::int64_t bytes = 64 * 64 * 4;
    EXPECT_EQ(done.bytes_not_kept, bytes) << "x is kept either way";
    EXPECT_EQ(done.bytes_not_moved, 2 * bytes) << "written once and read once; x is read there anyway";
}

TEST(RecomputeInNests, WhatLiesInMemoryAnywayIsRead) {
    const Step step(true);
    const NestRecomputation done = step.recomputed(1e9);
    EXPECT_EQ(done.values, 0);
    EXPECT_EQ(print(done.graph), print(step.graph));
}

TEST(RecomputeInNests, WhatTakesLongerThanMovingItIsRead) {
    const Step step(false);
    EXPECT_EQ(step.recomputed(0).values, 0);
}

}  // namespace
}  // namespace mantissa
