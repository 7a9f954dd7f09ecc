// Algorithms that compute something else than they should, or round otherwise, are refused: on the emulated
// GPU with planted times and planted faults, for every form of product that is asked for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cuda/kernels/product_sample.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/passes/simplify.h"
#include "mantissa/runtime/plan.h"
#include "tests/support/planted_clock.h"

namespace mantissa {
namespace {

using testing::PlantedClock;

/// A form of product, and an error of an element that must be noticed. Sums of 40 products of numbers between
/// -1 and 1 are below 8, so that a unit in the last place is at most 2^-5 in BF16 and 2^-8 in FP16.
struct ProductForm {
    std::string name;
    DType dtype = DType::f32;
    double fault = 0x1p-13;
    bool transpose_a = false, transpose_b = false, bias = false, tf32 = false;
    std::int64_t batch = 1;
    enum class Epilogue {
        none,
        result,
        result_and_input,
        gradient,
        gradient_and_sums
    } epilogue = Epilogue::none;

    friend void PrintTo(const ProductForm& form, std::ostream* out) { *out << form.name; }
};

std::vector<ProductForm> forms() {
    using enum ProductForm::Epilogue;
    constexpr double of_bf16 = 0x1p-4, of_fp16 = 0x1p-7;
    return {{.name = "Plain"},
            {.name = "TransposedLeft", .transpose_a = true},
            {.name = "TransposedRight", .transpose_b = true},
            {.name = "Batch", .transpose_b = true, .batch = 3},
            {.name = "Bias", .bias = true},
            {.name = "Bf16", .dtype = DType::bf16, .fault = of_bf16},
            {.name = "Bf16WithBias", .dtype = DType::bf16, .fault = of_bf16, .bias = true},
            {.name = "Fp16WithBias", .dtype = DType::f16, .fault = of_fp16, .bias = true},
            {.name = "Tf32", .fault = 0.05, .tf32 = true},
            {.name = "Gelu", .fault = 0.02, .bias = true, .epilogue = result},
            {.name = "GeluAndInput",
             .dtype = DType::bf16,
             .fault = 0.1,
             .bias = true,
             .epilogue = result_and_input},
            {.name = "GeluGradient", .dtype = DType::bf16, .fault = 0.1, .epilogue = gradient},
            {.name = "GeluGradientAndSums", .fault = 0.02, .epilogue = gradient_and_sums}};
}

constexpr std::int64_t M = 24, K = 40, N = 48;

Graph graph_of(const ProductForm& form) {
    using enum ProductForm::Epilogue;
    Graph graph;
    const bool gradient_of_gelu = form.epilogue == gradient || form.epilogue == gradient_and_sums;
    const OriginScope scope(graph,
                            {.scope = "", .stage = gradient_of_gelu ? Stage::backward : Stage::forward});
    const auto given = [&](const char* name, std::vector<std::int64_t> extents) {
        return Tensor(graph, graph.add_input(name, {form.dtype, Shape(std::move(extents))}));
    };
    const auto matrix = [&](const char* name, std::int64_t high, std::int64_t wide, bool transposed) {
        if (transposed) std::swap(high, wide);
        return form.batch == 1 ? given(name, {high, wide}) : given(name, {form.batch, high, wide});
    };
    MatmulOptions options{.transpose_a = form.transpose_a, .transpose_b = form.transpose_b};
    if (form.bias) options.bias = given("bias", {N});
    if (form.tf32) options.multiply = "tf32";
    const Tensor a = matrix("a", M, K, form.transpose_a);
    const Tensor b = matrix("b", K, N, form.transpose_b);
    Tensor y = matmul(a, b, options);
    if (form.epilogue == result_and_input) graph.add_result("input", y.value());
    if (form.epilogue == result || form.epilogue == result_and_input) y = gelu(y);
    if (gradient_of_gelu)
        y = Tensor(graph, {graph.add("gelu_grad", {y.value(), given("x", {M, N}).value()}, {}), 0});
    graph.add_result("y", y.value());
    if (form.epilogue == gradient_and_sums) graph.add_result("sums", sum(y, {0}).value());
    return graph;
}

class CudaProductSample : public ::testing::TestWithParam<ProductForm> {
  protected:
    void SetUp() override {
        if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    }

