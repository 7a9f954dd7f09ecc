// Rounding below sixteen bits on a GPU: the CPU's bits, whatever the numbers and however they lie.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/short_formats.h"
#include "mantissa/runtime/plan.h"
#include "tests/support/compiling_test.h"
#include "tests/support/kernel_errors.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

using testing::OpCase;
using testing::Recorded;
using testing::TestedGpu;

/// Sizes that are whole for a GPU: pieces of 16 bytes, warps, blocks of threads and more, and long blocks
/// that are read twice.
struct RoundingCase {
    const char *element, *rule;
    Shape shape;
    std::int64_t axis, block;
    std::vector<const char*> more = {};
};

const std::vector<RoundingCase>& whole_rounding_cases() {
    static const std::vector<RoundingCase> all{
        {"e4m3", "up", {24, 256}, 1, 32},
        {"e4m3", "up", {24, 512}, 1, 128},
        {"e2m1", "floor", {64, 320}, 0, 32},
        {"e4m3", "up", {200, 40}, 0, 128},
        {"e4m3", "up", {149, 64}, 0, 37},
        {"e4m3", "up", {256, 256}, 0, 128, {"square"}},
        {"e4m3", "up", {40, 72}, 0, 24, {"square"}},
        {"e4m3", "tensor", {17, 1000}, 0, 32},
        {"e2m1", "two-level", {48, 272}, 1, 16},
        {"e2m1", "two-level", {48, 272}, 1, 16, {"hadamard", "random"}},
        {"e2m1", "two-level", {48, 272}, 0, 16, {"random"}},
        {"e2m1", "two-level", {48, 272}, 0, 16, {"hadamard", "random"}},
        {"e2m1", "two-level", {64, 48}, 0, 16, {"square"}},
    };
    return all;
}

OpCase rounding_case(const RoundingCase& of, DType dtype) {
    Attributes attributes{{"element", std::string(of.element)},
                          {"rule", std::string(of.rule)},
                          {"axis", of.axis},
                          {"block", of.block}};
    std::vector<testing::Operand> operands{testing::f32(of.shape, testing::Values::wide)};
    operands[0].type.dtype = dtype;
    std::string name =
        fmt::format("{} {} {} {} along {}", of.element, of.rule, of.shape.text(), name_of(dtype), of.axis);
    for (const std::string key : of.more) {
        name += " " + key;
        attributes = attributes.with(key, std::int64_t{1});
        if (key == "random") operands.insert(operands.end(), 2, testing::counter());
    }
    return {"round_blocks", name, operands, [=](Graph& graph, const std::vector<Tensor>& x) {
                return call(graph, "round_blocks", x, attributes);
            }};
}

/// All cases of op_cases.cpp, and those above, of both formats that operands have.
std::vector<OpCase> rounding_cases() {
    std::vector<OpCase> all;
    for (const OpCase& test : testing::op_cases()) {
        if (test.op != "round_blocks") continue;
        all.push_back(test);
        all.push_back(*testing::stored_in(DType::bf16, test));
    }
    for (const RoundingCase& each : whole_rounding_cases())
        for (const DType dtype : {DType::f32, DType::bf16}) all.push_back(rounding_case(each, dtype));
    return all;
}

/// Numbers of every binade, with zeros and subnormals of FP32 among them; `scale` moves all.
std::vector<double> awkward(std::size_t count, double scale, bool finite) {
    std::mt19937 random(7);
    std::vector<double> numbers(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto draw = static_cast<double>(random()) * 0x1p-32;
        const int binade = static_cast<int>(random() % 30) - 15;
        numbers[i] = std::ldexp(i % 3 == 0 ? -1 - draw : 1 + draw, binade) * scale;
        if (random() % 16 == 0) numbers[i] = i % 2 == 0 ? 0.0 : -0.0;
        if (random() % 16 == 0) numbers[i] = std::copysign(0x1p-130, numbers[i]);
        if (!finite && random() % 128 == 0) numbers[i] = std::numeric_limits<double>::infinity();
        if (!finite && random() % 128 == 0) numbers[i] = std::nan("");
    }
    return numbers;
}

