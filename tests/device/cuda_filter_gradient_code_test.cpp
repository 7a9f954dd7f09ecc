// Kernels of filters' gradients as PTX: what NVIDIA's assembler makes of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mantissa/codegen/grid_kernel.h"
#include "tests/device/nvidias_assembler.h"

namespace mantissa {
namespace {

using codegen::FilterGradientKernel;

/// A window whose outputs are as many as its images' pixels, or every `stride`th.
FilterGradientKernel gradient_of(std::int64_t extent, std::int64_t channels, std::int64_t window,
                                 std::int64_t stride) {
    const std::int64_t padding = (window - 1) / 2;
    const ConvolutionAxis axis{.image = extent,
                               .output = extent / stride,
                               .filter = window,
                               .stride = stride,
                               .before = padding,
                               .behind = padding};
    return {.of = {.images = 128,
                   .channels = channels,
                   .filters = channels,
                   .vertical = axis,
                   .horizontal = axis},
            .parts = 16};
}

TEST(CudaFilterGradientCode, SaysWhyASizeIsNotItsOwn) {
    const auto refusal_of = [](auto change) {
        FilterGradientKernel kernel = gradient_of(56, 64, 3, 1);
        change(kernel.of);
        return codegen::refuse_filter_gradient(kernel);
    };
    EXPECT_EQ(refusal_of([](Convolution&) {}), "");
    EXPECT_EQ(refusal_of([](Convolution& of) { of.groups = 2; }), "it takes one group, got 2");
    EXPECT_EQ(refusal_of([](Convolution& of) { of.channels = 3; }),
              "it moves channels and filters by 8, got 3 and 64");
    EXPECT_EQ(refusal_of([](Convolution& of) { of.horizontal.filter = 11; }),
              "it keeps the sums of 9 taps of a row at most, got 11");
    EXPECT_EQ(refusal_of([](Convolution& of) { of.horizontal.dilation = 100; }),
              "the pixels of 16 windows do not fit shared memory");
    EXPECT_EQ(refusal_of([](Convolution& of) { of.images = 1 << 20; }),
              "its images are too large to be counted in 32 bits");
    EXPECT_EQ(
        refusal_of([](Convolution& of) { of.channels = 8; }),
        "tiles and lines filled up with zeros make 4.1 times the products, and TF32 takes twice as long");
}

TEST(CudaFilterGradientCodeSlow, NvidiasAssemblerSpillsNothing) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    if (!testing::has_assembler()) GTEST_SKIP() << "no ptxas: CUDA's toolkit is not installed";
    const FilterGradientKernel kernels[] = {gradient_of(56, 64, 3, 1),  gradient_of(56, 128, 3, 2),
                                            gradient_of(7, 512, 3, 1),  gradient_of(28, 96, 5, 1),
                                            gradient_of(224, 64, 7, 2), gradient_of(128, 32, 3, 1)};
    for (const char* const architecture : {"sm_80", "sm_90", "sm_90a", "sm_100"}) {
        if (!testing::has_assembler(architecture)) continue;
        for (const FilterGradientKernel& kernel : kernels) {
            ASSERT_EQ(codegen::refuse_filter_gradient(kernel), "");
            fmt::print("{:<7} {}: {}\n", architecture, codegen::text_of(kernel),
                       testing::assembled({.name = "k", .code = kernel}, architecture));
        }
    }
}

}  // namespace
}  // namespace mantissa
