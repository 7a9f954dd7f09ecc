// Fused nests on a GPU, by how many columns a row has: threads make some neighbouring columns at one time,
// rows lie side by side in a block where no thread waits for another, and long rows are walked by blocks that
// hold no row.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "mantissa/base/random.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/compiling_test.h"
#include "tests/support/fused_graph.h"
#include "tests/support/random_draws.h"
#include "tests/support/run_graph.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

using testing::fused;
using testing::given;
using testing::loaded;
using testing::TestedGpu;

class CudaNests : public testing::CompilingTest {};

ReferenceFeed rounded_feed(const Graph& graph) {
    ReferenceFeed feed;
    for (NodeId id : graph.inputs()) {
        const Type& type = graph.node(id).outputs[0];
        const RandomStream random{.seed = 9, .step = 0, .operation = static_cast<std::uint32_t>(feed.size())};
        std::vector<double> values;
        for (std::int64_t i = 0; i < type.shape.elements(); ++i)
            values.push_back(static_cast<double>(random.normal(static_cast<std::uint64_t>(i))));
        feed[graph.node(id).attributes.word("name")] =
            loaded(testing::stored(values, type.dtype), type.dtype);
    }
    return feed;
}

/// The worst error of a result's element, in units of what rounding may do: a unit of what is stored in 16
/// bits, to which the reference rounds, too, and of FP32 16 roundings of the largest result for each square
/// root of the terms of its sums. `left_out`: an element of x that only the kernel takes for zero.
double worst_nest_error(const Graph& graph, Device& device, std::int64_t terms,
                        std::optional<std::size_t> left_out = {}) {
    ReferenceFeed feed = rounded_feed(graph);
    const ReferenceRun reference(graph, feed);
    if (left_out) feed.at("x").at(*left_out) = 0;
    const auto results = testing::run(fused(graph), feed, device);
    double worst = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const Value value = graph.results()[i].value;
        const DType dtype = graph.type(value).dtype;
        const std::vector<double>& expected = reference[value].values;
        const std::vector<double> got = loaded(results[i], dtype);
        double largest = 1;
        for (const double x : expected) largest = std::max(largest, std::abs(x));
        for (std::size_t j = 0; j < got.size(); ++j) {
            const double allowed = 0x1p-24 * 16 * std::sqrt(static_cast<double>(terms)) * largest +
                                   (dtype == DType::bf16 ? 0x1p-7 * std::abs(expected[j]) : 0);
            const double ratio = std::abs(got[j] - expected[j]) / allowed;
            worst = !(ratio <= worst) ? ratio : worst;
        }
    }
    return worst;
}

/// Statistics of a row, a result in 16 bits, and three sums over rows, as a layer norm's gradient has.
Graph with_sums_of_rows(std::int64_t rows, std::int64_t columns, DType dtype) {
    Graph graph;
    const Tensor x = given(graph, "x", {rows, columns}, dtype), dy = given(graph, "dy", {rows, columns}),
                 gamma = given(graph, "gamma", {columns});
    const Tensor wide = cast(x, DType::f32), product = dy * gamma;
    const Tensor centred = wide - mean(wide, {-1}, KeepAxes::yes);
    const Tensor slope = mean(product * centred, {-1}, KeepAxes::yes);
    const Tensor dx = product - centred * slope;
    graph.add_result("dx", dx.value());
    graph.add_result("short", cast(dx, DType::bf16).value());
    graph.add_result("dbeta", sum(dy, {0}).value());
    graph.add_result("dgamma", sum(dy * centred, {0}).value());
    graph.add_result("slopes", slope.value());
    return graph;
}

/// No statistics of a row: rows may lie side by side.
Graph without_sums_of_rows(std::int64_t rows, std::int64_t columns, DType dtype) {
    Graph graph;
    const Tensor x = given(graph, "x", {rows, columns}, dtype), scale = given(graph, "scale", {columns}),
                 addend = given(graph, "addend", {rows, columns});
    const Tensor y = maximum(cast(x, DType::f32) * scale + addend, 0.0);
    graph.add_result("y", cast(y, dtype).value());
    graph.add_result("sums", sum(y, {0}).value());
    graph.add_result("squares", sum(y * y, {0}).value());
    return graph;
}