/// Bits alike, but for those of a NaN.
bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b, DType dtype) {
    const std::vector<double> of_a = testing::loaded(a, dtype), of_b = testing::loaded(b, dtype);
    for (std::size_t i = 0; i < of_a.size(); ++i) {
        if (std::isnan(of_a[i]) && std::isnan(of_b[i])) continue;
        if (of_a[i] != of_b[i] || std::signbit(of_a[i]) != std::signbit(of_b[i])) return false;
    }
    return of_a.size() == of_b.size();
}

class CudaRounding : public testing::CompilingTest {};

TEST_F(CudaRounding, HasTheCpusBits) {
    const auto cpu = testing::device_at(testing::levels().back());
    const TestedGpu gpu;
    struct Numbers {
        double scale;
        bool finite;
    };
    for (const OpCase& test : rounding_cases()) {
        const Recorded recorded(test);
        for (const auto& [scale, finite] :
             {Numbers{1, true}, {1, false}, {0x1p-118, true}, {0x1p100, true}}) {
            ReferenceFeed feed = recorded.feed;
            feed["x0"] = awkward(feed["x0"].size(), scale, finite);
            const auto expected = testing::run(recorded.graph, feed, *cpu),
                       found = testing::run(recorded.graph, feed, *gpu);
            for (std::size_t i = 0; i < expected.size(); ++i)
                EXPECT_TRUE(
                    same(found[i], expected[i], recorded.graph.type(recorded.graph.results()[i].value).dtype))
                    << test.name << ", result " << i << ", numbers times " << scale;
        }
        // One number that is another is seen.
        ReferenceFeed altered = recorded.feed;
        for (double& x : altered["x0"]) x *= 1.75;
        EXPECT_FALSE(testing::run(recorded.graph, altered, *gpu) ==
                     testing::run(recorded.graph, recorded.feed, *cpu))
            << test.name;
    }
}

/// A product of two rounded matrices, stored as FP8 or as BF16.
struct Fp8Case {
    std::int64_t rows, columns, depth;
    bool turned_a, turned_b, bias;
    const char *element_a, *element_b;
    DType output;

    OpCase test() const {
        std::vector<testing::Operand> operands{
            testing::f32(turned_a ? Shape{depth, rows} : Shape{rows, depth}),
            testing::f32(turned_b ? Shape{columns, depth} : Shape{depth, columns})};
        if (bias) operands.push_back(testing::f32({columns}));
        const auto build = [of = *this](Graph& graph, const std::vector<Tensor>& x) {
            const auto rounded = [&](const Tensor& tensor, const char* element) {
                return call(graph, "round_blocks", std::vector{tensor},
                            Attributes{{"element", std::string(element)},
                                       {"rule", std::string("tensor")},
                                       {"axis", std::int64_t{0}},
                                       {"block", std::int64_t{32}},
                                       {"fp8", true}});
            };
            const auto a = rounded(x[0], of.element_a), b = rounded(x[1], of.element_b);
            std::vector<Tensor> inputs{a[0], b[0], a[1], b[1]};
            if (of.bias) inputs.push_back(cast(x[2], DType::bf16));
            return call(
                graph, "scaled_matmul", inputs,
                Attributes{
                    {"transpose_a", of.turned_a}, {"transpose_b", of.turned_b}, {"output", of.output}});
        };
        // Sums in FP32 of so many terms; two products by the factors.
        return {"scaled_matmul",
                fmt::format("{} x {} x {}{}{}", rows, columns, depth, turned_a ? ", a turned" : "",
                            turned_b ? ", b turned" : ""),
                operands,
                build,
                {4, static_cast<double>(depth) + 4}};
    }
};

