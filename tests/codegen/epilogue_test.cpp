// Contractions with an element-wise epilogue: what joins them, and that they compute what both would apart.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/random.h"
#include "mantissa/codegen/loop_nest.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/simplify.h"
#include "mantissa/runtime/plan.h"
#include "tests/support/fused_graph.h"
#include "tests/support/run_graph.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::fused;
using testing::given;
using testing::levels;
using testing::loaded;
using testing::run;

/// Whole numbers from -3 to 3: their sums and products are exact in every format here.
std::vector<double> whole_numbers(std::int64_t count, std::uint32_t which) {
    const RandomStream random{.seed = 5, .step = 0, .operation = which};
    std::vector<double> all;
    for (std::int64_t i = 0; i < count; ++i)
        all.push_back(static_cast<double>(random.bits(static_cast<std::uint64_t>(i)) % 7) - 3);
    return all;
}

ReferenceFeed whole_feed(const Graph& graph) {
    ReferenceFeed feed;
    for (NodeId id : graph.inputs()) {
        const std::string name = graph.node(id).attributes.word("name");
        feed[name] = whole_numbers(graph.node(id).outputs[0].shape.elements(),
                                   static_cast<std::uint32_t>(feed.size()));
    }
    return feed;
}

std::vector<const Node*> nodes_of(const Graph& graph, std::string_view op) {
    std::vector<const Node*> found;
    for (std::size_t id = 0; id < graph.size(); ++id)
        if (graph.node(static_cast<NodeId>(id)).op->name == op)
            found.push_back(&graph.node(static_cast<NodeId>(id)));
    return found;
}

TEST(Epilogue, GeluIsComputedOnTheSumsAndTheInputOfItsGradientIsWrittenToo) {
    Graph graph;
    const DType low = DType::bf16;
    const Tensor x = given(graph, "x", {8, 16}, low), w = given(graph, "w", {24, 16}, low);
    const Tensor u = matmul(x, w, {.transpose_b = true, .bias = given(graph, "bias", {24}, low)});
    graph.add_result("y", gelu(u).value());
    graph.add_result("u", u.value());
    const Graph one = fused(graph);
    EXPECT_TRUE(nodes_of(one, "matmul").empty());
    ASSERT_EQ(nodes_of(one, "fused").size(), 1u);
    const Node& node = *nodes_of(one, "fused")[0];
    EXPECT_EQ(codegen::pseudo_code(codegen::lower(node.attributes.body("body").graph())),
              "(in0: f32, in1: bf16) -> (out0: bf16, out1: bf16), 24 columns\n"
              "of each block of sums of a contraction, in0:\n"
              "v8 = 0.044715\n"
              "v10 = 0.7978845608028654\n"
              "v13 = 1\n"
              "v15 = 0.5\n"
              "for each row r:\n"
              "  for each column c:\n"
              "    v2 = in0[r, c]\n"
              "    v0: bf16 = in1[c]\n"
              "    v1 = cast(v0)\n"
              "    v3 = add(v2, v1)\n"
              "    v4: bf16 = cast(v3)\n"
              "    v5 = cast(v4)\n"
              "    v16 = mul(v5, v15)\n"
              "    v6 = mul(v5, v5)\n"
              "    v7 = mul(v6, v5)\n"
              "    v9 = fma(v7, v8, v5)\n"
              "    v11 = mul(v9, v10)\n"
              "    v17 = times_one_plus_tanh(v16, v11)\n"
              "    v18: bf16 = cast(v17)\n"
              "    out0[r, c] = v18\n"
              "    out1[r, c] = v4\n");
}

/// Reads a graph's results at a level.
std::vector<std::vector<double>> computed(const Graph& graph, const ReferenceFeed& feed, Device& device) {
    std::vector<std::vector<double>> all;
    const auto results = run(graph, feed, device);
    for (std::size_t i = 0; i < results.size(); ++i)
        all.push_back(loaded(results[i], graph.type(graph.results()[i].value).dtype));
    return all;
}

struct Sizes {
    std::int64_t batch, m, n, k;
};

