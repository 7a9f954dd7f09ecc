// Products with weights that are codes and scales, as operations of a graph: FP64's sums at every level,
// forward and towards x, alone and with a compiled epilogue.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/simplify.h"
#include "tests/support/op_cases.h"
#include "tests/support/passes.h"
#include "tests/support/run_graph.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::f32;
using testing::levels;
using testing::values_of;

constexpr std::int64_t rows_of_x = 40, inputs = 96, outputs = 72;

/// relu(x W^T + bias), and the gradient of x by a cotangent.
struct ProductOfCodes {
    Graph graph;
    ReferenceFeed feed;
    testing::Bytes bytes;

    ProductOfCodes(Layout layout, DType dtype) {
        const Tensor x = number("x", {rows_of_x, inputs}, dtype, 1),
                     dy = number("dy", {rows_of_x, outputs}, dtype, 2);
        const Tensor bias = number("bias", {outputs}, dtype, 3), w = codes(layout, dtype);
        graph.add_result("y", relu(matmul(x, w, {.transpose_b = true}) + bias).value());
        graph.add_result("dx", matmul(dy, w).value());
    }

    Tensor number(const char* name, Shape shape, DType dtype, int seed) {
        std::vector<double> values = values_of(f32(shape), seed);
        for (double& value : values) value = rounded_to(value, dtype);
        feed[name] = values;
        bytes[name] = testing::stored(values, dtype);
        return {graph, graph.add_input(name, {dtype, std::move(shape)})};
    }

    Tensor codes(Layout layout, DType dtype) {
        const CodedMatrix matrix{layout, outputs, inputs};
        std::vector<float> weights;
        for (const double value : values_of(f32({outputs, inputs}), 4))
            weights.push_back(static_cast<float>(value));
        std::vector<std::byte>& stored = bytes["w"];
        stored.resize(static_cast<std::size_t>(coded_bytes(matrix)));
        write_codes(matrix, weights, stored.data());
        read_codes(matrix, stored.data(), 0, weights);
        for (const float weight : weights)
            feed["w"].push_back(rounded_to(static_cast<double>(weight), dtype));
        return {graph, graph.add_input("w", {dtype, {outputs, inputs}, layout})};
    }
};

TEST(ProductsOfCodes, SumsAreFp64s) {
    for (const Layout layout : {Layout::nf4, Layout::int4, Layout::int8})
        for (const DType dtype : {DType::f32, DType::bf16}) {
            const ProductOfCodes product(layout, dtype);
            const ReferenceRun exact(product.graph, product.feed);
            std::vector<Graph> graphs{product.graph};
            if (layout == Layout::nf4 && codegen::Compiler::refusal().empty())
                graphs.push_back(simplify(fuse(product.graph, testing::any_size()).graph, MergeStages::no));
            for (const std::string& level : levels()) {
                const auto device = device_at(level);
                for (const Graph& graph : graphs) {
                    const auto results = testing::run(graph, product.bytes, *device);
                    for (std::size_t i = 0; i < 2; ++i) {
                        const std::vector<double> sums = testing::loaded(results[i], dtype);
                        const std::vector<double>& expected = exact.result(graph.results()[i].name).values;
                        double furthest = 0, largest = 0;
                        for (std::size_t at = 0; at < sums.size(); ++at) {
                            furthest = std::max(furthest, std::abs(sums[at] - expected[at]));
                            largest = std::max(largest, std::abs(expected[at]));
                        }
                        // A hundred additions in FP32, and one rounding to BF16.
                        const double bound = dtype == DType::f32 ? 100 * 0x1p-24 : 0x1p-8;
                        EXPECT_LE(furthest, bound * largest) << name_of(layout) << " " << level << " " << i;
                        EXPECT_GT(largest, 0);
                    }
                }
            }
        }
}

TEST(ProductsOfCodes, GradientsGoToXAlone) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {rows_of_x, inputs}}));
    graph.freeze({"w"});
    const Tensor w(
        graph, graph.add_state(
                   {.name = "w", .type = {DType::f32, {outputs, inputs}, Layout::nf4}, .initializer = {}}));
    const Tensor y = matmul(x, w, {.transpose_b = true});
    const Tensor dy(graph, graph.add_input("dy", {DType::f32, {rows_of_x, outputs}}));
    const Tensor dx = backpropagate(graph, {{y}}, {{dy}}, {{x}})[0];
    const Node& product = graph.node(dx.value().node);
    EXPECT_EQ(product.op->name, "matmul");
    EXPECT_EQ(product.inputs[1], w.value());
    EXPECT_EQ(graph.type(w.value()).text(), "f32[72, 96] as nf4");
    EXPECT_EQ(graph.states()[0].stored_bytes(), coded_bytes({Layout::nf4, outputs, inputs}));
}

}  // namespace
}  // namespace mantissa
