// Element-wise work on what a contraction makes becomes its epilogue, or stays with a reason.
#include "mantissa/passes/fuse_epilogues.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"
#include "tests/support/passes.h"

namespace mantissa {
namespace {

enum class Product : std::uint8_t { hidden, shown };

/// tanh of a product, as fuse leaves it.
Graph product_and_epilogue(Product product = Product::hidden, DType dtype = DType::f32) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {dtype, {4, 8}})),
        w(graph, graph.add_input("w", {dtype, {8, 6}}));
    const Tensor made = matmul(x, w);
    Graph body;
    const Tensor in(body, body.add_input("in0", made.type()));
    body.add_result("out0", tanh(in).value());
    const NodeId fused = graph.add("fused", {made.value()}, {{"body", Body(std::move(body))}});
    graph.add_result("y", {fused, 0});
    if (product == Product::shown) graph.add_result("product", made.value());
    return graph;
}

TEST(FuseEpilogues, AContractionAndWhatReadsItBecomeOneNode) {
    const Graph graph = product_and_epilogue();
    const Fusion fusion = fuse_epilogues(graph, testing::any_size());
    verify(fusion.graph, "fuse_epilogues");
    EXPECT_EQ(fusion.kernels, 1);
    EXPECT_EQ(fusion.bytes_saved, 2 * 4 * 6 * 4) << "the product is neither written nor read";
    ASSERT_EQ(fusion.graph.size(), 3u);
    const Node& both = fusion.graph.node(2);
    ASSERT_EQ(both.op->name, "fused");
    EXPECT_EQ(both.inputs.size(), 2u);
    EXPECT_EQ(both.outputs.size(), 1u);
    EXPECT_GE(contraction_of(both.attributes.body("body").graph()), 0);
    EXPECT_EQ(print(fuse_epilogues(fusion.graph, testing::any_size()).graph), print(fusion.graph));
}

TEST(FuseEpilogues, WhatOthersReadOfTheContractionIsASecondOutput) {
    const Fusion fusion = fuse_epilogues(product_and_epilogue(Product::shown), testing::any_size());
    verify(fusion.graph, "fuse_epilogues");
    EXPECT_EQ(fusion.bytes_saved, 4 * 6 * 4) << "it is written";
    EXPECT_EQ(fusion.graph.node(2).outputs.size(), 2u);
    EXPECT_EQ(fusion.graph.results()[1].value, (Value{2, 1}));
}

TEST(FuseEpilogues, WhereNoEpilogueIsAttachedThereIsAReason) {
    const auto reason = [](const Graph& graph, const Machine& machine) {
        const Fusion fusion = fuse_epilogues(graph, machine);
        EXPECT_EQ(print(fusion.graph), print(graph));
        return fusion.refused.size() == 1 ? fusion.refused[0].reason : "no reason";
    };
    Machine machine = testing::any_size();
    machine.target.cannot_attach_epilogues = "none here";
    EXPECT_EQ(reason(product_and_epilogue(), machine), "none here");
    machine = testing::any_size();
    machine.target.epilogues_lose_at_16_bits = "tiles wait";
    EXPECT_EQ(reason(product_and_epilogue(Product::hidden, DType::bf16), machine), "tiles wait");
    EXPECT_EQ(fuse_epilogues(product_and_epilogue(), machine).kernels, 1) << "of 32 bits";
    EXPECT_EQ(reason(product_and_epilogue(), {}),
              "a kernel would save 192 bytes, less than the 32768 that compiling it is worth");
    machine = testing::any_size();
    machine.target.attaches_few_epilogues = "the library has no such epilogue";
    machine.kernel_of = [](const Graph&, const Node&) { return KernelAnswer{.why_none = "none"}; };
    EXPECT_EQ(reason(product_and_epilogue(), machine), "the library has no such epilogue");
    machine.kernel_of = Machine{}.kernel_of;
    EXPECT_EQ(fuse_epilogues(product_and_epilogue(), machine).kernels, 1);
}

TEST(FuseEpilogues, AEpilogueThatWaitsForWhatFollowsFromTheContractionStays) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 4}}));
    const Tensor first = matmul(x, x), second = matmul(first, x);
    Graph body;
    const Tensor a(body, body.add_input("in0", first.type())), b(body, body.add_input("in1", first.type()));
    body.add_result("out0", (a + b).value());
    const NodeId sum = graph.add("fused", {second.value(), first.value()}, {{"body", Body(std::move(body))}});
    graph.add_result("y", {sum, 0});
    const Fusion fusion = fuse_epilogues(graph, testing::any_size());
    verify(fusion.graph, "fuse_epilogues");
    EXPECT_EQ(fusion.kernels, 1);
    // The later of the two takes it; the earlier one stands before it.
    EXPECT_EQ(fusion.graph.node(1).op->name, "matmul");
    EXPECT_EQ(fusion.graph.node(2).op->name, "fused");
}

}  // namespace
}  // namespace mantissa
