// Functions of elements that the generator makes, at their edges: NaN, infinities, zeros, ties, the largest
// and the smallest numbers, no element, one, and a million, in FP32 and BF16, at every level and on the
// emulated GPU.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <map>

#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/call.h"
#include "tests/support/compiling_test.h"
#include "tests/support/kernel_errors.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::levels;
using testing::OpCase;

struct Function {
    std::string op;
    int operands;
    double ulps;  ///< as its case says
};

/// All of the family that are of floating-point numbers.
std::vector<Function> functions() {
    std::map<std::string, double> ulps;
    for (const OpCase& test : testing::op_cases()) ulps.emplace(test.op, test.error.ulps);
    std::vector<Function> all;
    for (const Op& op : function_ops())
        if (op.gradient) all.push_back({std::string(op.name), op.max_inputs, ulps.at(std::string(op.name))});
    return all;
}

/// Each a number of BF16.
const std::vector<double> edges = {0.0,    -0.0,    0.5,      -0.5,     1,        -1,        1.5,
                                   -1.5,   2.5,     -2.5,     3,        -3,       7,         -100,
                                   88,     89,      -30,      0x1p-20,  -0x1p-9,  0x1p23,    -0x1p24,
                                   0x1p40, 0x1p100, -0x1p100, 0x1p-100, INFINITY, -INFINITY, NAN};

/// As FP32 holds it where subnormals are zero.
double in_range(double x) {
    if (std::abs(x) >= 0x1p128) return std::copysign(INFINITY, x);
    return std::abs(x) < 0x1p-126 ? 0 : x;
}

/// All edges, or all pairs of them.
OpCase edge_case(const Function& of, DType dtype) {
    const auto n = static_cast<std::int64_t>(edges.size());
    OpCase test{.op = of.op, .name = of.op, .operands = {}, .build = nullptr, .error = {of.ulps}};
    test.operands.push_back({{dtype, of.operands == 1 ? Shape{n} : Shape{n, 1}}});
    if (of.operands == 2) test.operands.push_back({{dtype, {n}}});
    test.build = [op = of.op](Graph& g, testing::In x) { return call(g, op, x); };
    return test;
}

std::vector<double> expected_at_edges(const Function& of, const Graph& graph, const ReferenceFeed& feed) {
    std::vector<double> values = ReferenceRun(graph, feed)[graph.results()[0].value].values;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double x = edges[i / edges.size()], y = edges[i % edges.size()];
        const bool too_long = of.op == "remainder" && std::isfinite(x) && std::isfinite(y) &&
                              std::abs(x) > 0x1p46 * std::abs(y);
        values[i] = too_long ? NAN : in_range(values[i]);
    }
    return values;
}

/// The worst error in units of what is allowed, and that of a result 64 ULPs off.
void expect_edges(Device& device, const std::string& where) {
    for (const Function& of : functions())
        for (const DType dtype : {DType::f32, DType::bf16}) {
            const OpCase test = edge_case(of, dtype);
            testing::Recorded recorded(test);
            for (auto& [name, values] : recorded.feed) values = edges;
            const std::vector<double> expected = expected_at_edges(of, recorded.graph, recorded.feed);
            std::vector<double> got =
                testing::loaded(testing::run(recorded.graph, recorded.feed, device)[0], dtype);
            for (double& x : got) x = in_range(x);
            EXPECT_LE(testing::worst_ratio(test, dtype, got, expected), 1.0)
                << of.op << " of " << name_of(dtype) << " " << where;
            for (std::size_t i = 0; i < got.size(); ++i)
                if (std::isfinite(got[i]) && got[i] != 0)
                    got[i] *= 1 + (dtype == DType::f32 ? 0x1p-17 : 0x1p-6);
            EXPECT_GT(testing::worst_ratio(test, dtype, got, expected), 1.0) << of.op << " tells nothing";
        }
}

class FunctionEdges : public testing::CompilingTest {};

TEST_F(FunctionEdges, AreTheReferencesAtEveryLevel) {
    for (const std::string& level : levels()) expect_edges(*device_at(level), "at " + level);
}

TEST_F(FunctionEdges, AreTheReferencesOnAGpu) {
    const testing::TestedGpu gpu;
    expect_edges(*gpu, "on a GPU");
}

/// Finite normal numbers whose bits lie evenly, so that each power of two has as many.
std::vector<double> numbers_of_all_sizes() {
    std::vector<double> numbers;
    for (std::uint64_t bits = 0x00800000; bits < 0x7f800000; bits += 10'007)
        for (const std::uint32_t sign : {0u, 0x80000000u})
            numbers.push_back(
                static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) | sign)));
    return numbers;
}

