// The estimated time of attention beside its lines.
#include "mantissa/device/cpu/kernels/attention_time.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mantissa/device/cpu/attention/attention.h"

namespace mantissa::on_cpu {
namespace {

AttentionSize size_of_text(std::int64_t positions, bool causal) {
    return {.sequences = 2,
            .heads = 6,
            .queries = positions,
            .keys = positions,
            .head_size = 64,
            .causal = causal,
            .scale = 0.125f};
}

double ratio(const AttentionKernels& kernels, const AttentionSize& size, bool with_backward = true) {
    TimeBesideParts time = *attention_time(kernels, size, {}, AttentionPass::forward);
    if (with_backward) {
        const TimeBesideParts backward = *attention_time(kernels, size, {}, AttentionPass::backward);
        time.whole += backward.whole;
        time.parts += backward.parts;
    }
    return time.whole / time.parts;
}

/// Forward and backward, as bench/records/attention-lines-20261124-0939.txt and
/// attention-lines-generic-20261124-1159.txt have it, within a fourth, which is what match_attention asks for
/// before it refuses.
TEST(AttentionTime, IsWhatWasMeasured) {
    const struct {
        const AttentionKernels& kernels;
        std::int64_t positions;
        bool causal;
        double measured;
    } cases[] = {
        {attention_kernels_generic(), 16, true, 3.22},     {attention_kernels_generic(), 64, true, 1.21},
        {attention_kernels_generic(), 256, true, 0.83},    {attention_kernels_generic(), 256, false, 1.35},
        {attention_kernels_avx2(), 16, true, 2.39},        {attention_kernels_avx2(), 256, true, 0.73},
        {attention_kernels_avx512(), 16, true, 2.36},      {attention_kernels_avx512(), 64, true, 1.06},
        {attention_kernels_avx512(), 256, true, 0.75},     {attention_kernels_avx512(), 256, false, 1.13},
        {attention_kernels_avx512_bf16(), 16, true, 2.05}, {attention_kernels_avx512_bf16(), 64, true, 0.94},
        {attention_kernels_avx512_bf16(), 256, true, 0.67}};
    for (const auto& each : cases) {
        const double estimated = ratio(each.kernels, size_of_text(each.positions, each.causal));
        const std::string what = std::string(each.kernels.name) + ", " + std::to_string(each.positions);
        EXPECT_LT(estimated, each.measured * 1.25) << what;
        EXPECT_GT(estimated, each.measured / 1.25) << what;
    }
}

TEST(AttentionTime, RatiosAreThoseOfAnyNumberOfHeads) {
    const AttentionSize few = size_of_text(48, true);
    AttentionSize many = few;
    many.sequences = 77;
    EXPECT_NEAR(ratio(attention_kernels_avx2(), few), ratio(attention_kernels_avx2(), many), 1e-12);
}

TEST(AttentionTime, BlocksThatNothingSeesTakeNone) {
    const AttentionSize s = size_of_text(128, false);
    // Each block of 32 queries sees its own keys and those before: a band of two blocks.
    std::vector<Sees> blocks(16, Sees::nothing);
    for (std::size_t row = 0; row < 4; ++row)
        for (const std::size_t column : {row, row == 0 ? row : row - 1})
            blocks[row * 4 + column] = Sees::some;
    const auto take = [&](const BlockTable& table, AttentionPass pass) {
        return attention_time(attention_kernels_avx512(), s, table, pass)->whole;
    };
    const auto rows = [&](double of_row) { return 12 * of_row * 128 * 64; };
    const BlockTable band{.blocks = blocks.data()};
    // Forward 7 of 16 blocks are seen; backward, of 32 queries by 64 keys, 5 of 8.
    EXPECT_NEAR(
        (take(band, AttentionPass::forward) - rows(0.6)) / (take({}, AttentionPass::forward) - rows(0.6)),
        7.0 / 16, 1e-12);
    EXPECT_NEAR(
        (take(band, AttentionPass::backward) - rows(1)) / (take({}, AttentionPass::backward) - rows(1)),
        5.0 / 8, 1e-12);
}

TEST(AttentionTime, OfTilesNothingIsKnown) {
    EXPECT_FALSE(attention_time(attention_kernels_amx(), size_of_text(16, true), {}, AttentionPass::forward));
}

}  // namespace
}  // namespace mantissa::on_cpu
