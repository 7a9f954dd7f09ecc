// Convolutions below sixteen bits: a step's products in FP64, from operands that are rounded here, along the
// axes that the formats ask for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/graph/convolution.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/numerics/short_formats.h"
#include "mantissa/passes/pipeline.h"
#include "tests/support/show_gradients.h"

namespace mantissa {
namespace {

Tensor weight(Graph& graph, const char* name, Shape shape) {
    return {graph,
            graph.add_state({.name = name, .type = {DType::f32, std::move(shape)}, .initializer = {}})};
}

/// 35 images: blocks of 32 end within the batch, and within 36 channels.
Tensor convolutions(Graph& graph) {
    const Tensor images(graph, graph.add_input("images", {DType::f32, {35, 4, 4, 3}}));
    Tensor x = tanh(conv2d(images, weight(graph, "first", {1, 1, 3, 36})));
    x = tanh(conv2d(x, weight(graph, "second", {3, 3, 36, 40}), {.stride = {2, 2}, .padding = {1, 1, 1, 1}}));
    x = tanh(conv_transpose2d(x, weight(graph, "transposed", {2, 2, 34, 40}), {.stride = {2, 2}}));
    return sum(tanh(matmul(mean(x, {1, 2}), weight(graph, "head", {34, 7}))), {0, 1});
}

/// Numbers of many magnitudes: blocks along another axis have other scales.
std::vector<double> numbers_of(const Shape& shape, std::uint32_t seed) {
    std::vector<double> all;
    const RandomStream stream{.seed = seed, .step = 0, .operation = 0};
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
        const double draw = rounding_bits(stream, 0, i, shape.elements()) * 0x1p-32;
        all.push_back((draw - 0.5) * std::exp2(static_cast<double>(i * 7 % 9) - 5));
    }
    return all;
}

/// MXFP8: E4M3 times powers of two, one for 32 neighbours, rounded up.
void round_block(std::vector<double>& x, const std::vector<std::size_t>& block) {
    double most = 0;
    for (const std::size_t at : block) most = std::max(most, std::abs(x[at]));
    if (most == 0) return;
    const double scale = std::exp2(std::ceil(std::log2(most / 448)));
    for (const std::size_t at : block) {
        const double size = std::abs(x[at]) / scale;
        const double step = std::exp2(std::max(std::floor(std::log2(std::max(size, 0x1p-9))), -6.0) - 3);
        x[at] = std::copysign(std::nearbyint(size / step) * step * scale, x[at]);
    }
}

std::vector<double> rounded(const ReferenceTensor& tensor, int axis) {
    std::vector<double> x;
    for (const double value : tensor.values) x.push_back(static_cast<double>(static_cast<float>(value)));
    const Shape& shape = tensor.type.shape;
    std::int64_t inner = 1;
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
    for (std::int64_t line = 0; line < shape.elements() / shape[axis]; ++line)
        for (std::int64_t first = 0; first < shape[axis]; first += 32) {
            std::vector<std::size_t> block;
            for (std::int64_t k = first; k < std::min(first + 32, shape[axis]); ++k)
                block.push_back(
                    static_cast<std::size_t>((line / inner * shape[axis] + k) * inner + line % inner));
            round_block(x, block);
        }
    return x;
}

/// The result of one of the three products, by the sum that ir.md gives for the convolution.
std::vector<double> convolved(const Graph& graph, const Node& node,
                              const std::array<std::vector<double>, 2>& operands) {
    const std::vector<Type> types{graph.type(node.inputs[0]), graph.type(node.inputs[1])};
    const Convolution of = convolution_of(types, node.attributes);
    const auto options = [&](const char* name) { return node.attributes.list(name); };
    const std::vector<std::int64_t> stride = options("stride"), padding = options("padding");
    const auto at = [](const Shape& shape, std::array<std::int64_t, 4> index) {
        std::int64_t flat = 0;
        for (int i = 0; i < 4; ++i) flat = flat * shape[i] + index[static_cast<std::size_t>(i)];
        return static_cast<std::size_t>(flat);
    };
    const std::string_view op = node.op->name;
    std::vector<double> result(static_cast<std::size_t>(node.outputs[0].shape.elements()));
    const Shape x = of.x_shape(), filter = of.filter_shape(), y = of.y_shape();
    for (std::int64_t n = 0; n < y[0]; ++n)
        for (std::int64_t i = 0; i < y[1]; ++i)
            for (std::int64_t j = 0; j < y[2]; ++j)
                for (std::int64_t r = 0; r < filter[0]; ++r)
                    for (std::int64_t s = 0; s < filter[1]; ++s) {
                        const std::int64_t row = i * stride[0] - padding[0] + r;
                        const std::int64_t column = j * stride[1] - padding[2] + s;
                        if (row < 0 || row >= x[1] || column < 0 || column >= x[2]) continue;
                        for (std::int64_t c = 0; c < x[3]; ++c)
                            for (std::int64_t k = 0; k < y[3]; ++k) {
                                const std::size_t of_x = at(x, {n, row, column, c});
                                const std::size_t of_filter = at(filter, {r, s, c, k});
                                const std::size_t of_y = at(y, {n, i, j, k});
                                if (op == "conv2d")
                                    result[of_y] += operands[0][of_x] * operands[1][of_filter];
                                else if (op == "conv2d_input_gradient")
                                    result[of_x] += operands[0][of_y] * operands[1][of_filter];
                                else
                                    result[of_filter] += operands[0][of_x] * operands[1][of_y];
                            }
                    }
    return result;
}

/// The axes along which both operands of each kind of product have their blocks.
using Axes = std::array<int, 2>;
const std::map<std::string, Axes> depths{
    {"conv2d", {3, 2}}, {"conv2d_input_gradient", {3, 3}}, {"conv2d_filter_gradient", {0, 0}}};

struct RoundedStep {
    Graph graph = build_training_step(convolutions, testing::show_gradients, {.policy = "mxfp8"}).graph;
    ReferenceRun run{graph, feed()};