/// The worst error in units of the last place of the result; infinite where only one of both is finite.
double worst_ulps(const std::vector<double>& got, const std::vector<double>& expected) {
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double y = in_range(expected[i]), x = in_range(got[i]);
        if (x == y || (std::isnan(x) && std::isnan(y)) || std::abs(expected[i]) < 0x1p-125) continue;
        const double ulps = std::abs(x - y) * std::ldexp(1, 23 - std::ilogb(y));
        worst = ulps <= worst ? worst : ulps;
    }
    return worst;
}

/// A quarter of a million of them: as many as a second has time for.
TEST_F(FunctionEdges, BoundsInUlpsHoldForNumbersOfAllSizes) {
    const std::vector<double> numbers = numbers_of_all_sizes();
    const auto device = device_at(levels().back());
    for (const Function& of : functions()) {
        if (of.operands != 1) continue;
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::f32, {std::ssize(numbers)}}));
        graph.add_result("y", call1(of.op, {x}).value());
        const ReferenceFeed feed{{"x", numbers}};
        const std::vector<double> expected = ReferenceRun(graph, feed).result("y").values;
        std::vector<double> got = testing::loaded(testing::run(graph, feed, *device)[0], DType::f32);
        const double worst = worst_ulps(got, expected);
        EXPECT_LE(worst, of.ulps) << of.op;
        RecordProperty(of.op, std::to_string(worst));
        // One number in the middle by so many ULPs and one off.
        double& middle = *std::ranges::find_if(got, [](double y) { return std::abs(y) >= 0.5; });
        middle += std::ldexp(of.ulps + 1 + worst, std::ilogb(middle) - 23);
        EXPECT_GT(worst_ulps(got, expected), of.ulps) << of.op << " tells nothing";
    }
}

TEST_F(FunctionEdges, IntegersAreDividedTowardMinusInfinity) {
    const std::vector<double> numbers{0, 1, -1, 2, -2, 7, -7, 2147483647.0, -2147483648.0};
    const auto n = static_cast<std::int64_t>(numbers.size());
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::i32, {n, 1}})),
        y(graph, graph.add_input("y", {DType::i32, {n}}));
    graph.add_result("remainder", remainder(x, y).value());
    graph.add_result("quotient", floor_divide(x, y).value());
    const ReferenceFeed feed{{"x", numbers}, {"y", numbers}};
    const ReferenceRun reference(graph, feed);
    const testing::TestedGpu gpu;
    std::vector<std::unique_ptr<Device>> devices;
    for (const std::string& level : levels()) devices.push_back(device_at(level));
    const auto expect = [&](Device& device) {
        const auto results = testing::run(graph, feed, device);
        for (std::size_t i = 0; i < 2; ++i) {
            std::vector<double> expected = reference[graph.results()[i].value].values;
            for (double& value : expected)
                if (value == 2147483648.0) value = -value;  // the one quotient that i32 has not
            EXPECT_EQ(testing::loaded(results[i], DType::i32), expected) << graph.results()[i].name;
        }
    };
    for (const auto& device : devices) expect(*device);
    expect(*gpu);
}

/// Shapes, and whether an operand is repeated along them.
TEST_F(FunctionEdges, ShapesOfNoneOfOneAndOfManyElements) {
    const auto device = device_at(levels().back());
    const std::vector<std::pair<Shape, Shape>> shapes = {
        {{0, 3}, {3}},        {{}, {}},           {{1}, {1, 1}},     {{17}, {}}, {{5, 1, 3}, {4, 1}},
        {{3, 1}, {1, 1'000}}, {{1'000'003}, {1}}, {{64, 1}, {64, 1}}};
    for (const auto& [a, b] : shapes) {
        const OpCase test{
            .op = "remainder",
            .name = a.text() + " by " + b.text(),
            .operands = {testing::f32(a, testing::Values::wide), testing::f32(b, testing::Values::positive)},
            .build = [](Graph& g, testing::In x) { return call(g, "remainder", x); },
            .error = {1}};
        const testing::Recorded recorded(test);
        EXPECT_LE(testing::worst_ratio(test, recorded.graph, recorded.feed, *device), 1.0) << test.name;
    }
}

/// The kernel that a device takes, or the error that it is refused with.
std::string kernel_of_function(Device& device, const char* op, DType dtype) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {dtype, {4, 4}}));
    graph.add_result("y", call1(op, {x}).value());
    return Plan(std::move(graph), device).kernels_of(op).at(0);
}

TEST(Functions, AreCompiledWhereNothingIsFused) {
    const auto device = device_at("generic");
    const std::string wanted = codegen::Compiler::refusal().empty() ? "compiled generic" : "plain loop";
    EXPECT_EQ(kernel_of_function(*device, "log1p", DType::bf16), wanted);
}

TEST(Functions, RefuseWhatTheyAreNotComputedIn) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f64, {4}}));
    try {
        log1p(x);
        FAIL() << "log1p of f64 was recorded";
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("operand 0 must be f32, bf16 or f16, got f64[4]"),
                  std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace mantissa