/// FP32's class beside the reference, which rounds and multiplies the same numbers; results in BF16 are
/// rounded once more.
TEST_F(CudaRounding, ProductsOfFp8AreThoseOfTheirNumbers) {
    testing::EmulatedDevice gpu({.architecture = "sm_90"});
    for (const Fp8Case& of : {Fp8Case{32, 48, 64, false, true, true, "e4m3", "e4m3", DType::bf16},
                              {16, 32, 80, false, false, false, "e5m2", "e4m3", DType::bf16},
                              {64, 16, 48, true, false, false, "e4m3", "e5m2", DType::f32},
                              {48, 80, 16, true, true, false, "e4m3", "e4m3", DType::f32},
                              {16, 16, 1040, false, true, false, "e4m3", "e4m3", DType::f32}}) {
        const OpCase test = of.test();
        const Recorded recorded(test);
        const Plan plan(recorded.graph, *gpu);
        for (const PlannedNode* planned : plan.nodes_of("scaled_matmul"))
            EXPECT_EQ(planned->kernel, "cublasLt fp8*fp8+f32 tensor cores");
        EXPECT_EQ(plan.nodes_of("scaled_matmul").size(), 1u);
        EXPECT_LE(testing::worst_ratio(test, recorded.graph, recorded.feed, *gpu), 1) << test.name;
        OpCase strict = test;
        strict.error = {};
        if (of.output == DType::f32 && of.depth > 16) {
            EXPECT_GT(testing::worst_ratio(strict, recorded.graph, recorded.feed, *gpu), 1) << test.name;
        }
    }
    EXPECT_EQ(gpu.gpu.report(), "");
}

float code_value(const char* element, std::byte code) {
    return value_of(find_short_format(element), static_cast<std::uint8_t>(code));
}

/// By rows, and behind them the transpose: the codes of what the CPU rounds to.
TEST_F(CudaRounding, BytesOfFp8AreTheCodesOfTheCpusNumbers) {
    const auto cpu = testing::device_at(testing::levels().back());
    const TestedGpu gpu({.architecture = "sm_90"});
    for (const char* element : {"e4m3", "e5m2"})
        for (const DType dtype : {DType::f32, DType::bf16})
            for (const Shape& shape : {Shape{64, 48}, Shape{48, 80}}) {
                RoundingCase of{element, "tensor", shape, 0, 32};
                const Recorded plain(rounding_case(of, dtype));
                of.more = {"fp8"};
                const Recorded as_bytes(rounding_case(of, dtype));
                ReferenceFeed feed = plain.feed;
                feed["x0"] = awkward(feed["x0"].size(), 1, true);
                const auto codes_of_cpu = [&] {
                    const auto values =
                        testing::loaded(testing::run(plain.graph, feed, *cpu)[0], DType::bf16);
                    const std::vector<float> numbers(values.begin(), values.end());
                    std::vector<std::byte> codes(2 * numbers.size());
                    write_codes({layout_named(element), shape[0], shape[1]}, numbers, codes.data());
                    return codes;
                };
                const std::vector<std::byte> codes = codes_of_cpu();
                EXPECT_TRUE(testing::run(as_bytes.graph, feed, *gpu)[0] == codes) << plain.graph.size();
                feed["x0"].front() += 400;
                EXPECT_FALSE(testing::run(as_bytes.graph, feed, *gpu)[0] == codes) << "a number is seen";
                for (const double awkward_one : {std::numeric_limits<double>::infinity(), std::nan("")}) {
                    feed["x0"].front() = awkward_one;
                    const auto found = testing::run(as_bytes.graph, feed, *gpu);
                    const std::vector<std::byte> expected = codes_of_cpu();
                    for (std::size_t i = 0; i < expected.size(); ++i) {
                        if (std::isnan(code_value(element, expected[i])) &&
                            std::isnan(code_value(element, found[0][i])))
                            continue;  // of either sign
                        ASSERT_EQ(found[0][i], expected[i]) << i << " beside " << awkward_one;
                    }
                }
            }
}

}  // namespace
}  // namespace mantissa