    ReferenceFeed feed() const {
        ReferenceFeed feed;
        for (const NodeId input : graph.inputs())
            feed[std::string(graph.node(input).attributes.word("name"))] =
                numbers_of(graph.type({input, 0}).shape, 1);
        for (const State& state : graph.states()) feed[state.name] = numbers_of(state.type.shape, 2);
        return feed;
    }
};

/// How far the products of one kind lie from those of operands that are rounded along `axes`, as a share of
/// the largest number; of both layers that are rounded the furthest.
double distance_of_product(const RoundedStep& step, const std::string& op, const Axes& axes) {
    double furthest = -1;
    for (NodeId id = 0; id < step.graph.end(); ++id) {
        const Node& node = step.graph.node(id);
        if (node.op->name != op) continue;
        std::array<std::vector<double>, 2> operands;
        for (const std::size_t side : {0u, 1u}) {
            const Node& operand = step.graph.node(node.inputs[side].node);
            if (operand.op->name == "round_blocks")
                operands[side] = rounded(step.run[operand.inputs[0]], axes[side]);
        }
        if (operands[0].empty() || operands[1].empty()) continue;
        const std::vector<double> expected = convolved(step.graph, node, operands);
        const std::vector<double>& got = step.run[{id, 0}].values;
        double most = 0, apart = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
            most = std::max(most, std::abs(expected[i]));
            apart = std::max(apart, std::abs(got[i] - expected[i]));
        }
        furthest = std::max(furthest, apart / most);
    }
    return furthest;
}

/// Both are sums in FP64 of the same products.
constexpr double of_sums = 1e-12;

TEST(RoundedConvolutions, AStepsProductsAreThoseOfFp64AndAWrongAxisIsCaught) {
    const RoundedStep step;
    for (const auto& [op, axes] : depths) {
        const double right = distance_of_product(step, op, axes);
        EXPECT_GE(right, 0) << op;
        EXPECT_LE(right, of_sums) << op;
        for (const std::size_t side : {0u, 1u})
            for (int axis = 0; axis < 4; ++axis) {
                if (axis == axes[side]) continue;
                Axes wrong = axes;
                wrong[side] = axis;
                EXPECT_GT(distance_of_product(step, op, wrong), 1e3 * of_sums)
                    << op << ", operand " << side << ", axis " << axis;
            }
    }
}

}  // namespace
}  // namespace mantissa