TEST_F(CudaNests, OfAnyRowAgreeWithTheReference) {
    const TestedGpu gpu;
    const std::vector<std::int64_t> all_columns{1, 3, 8, 20, 64, 96, 255, 256, 768, 4096, 4104, 8200};
    for (const DType dtype : {DType::bf16, DType::f32})
        for (const std::int64_t columns : testing::some_of(all_columns, dtype == DType::bf16 ? 1 : 3))
            for (const std::int64_t rows : {2, 77}) {
                const std::string which = fmt::format("{} x {} in {}", rows, columns, name_of(dtype));
                const std::int64_t terms = std::max(rows, columns);
                EXPECT_LE(worst_nest_error(with_sums_of_rows(rows, columns, dtype), *gpu, terms), 1) << which;
                EXPECT_LE(worst_nest_error(without_sums_of_rows(rows, columns, dtype), *gpu, terms), 1)
                    << which;
            }
}

TEST_F(CudaNests, ToleranceBites) {
    const TestedGpu gpu;
    const Graph waits = with_sums_of_rows(5000, 96, DType::bf16),
                not_waits = without_sums_of_rows(40000, 64, DType::bf16);
    EXPECT_GT(worst_nest_error(waits, *gpu, 5000, 4999 * 96 + 95), 10);
    EXPECT_GT(worst_nest_error(not_waits, *gpu, 40000, 39999 * 64 + 60), 10);
}

/// More partial sums than one thread adds up.
TEST_F(CudaNests, SumsOverManyRowsAgreeWithTheReference) {
    const TestedGpu gpu;
    for (const std::int64_t columns : testing::some_of<std::int64_t>({6, 96, 64}, 2)) {
        EXPECT_LE(worst_nest_error(with_sums_of_rows(5000, columns, DType::bf16), *gpu, 5000), 1) << columns;
        EXPECT_LE(worst_nest_error(without_sums_of_rows(40000, columns, DType::bf16), *gpu, 40000), 1)
            << columns;
    }
}

/// Views that begin between multiples of 16 bytes: a row of whole numbers, rows of a table.
TEST_F(CudaNests, OperandsMayBeginAtAnyElement) {
    const TestedGpu gpu;
    for (const std::int64_t columns : {30, 31, 32}) {
        Graph graph;
        const Tensor x = given(graph, "x", {3, columns}), y = given(graph, "y", {columns});
        const Tensor row = reshape(slice(x, 0, 1, 2), {columns});
        graph.add_result("flat", (row * y + y).value());
        const Tensor rows = slice(x, 0, 1, 3);
        graph.add_result("normal", (rows - mean(rows * y, {-1}, KeepAxes::yes)).value());
        EXPECT_LE(worst_nest_error(graph, *gpu, columns), 1) << columns;
    }
}

/// Reductions and attention read 16 bytes at a time, too, where all begins at multiples of them: what they
/// make of a view has the bits of what they make of its copy.
TEST_F(CudaNests, OtherKernelsTakeSuchOperands) {
    const TestedGpu gpu;
    for (const std::int64_t first : {0, 2, 3}) {
        Graph graph;
        const auto view = [&](Tensor x, const Shape& shape) {
            return reshape(slice(x, 0, first, first + shape.elements()), shape);
        };
        const auto heads = [&](const char* name) {
            return view(cast(given(graph, name, {300}), DType::bf16), {1, 2, 4, 16});
        };
        const Tensor matrix = view(given(graph, "x", {90}), {10, 8});
        const Tensor views[] = {matrix, heads("q"), heads("k"), heads("v")};
        for (const bool copies : {false, true}) {
            std::vector<Tensor> given;
            for (const Tensor& x : views) given.push_back(copies ? x * 1.0 : x);
            const Tensor made[] = {sum(given[0], {0}), max(given[0], {0}),
                                   attention(given[1], given[2], given[3], {.causal = true})};
            for (const Tensor& y : made)
                graph.add_result(fmt::format("y{}", graph.results().size()), y.value());
        }
        const auto results = testing::run(graph, rounded_feed(graph), *gpu);
        for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i], results[i + 3]) << first << " " << i;
    }
}

/// A flat nest of a number of elements that fills no group of a thread's.
TEST_F(CudaNests, ElementsBehindTheLastGroupAreMade) {
    const TestedGpu gpu;
    for (const std::int64_t elements : {1, 7, 8, 2047, 2048, 2049, 6151}) {
        Graph graph;
        const Tensor x = given(graph, "x", {elements}, DType::bf16);
        const Tensor y = gelu(cast(x, DType::f32)) + given(graph, "y", {elements});
        graph.add_result("y", y.value());
        graph.add_result("short", cast(y, DType::bf16).value());
        EXPECT_LE(worst_nest_error(graph, *gpu, 1), 1) << elements;
    }
}

}  // namespace
}  // namespace mantissa
