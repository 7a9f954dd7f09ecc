// NVIDIA's assembler on the kernels that round operands of GPT-2 124M at 16 x 1,024 tokens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "mantissa/codegen/grid_kernel.h"
#include "tests/device/nvidias_assembler.h"

namespace mantissa {
namespace {

using codegen::RoundingKernel;
using Block = RoundingKernel::Block;

std::vector<RoundingKernel> of_gpt2() {
    constexpr std::int64_t tokens = 16 * 1024, channels = 3072;
    const RoundingKernel along{
        .from = DType::bf16, .outer = tokens, .depth = channels, .lies = Block::along, .block = 32},
        across{.from = DType::bf16, .depth = tokens, .inner = channels, .lies = Block::across, .block = 32};
    RoundingKernel long_along = along, long_across = across, square = across, tensor = across;
    long_along.block = long_across.block = square.block = 128;
    square.from = DType::f32;
    square.depth = 768;
    square.lies = Block::square;
    tensor.lies = Block::none;
    tensor.rule = ScaleRule::tensor;
    std::vector<RoundingKernel> all{along, across, long_along, long_across, square, tensor};
    for (RoundingKernel kernel : {along, across, square}) {
        kernel.block = 16;
        kernel.rule = ScaleRule::two_level;
        kernel.element = ShortFormat::e2m1;
        kernel.hadamard = kernel.random = kernel.lies != Block::square;
        all.push_back(kernel);
        kernel.random = false;
        kernel.finds_largest = true;
        all.push_back(kernel);
    }
    return all;
}

TEST(CudaRoundingCodeSlow, NvidiasAssemblerSpillsNothing) {
    if (!testing::has_assembler()) GTEST_SKIP() << "no ptxas: CUDA's toolkit is not installed";
    for (const char* const architecture : {"sm_80", "sm_90", "sm_100"}) {
        if (!testing::has_assembler(architecture)) continue;
        for (const RoundingKernel& kernel : of_gpt2())
            fmt::print("{:<6} {}: {}\n", architecture,
                       testing::assembled({.name = "k", .code = kernel}, architecture), text_of(kernel));
    }
}

}  // namespace
}  // namespace mantissa
