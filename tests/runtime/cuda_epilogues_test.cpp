// Products with one of cuBLASLt's epilogues, on the emulated GPU: which epilogues are attached, and that they
// compute what the graph says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "mantissa/base/random.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/passes/simplify.h"
#include "tests/support/compiling_test.h"
#include "tests/support/emulated_device.h"
#include "tests/support/fused_graph.h"
#include "tests/support/run_graph.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

using testing::given;
using testing::TestedGpu;

class CudaEpilogues : public testing::CompilingTest {};

constexpr std::int64_t rows = 24, terms = 40;

struct EpilogueCase {
    DType dtype = DType::f32;
    bool bias = true;
    bool keeps = true;  ///< GELU's input, or the sums of its gradient
    std::int64_t columns = 48;
};

/// y = gelu(x w^T + bias), as of two sequences of tokens.
Graph with_gelu(const EpilogueCase& of) {
    Graph graph;
    const Tensor x = given(graph, "x", {rows, terms}, of.dtype),
                 w = given(graph, "w", {of.columns, terms}, of.dtype);
    MatmulOptions options{.transpose_b = true};
    if (of.bias) options.bias = given(graph, "bias", {of.columns}, of.dtype);
    const Tensor product = matmul(x, w, options);
    graph.add_result("y", gelu(reshape(product, {2, rows / 2, of.columns})).value());
    if (of.keeps) graph.add_result("product", product.value());
    return graph;
}

/// dx = gelu_grad(g w, x), and its sums over rows.
Graph with_gradient(const EpilogueCase& of) {
    Graph graph;
    const OriginScope scope(graph, {.scope = "", .stage = Stage::backward});
    const Tensor g = given(graph, "g", {rows, terms}, of.dtype),
                 w = given(graph, "w", {terms, of.columns}, of.dtype),
                 x = given(graph, "x", {2, rows / 2, of.columns}, of.dtype);
    const Tensor dy = reshape(matmul(g, w), x.shape());
    const Tensor dx(graph, {graph.add("gelu_grad", {dy.value(), x.value()}, {}), 0});
    graph.add_result("dx", dx.value());
    if (of.keeps) {
        const Tensor all = reshape(dx, {rows, of.columns});
        const Tensor sums = of.dtype == DType::f32 ? sum(all, {0}) : sum_as(DType::f32, all, {0});
        graph.add_result("sums", sums.value());
    }
    return graph;
}

Fusion fused_on(Device& device, const Graph& graph) {
    return fuse(simplify(expand(graph, [](const Graph&, const Node&) { return true; })),
                machine_for_passes(device));
}

/// The node of a plan that is a product with an epilogue; null where there is none.
const PlannedNode* epilogue_of(const Plan& plan) {
    for (const PlannedNode& planned : plan.nodes()) {
        const Node& node = plan.graph().node(planned.node);
        if (node.op->name == "fused" && contraction_of(node.attributes.body("body").graph()) >= 0)
            return &planned;
    }
    return nullptr;
}

/// Numbers between -1 and 1 that BF16 has.
ReferenceFeed feed_of_fractions(const Graph& graph) {
    ReferenceFeed feed;
    for (const NodeId id : graph.inputs()) {
        const RandomStream random{.seed = 3, .step = 0, .operation = static_cast<std::uint32_t>(feed.size())};
        std::vector<double>& values = feed[graph.node(id).attributes.word("name")];
        for (std::int64_t i = 0; i < graph.node(id).outputs[0].shape.elements(); ++i)
            values.push_back(std::floor(random.uniform(static_cast<std::uint64_t>(i)) * 256) / 128 - 1);
    }
    return feed;
}

/// The largest difference from the reference of one result.
double largest_error(const Graph& graph, Device& device, std::size_t which) {
    const ReferenceFeed feed = feed_of_fractions(graph);
    const Graph fused = fused_on(device, graph).graph;
    const Result& result = graph.results()[which];
    const std::vector<double> got =
        testing::loaded(testing::run(fused, feed, device).at(which), graph.type(result.value).dtype);
    const ReferenceRun reference(graph, feed);
    const std::vector<double>& expected = reference.result(result.name).values;
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(got[i] - expected[i]));
    return worst;
}

/// A sum of 40 products below 1 that errs by so many roundings of FP32, through GELU, whose slope is at most
/// 1.13, or times its derivative; in BF16 and FP16 also two roundings, of the product, which the reference
/// may round and the library does not, and of the result, of numbers below 16 in size.
double tolerance_of(DType dtype) {
    const double sums = (terms + 8) * terms * 0x1p-24;
    const double rounding = dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
    return 1.13 * sums + 2 * 8 * rounding;
}

/// The name of a GPU's FP32 units says the architecture.
std::string kernel_for(const Device& device, DType dtype) {
    const std::string name(name_of(dtype)), isa = device.target().isa;
    return "cublasLt " + name + "*" + name + "+f32 " +
           (dtype == DType::f32 ? isa.substr(0, isa.find(',')) : "tensor cores");
}