/// An epilogue of exact operations on a contraction, with a bias, an operand of each kind, the sums
/// themselves and their sum over rows as outputs.
void add_exact_epilogue(const Tensor& product, bool whole_sum) {
    Graph& graph = product.graph();
    const Tensor widened = cast(product, DType::f32);
    const std::int64_t columns = product.dim(-1);
    const Tensor y = select(less(widened, given(graph, "limit", {columns})), widened * 0.5,
                            maximum(widened, given(graph, "beside", product.shape())));
    graph.add_result("y", cast(y, product.dtype()).value());
    graph.add_result("product", product.value());
    if (!whole_sum) return;
    graph.add_result("total", sum(reshape(y, {-1, columns}), {0}).value());
}

Graph exact_epilogue(const Sizes& s, DType dtype, bool whole_sum) {
    Graph graph;
    const Shape a_shape = s.batch > 1 ? Shape{s.batch, s.m, s.k} : Shape{s.m, s.k};
    const Shape b_shape = s.batch > 1 ? Shape{s.batch, s.k, s.n} : Shape{s.k, s.n};
    add_exact_epilogue(matmul(given(graph, "a", a_shape, dtype), given(graph, "b", b_shape, dtype)),
                       whole_sum);
    return graph;
}

/// The same on the three products of a convolution of stride 2, in phases, and of one without.
std::vector<Graph> exact_convolution_epilogues(std::int64_t stride, DType dtype) {
    const Shape x{2, 9, 7, 11}, filter{3, 2, 11, 20};
    std::vector<Graph> graphs(3);
    Attributes attributes;
    {
        const Tensor y = conv2d(given(graphs[0], "a", x, dtype), given(graphs[0], "b", filter, dtype),
                                {.stride = {stride, stride}, .padding = {1, 1, 0, 1}});
        attributes = graphs[0].node(y.value().node).attributes;
        add_exact_epilogue(y, dtype == DType::f32);
    }
    const Shape dy = graphs[0].type(graphs[0].results()[0].value).shape;
    add_exact_epilogue(call1("conv2d_input_gradient",
                             {given(graphs[1], "a", dy, dtype), given(graphs[1], "b", filter, dtype)},
                             attributes.with("extents", std::vector<std::int64_t>{x[1], x[2]})),
                       dtype == DType::f32);
    add_exact_epilogue(
        call1("conv2d_filter_gradient", {given(graphs[2], "a", x, dtype), given(graphs[2], "b", dy, dtype)},
              attributes.with("window", std::vector<std::int64_t>{filter[0], filter[1]})),
        dtype == DType::f32);
    return graphs;
}

constexpr Sizes awkward[] = {{1, 2, 2, 1},      {1, 7, 31, 5},  {1, 17, 33, 40}, {1, 97, 130, 67},
                             {1, 300, 49, 800}, {3, 13, 20, 9}, {9, 5, 67, 3},   {1, 513, 400, 12}};

/// With the epilogue attached, at every level, on numbers whose sums are exact.
void expect_exact_epilogue(const Graph& graph, const std::string& what) {
    const ReferenceFeed feed = whole_feed(graph);
    const ReferenceRun reference(graph, feed);
    const Graph one = fused(graph);
    for (const char* op : {"matmul", "conv2d", "conv2d_input_gradient", "conv2d_filter_gradient"})
        ASSERT_TRUE(nodes_of(one, op).empty()) << what;
    for (const std::string& level : levels()) {
        const auto got = computed(one, feed, *device_at(level));
        for (std::size_t r = 0; r < got.size(); ++r)
            ASSERT_EQ(got[r], reference[graph.results()[r].value].values)
                << level << ", result " << r << ", " << what;
    }
}

TEST(Epilogue, ComputesWhatBothWouldApartAtEveryLevel) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (Sizes sizes : awkward) {
            if (dtype == DType::bf16) sizes.k = std::min<std::int64_t>(sizes.k, 28);  // sums up to 256
            expect_exact_epilogue(
                exact_epilogue(sizes, dtype, dtype == DType::f32),
                fmt::format("{}, {} x {} x {} x {}", name_of(dtype), sizes.batch, sizes.m, sizes.n, sizes.k));
        }
}

TEST(Epilogue, OfAConvolutionComputesWhatBothWouldApart) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    for (const DType dtype : {DType::f32, DType::f16})
        for (const std::int64_t stride : {1, 2})
            for (const Graph& graph : exact_convolution_epilogues(stride, dtype))
                expect_exact_epilogue(graph, fmt::format("{}, stride {}", name_of(dtype), stride));
}