    /// The plan's words on its only product's algorithm.
    static std::string algorithm_on(const PlantedClock& clock) {
        const auto device = clock.device();
        const Graph graph = expand(graph_of(GetParam()), [](const Graph&, const Node&) { return true; });
        const Plan plan(fuse(simplify(graph), machine_for_passes(*device)).graph, *device);
        std::string text;
        for (const PlannedNode& node : plan.nodes()) text += node.algorithm;
        return text;
    }
};

TEST_P(CudaProductSample, WhatIsRightIsTaken) {
    const std::string text = algorithm_on(PlantedClock({5, 1, 3}));
    EXPECT_TRUE(text.starts_with("algorithm ")) << text;
    EXPECT_EQ(text.find("refused"), std::string::npos) << text;
    EXPECT_EQ(text.find("gelu") != std::string::npos, GetParam().epilogue != ProductForm::Epilogue::none)
        << text;
}

TEST_P(CudaProductSample, WhatIsWrongIsRefused) {
    const PlantedClock clock({5, 1, 3});
    clock.falsify(1, GetParam().dtype, GetParam().fault);
    const std::string text = algorithm_on(clock);
    EXPECT_NE(text.find("refused: algorithm "), std::string::npos) << text;
    for (const std::size_t place : {0u, 2u}) clock.falsify(place, GetParam().dtype, GetParam().fault);
    EXPECT_THROW(algorithm_on(clock), UserError);
}

/// The products of a fused linear cross-entropy, of which one adds to what lies in its output.
TEST(CudaProductSums, AddToWhatIsThere) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    Graph graph;
    const auto given = [&](const char* name, DType dtype, Shape shape) {
        return Tensor(graph, graph.add_input(name, {dtype, std::move(shape)}));
    };
    const Tensor inputs[] = {given("x", DType::f32, {M, K}), given("w", DType::f32, {N, K}),
                             given("targets", DType::i32, {M}), given("scale", DType::f32, {})};
    for (const Tensor output : call(graph, "linear_cross_entropy", inputs))
        graph.add_result(fmt::format("y{}", graph.results().size()), output.value());
    const auto algorithms = [&](const PlantedClock& clock) {
        const auto device = clock.device();
        return Plan(graph, *device).nodes().at(0).algorithm;
    };
    const PlantedClock clock({5, 1, 3});
    const std::string text = algorithms(clock);
    EXPECT_NE(text.find("added to it"), std::string::npos) << text;
    EXPECT_EQ(text.find("refused"), std::string::npos) << text;
    clock.falsify(1, DType::f32, 0x1p-13);
    const std::string added = algorithms(clock).substr(algorithms(clock).find("added to it"));
    EXPECT_NE(added.find("refused"), std::string::npos) << added;
}

/// An H200's cuBLASLt rounds a product before it multiplies it by GELU's derivative. A derivative that is a
/// tenth too large is noticed, but where it is almost 0.
TEST(CudaProductSampleOfGelu, AllowsARoundingOfTheProduct) {
    on_cuda::Product product{
        .a = {DType::bf16, 32, 64}, .b = {DType::bf16, 64, 256}, .y = {DType::bf16, 32, 256}};
    const std::vector<on_cuda::ExpectedNumber> sums = on_cuda::sample_of(product);
    product.epilogue = on_cuda::Product::Epilogue::gelu_gradient;
    const std::vector<on_cuda::ExpectedNumber> expected = on_cuda::sample_of(product);
    ASSERT_EQ(sums.size(), expected.size());
    int beyond_one_rounding = 0, notices_a_tenth = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const double derivative = expected[i].value / sums[i].value;
        const double rounded = rounded_to(rounded_to(sums[i].value, DType::bf16) * derivative, DType::bf16);
        const double error = std::abs(rounded - expected[i].value);
        EXPECT_LE(error, expected[i].allowed);
        if (error > ulp_at(expected[i].value, DType::bf16) / 2) ++beyond_one_rounding;
        if (std::abs(0.1 * expected[i].value) > expected[i].allowed) ++notices_a_tenth;
    }
    EXPECT_GT(beyond_one_rounding, 5);
    EXPECT_GT(notices_a_tenth, 50);
}

INSTANTIATE_TEST_SUITE_P(Forms, CudaProductSample, ::testing::ValuesIn(forms()),
                         [](const auto& form) { return form.param.name; });

}  // namespace
}  // namespace mantissa
