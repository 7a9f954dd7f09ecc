// The standard epilogue of each level: the same bits as plain C++, with and without stores past the caches,
// and nothing written beside the block.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/contraction/epilogue_kernels.h"
#include "mantissa/device/cpu/isa.h"

namespace mantissa::on_cpu {
namespace {

constexpr std::int64_t rows = 5, ld = 96;

struct BlockCase {
    bool bias, addend;
    DType type, out;
    std::int64_t cols;
};

/// The output that the kernel leaves, of `rows` x `ld` that was full of ones.
std::vector<std::byte> finished(EpilogueKernel kernel, const BlockCase& c, bool streaming) {
    Buffer sums(rows * ld * 4), bias(ld * 4), addend(rows * ld * 4), out(rows * ld * 4);
    const RandomStream random{.seed = 3};
    std::uint64_t element = 0;
    for (float& x : sums.as<float>()) x = 3 * random.normal(element++);
    // Ties of BF16 both ways, what rounds to infinity, infinity, a NaN.
    const float special[] = {0x1.01p0f, 0x1.03p0f, 0x1.ffp127f, -INFINITY, std::nanf("")};
    std::ranges::copy(special, sums.as<float>().begin() + 8);
    for (float& x : bias.as<float>()) x = random.normal(element++);
    for (float& x : addend.as<float>()) x = random.normal(element++);
    std::ranges::fill(out.as<std::byte>(), std::byte{1});
    // As BF16, each number is its upper half, twice.
    if (c.type == DType::bf16)
        for (std::uint32_t& x : bias.as<std::uint32_t>()) x = (x & 0xffff0000U) | x >> 16;
    kernel({.sums = sums.as<float>().data(),
            .ld = ld,
            .rows = rows,
            .cols = c.cols,
            .addend = c.addend ? addend.as<float>().data() : nullptr,
            .addend_ld = ld,
            .bias = c.bias ? bias.data() : nullptr,
            .bias_dtype = c.type,
            .out = out.data(),
            .out_dtype = c.out,
            .out_ld = ld,
            .streaming = streaming});
    return {out.as<std::byte>().begin(), out.as<std::byte>().end()};
}

TEST(ContractionEpilogue, SameBitsOnEveryLevel) {
    std::vector<EpilogueKernel> others;
    if (best_isa() >= Isa::avx2) others.push_back(finish_block_avx2);
    if (best_isa() >= Isa::avx512) others.push_back(finish_block_avx512);
    if (has_bf16_dot()) others.push_back(finish_block_avx512bf16);
    for (const int flags : {0, 1, 2, 3})
        for (const DType type : {DType::f32, DType::bf16})
            for (const DType out : {DType::f32, DType::bf16})
                for (const std::int64_t cols : {1, 17, 32, 48, 64}) {
                    const BlockCase c{(flags & 1) != 0, (flags & 2) != 0, type, out, cols};
                    const std::vector<std::byte> expected = finished(finish_block_generic, c, false);
                    for (const EpilogueKernel kernel : others)
                        for (const bool streaming : {false, true})
                            EXPECT_EQ(finished(kernel, c, streaming), expected)
                                << "flags " << flags << ", " << name_of(type) << " to " << name_of(out)
                                << ", " << cols << " columns" << (streaming ? ", streaming" : "");
                    const auto size = static_cast<std::ptrdiff_t>(size_of(out));
                    for (std::int64_t i = 0; i < rows; ++i) {
                        const auto row = expected.begin() + i * ld * size;
                        EXPECT_EQ(std::count(row + cols * size, row + ld * size, std::byte{1}),
                                  (ld - cols) * size);
                        EXPECT_NE(std::count(row, row + cols * size, std::byte{1}), cols * size);
                    }
                }
}

TEST(ContractionEpilogue, AnAddendIsAddedWhereverSumsGo) {
    // Sums, addends and a bias of whole numbers, whose order of addition does not matter; then the output may
    // be the addends themselves, as partial sums are.
    std::vector<EpilogueKernel> kernels{finish_block_generic};
    if (best_isa() >= Isa::avx2) kernels.push_back(finish_block_avx2);
    if (best_isa() >= Isa::avx512) kernels.push_back(finish_block_avx512);
    if (has_bf16_dot()) kernels.push_back(finish_block_avx512bf16);
    for (const EpilogueKernel kernel : kernels)
        for (const bool bias : {false, true})
            for (const bool in_place : {false, true}) {
                Buffer sums(rows * ld * 4), terms(ld * 4), addend(rows * ld * 4), out(rows * ld * 4);
                for (std::size_t i = 0; i < rows * ld; ++i) {
                    sums.as<float>()[i] = static_cast<float>(i);
                    addend.as<float>()[i] = static_cast<float>(3 * i);
                }
                for (float& x : terms.as<float>()) x = 7;
                kernel({.sums = sums.as<float>().data(),
                        .ld = ld,
                        .rows = rows,
                        .cols = 33,
                        .addend = addend.as<float>().data(),
                        .addend_ld = ld,
                        .bias = bias ? terms.data() : nullptr,
                        .out = in_place ? addend.data() : out.data(),
                        .out_ld = ld,
                        .streaming = true});
                const Buffer& result = in_place ? addend : out;
                for (std::size_t i = 0; i < rows; ++i)
                    for (std::size_t j = 0; j < 33; ++j)
                        EXPECT_EQ(reinterpret_cast<const float*>(result.data())[i * ld + j],
                                  static_cast<float>(4 * (i * ld + j) + (bias ? 7 : 0)));
            }
}

}  // namespace
}  // namespace mantissa::on_cpu
