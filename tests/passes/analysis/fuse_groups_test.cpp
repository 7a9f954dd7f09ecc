// The nodes that go into one nest: what a group holds, what crosses its border, and why others stay apart.
#include "mantissa/passes/analysis/fuse_groups.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/graph/tensor.h"

namespace mantissa {
namespace {

/// Groups are worth a kernel whatever they save.
constexpr FusionCosts any_size{.min_bytes_saved = 0};

struct Chain {
    Graph graph;
    Tensor x{graph, graph.add_input("x", {DType::f32, {4, 8}})};
    Tensor w{graph, graph.add_input("w", {DType::f32, {8, 8}})};
};

TEST(FuseGroups, WhatReadsWhatWasMadeJoinsItsGroup) {
    Chain c;
    const Tensor a = exp(c.x), b = a * c.x, d = tanh(b);
    c.graph.add_result("d", d.value());
    c.graph.add_result("b", b.value());
    std::vector<PassRefusal> refused;
    const Grouping grouping(c.graph, any_size, refused);
    const int group = grouping.group_of(d.value().node);
    ASSERT_GE(group, 0);
    const Nodes& members = grouping.groups()[static_cast<std::size_t>(group)];
    EXPECT_EQ(members, (Nodes{a.value().node, b.value().node, d.value().node}));
    const Border border = grouping.border(members);
    EXPECT_EQ(border.inputs, (std::vector<Value>{c.x.value()}));
    EXPECT_EQ(border.outputs, (std::vector<Value>{b.value(), d.value()})) << "a is read inside alone";
    // Alone: exp reads and writes, mul reads two and writes, tanh reads and writes; together one and two.
    EXPECT_EQ(grouping.bytes_saved(members, border), (7 - 3) * 4 * 8 * 4);
    EXPECT_EQ(grouping.group_of(c.x.value().node), -1);
    EXPECT_EQ(grouping.group_of(-1), -1);
}

TEST(FuseGroups, NoPathLeadsOutOfAGroupAndBack) {
    Chain c;
    const Tensor a = exp(c.x), product = matmul(a, c.w), sum = a + product;
    c.graph.add_result("sum", sum.value());
    std::vector<PassRefusal> refused;
    const Grouping grouping(c.graph, any_size, refused);
    EXPECT_GE(grouping.group_of(a.value().node), 0);
    EXPECT_NE(grouping.group_of(a.value().node), grouping.group_of(sum.value().node));
    EXPECT_EQ(grouping.group_of(product.value().node), -1);
    ASSERT_EQ(refused.size(), 1u);
    EXPECT_EQ(refused[0].op, "add");
    EXPECT_EQ(refused[0].reason, "something between it and the nodes beside it is no part of a nest");
}

TEST(FuseGroups, AGroupThatSavesTooLittleIsNone) {
    Chain c;
    const Tensor a = exp(c.x), b = tanh(a);
    c.graph.add_result("b", b.value());
    std::vector<PassRefusal> refused;
    const Grouping grouping(c.graph, {.min_bytes_saved = 4096}, refused);
    EXPECT_EQ(grouping.group_of(a.value().node), -1);
    ASSERT_EQ(refused.size(), 1u);
    EXPECT_EQ(refused[0].reason,
              "a kernel would save 256 bytes, less than the 4096 that compiling it is worth");
}

TEST(FuseGroups, OperandsOfAKernelAreCounted) {
    Chain c;
    Tensor sum = c.x;
    for (int i = 0; i < 4; ++i)
        sum = sum + Tensor(c.graph, c.graph.add_input("y" + std::to_string(i), c.x.type()));
    c.graph.add_result("sum", sum.value());
    std::vector<PassRefusal> refused;
    const Grouping grouping(c.graph, {.min_bytes_saved = 0, .max_operands = 4}, refused);
    ASSERT_FALSE(refused.empty());
    EXPECT_EQ(refused[0].reason, "5 operands and outputs; up to 4 have addresses in registers");
}

TEST(FuseGroups, CountersAndConstantsBelongToEveryUser) {
    Chain c;
    const Tensor positions = iota(c.graph, {4, 8}, 1, DType::f32);
    const Tensor a = c.x + positions;
    c.graph.add_result("a", a.value());
    std::vector<PassRefusal> refused;
    const Grouping grouping(c.graph, any_size, refused);
    EXPECT_TRUE(grouping.from_source(positions.value()));
    EXPECT_FALSE(grouping.from_source(a.value()));
    const Border border = grouping.border({a.value().node});
    EXPECT_EQ(border.inputs, (std::vector<Value>{c.x.value()}));
}

}  // namespace
}  // namespace mantissa