TEST_F(CudaEpilogues, AreTheLibrarysEpiloguesWhereTheyAreTheSame) {
    const TestedGpu gpu;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const bool bias : {true, false})
            for (const bool keeps : {true, false})
                for (const bool gradient : {false, true}) {
                    const EpilogueCase of{dtype, bias, keeps};
                    const Graph graph = gradient ? with_gradient(of) : with_gelu(of);
                    const Fusion fusion = fused_on(*gpu, graph);
                    SCOPED_TRACE(print(graph));
                    const Plan plan(fusion.graph, *gpu);
                    const PlannedNode* const epilogue = epilogue_of(plan);
                    ASSERT_NE(epilogue, nullptr)
                        << (fusion.refused.empty() ? "" : fusion.refused.back().reason)
                        << print(fusion.graph);
                    EXPECT_EQ(plan.nodes().size(), 1u);
                    EXPECT_EQ(epilogue->kernel, kernel_for(*gpu, dtype));
                    // In 16 bits the library would round the sums, which the graph has in FP32.
                    const bool own_sums = gradient && keeps && dtype != DType::f32;
                    EXPECT_EQ(epilogue->launches > 1, own_sums);
                    const Node& node = plan.graph().node(epilogue->node);
                    const Cost least =
                        node.op->cost(plan.graph().input_types(node), node.outputs, node.attributes);
                    EXPECT_EQ(epilogue->cost.bytes - least.bytes, own_sums ? node.outputs[0].bytes() : 0);
                    const char* const words =
                        gradient ? (keeps && !own_sums ? "gelu's gradient and its sums," : "gelu's gradient,")
                                 : (keeps ? "gelu and its input," : "gelu,");
                    EXPECT_NE(epilogue->algorithm.find(words), std::string::npos) << epilogue->algorithm;
                    EXPECT_LE(largest_error(graph, *gpu, 0), tolerance_of(dtype));
                    // Sums of 24 rows err by as much each, and by their own order.
                    if (!keeps) continue;
                    EXPECT_LE(largest_error(graph, *gpu, 1), (gradient ? rows : 1) * tolerance_of(dtype));
                }
}

/// With another epilogue than was asked for every result is wrong by more than that.
TEST_F(CudaEpilogues, TolerancesBite) {
    const cuda::EmulatedGpu emulated({});
    cuda::CublasLt blas = emulated.cublaslt();
    blas.matmul_desc_set_attribute = [set = blas.matmul_desc_set_attribute](
                                         auto of, cuda::MatmulAttribute attribute, const void* value,
                                         std::size_t bytes) {
        if (attribute != cuda::MatmulAttribute::epilogue) return set(of, attribute, value, bytes);
        using enum cuda::BlasEpilogue;
        cuda::BlasEpilogue epilogue = *static_cast<const cuda::BlasEpilogue*>(value);
        if (epilogue == gelu_bias) epilogue = bias;
        if (epilogue == gelu_gradient) epilogue = none;
        return set(of, attribute, &epilogue, bytes);
    };
    const auto gpu = std::move(*make_cuda_device({emulated.driver(), blas, emulated.cudnn()}));
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        const EpilogueCase of{.dtype = dtype, .keeps = false};
        EXPECT_GT(largest_error(with_gelu(of), *gpu, 0), tolerance_of(dtype)) << name_of(dtype);
        EXPECT_GT(largest_error(with_gradient(of), *gpu, 0), tolerance_of(dtype)) << name_of(dtype);
    }
}

/// A function that is no epilogue stays a kernel of its own, and the pass says so.
TEST_F(CudaEpilogues, OthersStayByThemselves) {
    const TestedGpu gpu;
    const auto reason = [&](const Graph& graph) {
        const Fusion fusion = fused_on(*gpu, graph);
        EXPECT_EQ(epilogue_of(Plan(fusion.graph, *gpu)), nullptr);
        return fusion.refused.empty() ? "" : fusion.refused.back().reason;
    };
    const std::string none = "it is none of cuBLASLt's epilogues, which are GELU and its gradient";
    EXPECT_EQ(reason(with_gelu({.columns = 44})), none) << "rows of its input are no multiple of 8";
    EXPECT_EQ(reason(with_gradient({.columns = 44})), none);
    Graph relu_graph;
    const Tensor product = matmul(given(relu_graph, "x", {rows, terms}, DType::f32),
                                  given(relu_graph, "w", {terms, rows}, DType::f32));
    relu_graph.add_result("y", relu(product + 1.0).value());
    EXPECT_EQ(reason(relu_graph), none);
    Graph batch;
    const Tensor many = matmul(given(batch, "x", {3, rows, terms}, DType::f32),
                               given(batch, "w", {3, terms, 16}, DType::f32));
    batch.add_result("y", gelu(many).value());
    EXPECT_EQ(reason(batch), none);
}

/// A constant that is off in its fourth digit makes another epilogue.
TEST_F(CudaEpilogues, AnotherGeluIsNotTaken) {
    const TestedGpu gpu;
    Graph graph;
    const Tensor x =
        matmul(given(graph, "x", {rows, terms}, DType::f32), given(graph, "w", {terms, 48}, DType::f32));
    const Tensor inner = (x + x * x * x * 0.0447) * 0.7978845608028654;
    graph.add_result("y", (x * 0.5 * (tanh(inner) + 1.0)).value());
    EXPECT_EQ(epilogue_of(Plan(fused_on(*gpu, graph).graph, *gpu)), nullptr);
}

}  // namespace
}  // namespace mantissa