/// 4 MiB of an output and more, of which a tile's columns are whole cache lines, or not.
TEST(Epilogue, PastTheCachesComputesWhatBothWouldApart) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    for (const DType dtype : {DType::f32, DType::bf16})
        for (const std::int64_t n : {320, 336})
            expect_exact_epilogue(
                exact_epilogue({1, dtype == DType::f32 ? 3300 : 6600, n, 2}, dtype, dtype == DType::f32),
                fmt::format("{}, {} columns", name_of(dtype), n));
}

TEST(Epilogue, NamesItsKernel) {
    const auto device = device_at(levels().back());
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << device->target().cannot_compile;
    const Plan plan(fused(exact_epilogue({1, 16, 16, 16}, DType::f32, false)), *device);
    ASSERT_EQ(plan.kernels_of("matmul").size(), 1u);
    EXPECT_TRUE(plan.kernels_of("matmul")[0].starts_with("gemm f32*f32+f32 "));
    EXPECT_TRUE(plan.kernels_of("matmul")[0].ends_with(", compiled epilogue"));
}

/// Sums that are not exact, in an order that threads must not change.
TEST(Epilogue, HasTheSameBitsForAnyNumberOfThreads) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    Graph graph;
    const Tensor y = tanh(matmul(given(graph, "a", {900, 70}), given(graph, "b", {70, 500})));
    graph.add_result("y", y.value());
    graph.add_result("total", sum(y, {0}).value());
    const Graph one = fused(graph);
    ASSERT_TRUE(nodes_of(one, "matmul").empty());
    ReferenceFeed feed = whole_feed(graph);
    for (auto& [name, values] : feed)
        for (double& value : values) value = static_cast<double>(static_cast<float>(value / 7));
    const auto alone = computed(one, feed, *device_at(levels().back(), 1));
    for (int threads : {2, 5}) EXPECT_EQ(computed(one, feed, *device_at(levels().back(), threads)), alone);
}

std::string refusal_of(const Graph& graph, Target target = {}, const char* contraction = "matmul") {
    target.fusion.min_bytes_saved = 0;
    const Fusion fusion =
        fuse(simplify(expand(graph, [](const Graph&, const Node&) { return true; })), {.target = target});
    EXPECT_EQ(nodes_of(fusion.graph, contraction).size(), 1u);
    return fusion.refused.empty() ? "" : fusion.refused.back().reason;
}

TEST(Epilogue, StaysByItselfWithAReason) {
    Graph row;
    const Tensor x = matmul(given(row, "a", {8, 8}), given(row, "b", {8, 8}));
    row.add_result("y", softmax(x).value());
    EXPECT_EQ(refusal_of(row), "max needs whole rows, a block of sums has parts of them");

    Graph other;
    const Tensor u = matmul(given(other, "a", {8, 8}), given(other, "b", {8, 8}));
    const Tensor moved = transpose(u, {1, 0});
    other.add_result("y", (tanh(u) + moved).value());
    EXPECT_EQ(refusal_of(other), "its epilogue waits for what is computed from it");

    EXPECT_EQ(refusal_of(exact_epilogue({1, 16, 16, 16}, DType::f32, false),
                         {.cannot_attach_epilogues = "this machine has none"}),
              "this machine has none");
    EXPECT_EQ(refusal_of(exact_epilogue({1, 16, 16, 16}, DType::bf16, false),
                         {.epilogues_lose_at_16_bits = "tiles are faster"}),
              "tiles are faster");
    EXPECT_TRUE(
        fuse(expand(exact_epilogue({1, 16, 16, 16}, DType::f32, false),
                    [](const Graph&, const Node&) { return true; }),
             {.target = {.fusion = {.min_bytes_saved = 0}, .epilogues_lose_at_16_bits = "tiles are faster"}})
            .refused.empty());
    EXPECT_NE(device_at("generic")->target().cannot_attach_epilogues, "");
    EXPECT_EQ(device_at(levels().back())->target().cannot_attach_epilogues, "");

    Graph groups;
    add_exact_epilogue(
        conv2d(given(groups, "a", {2, 5, 5, 6}), given(groups, "b", {3, 3, 3, 8}), {.groups = 2}), false);
    EXPECT_EQ(refusal_of(groups, {}, "conv2d"), "groups of filters make their columns one after another");
}

}  // namespace
}  // namespace mantissa
