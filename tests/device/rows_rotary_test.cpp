// Rotary positions against their definition in FP64, beside and over the heads that are turned.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mantissa/base/error.h"
#include "tests/device/rows_harness.h"

namespace mantissa::on_cpu {
namespace {

struct RotaryCase {
    std::int64_t sequences, sequence, heads, head_size;
    DType dtype = DType::f32;
};

/// Halves of less than a vector, of whole ones and of a few lanes more; several sequences; the last is longer
/// than one block.
const RotaryCase rotary_cases[] = {{1, 1, 1, 2},
                                   {2, 3, 2, 6},
                                   {1, 5, 3, 32},
                                   {2, 2, 1, 34, DType::bf16},
                                   {1, 3, 2, 96},
                                   {3, 1, 5, 128},
                                   {2, 7, 1, 66, DType::f16},
                                   {2, 300, 3, 80}};

TEST(RowsRotary, TurnsPairsAsItsDefinition) {
    for (const RotaryCase& k : rotary_cases) {
        SCOPED_TRACE(::testing::Message() << k.sequences << " x " << k.sequence << " x " << k.heads << " x "
                                          << k.head_size << " " << name_of(k.dtype));
        const std::int64_t half = k.head_size / 2, tokens = k.sequences * k.sequence;
        const std::int64_t count = tokens * k.heads * k.head_size;
        const std::vector<double> x = normal_values(count, k.dtype, 1, 1);
        const std::vector<double> c = normal_values(k.sequence * half, DType::f32, 1, 2);
        const std::vector<double> s = normal_values(k.sequence * half, DType::f32, 1, 3);
        std::vector<double> y(x.size()), size(x.size());
        for (std::int64_t row = 0; row < tokens * k.heads; ++row)
            for (std::int64_t i = 0; i < half; ++i) {
                const auto angle = static_cast<std::size_t>(row / k.heads % k.sequence * half + i);
                const auto first = static_cast<std::size_t>(row * k.head_size + i);
                const std::size_t second = first + static_cast<std::size_t>(half);
                y[first] = x[first] * c[angle] - x[second] * s[angle];
                y[second] = x[second] * c[angle] + x[first] * s[angle];
                size[first] = std::fabs(x[first] * c[angle]) + std::fabs(x[second] * s[angle]);
                size[second] = std::fabs(x[second] * c[angle]) + std::fabs(x[first] * s[angle]);
            }
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, k.dtype, count), out(setting, k.dtype, count);
            Guarded cosine(setting, DType::f32, k.sequence * half), sine(setting, DType::f32, cosine.count());
            in.assign(x);
            cosine.assign(c);
            sine.assign(s);
            Rotary problem{.tokens = tokens,
                           .sequence = k.sequence,
                           .heads = k.heads,
                           .head_size = k.head_size,
                           .cosine = cosine.f32(),
                           .sine = sine.f32(),
                           .x = in.in(),
                           .y = out.out()};
            rotary(setting.kernels, problem, setting.pool, setting.stores);
            // Two products, each rounded or fused into their sum.
            expect_matches(out, y, Tolerance::bound(1, 2, eps32, size));
            problem.y = in.out();
            rotary(setting.kernels, problem, setting.pool, setting.stores);
            EXPECT_TRUE(joined({&in}) == joined({&out})) << "in place it is another number";
            return joined({&out});
        });
    }
}

TEST(RowsRotary, WhatDoesNotFitIsNamed) {
    ThreadPool pool(1);
    float numbers[12] = {};
    Rotary problem{.tokens = 2,
                   .sequence = 2,
                   .heads = 1,
                   .head_size = 3,
                   .cosine = numbers,
                   .sine = numbers + 2,
                   .x = {numbers + 4},
                   .y = {numbers + 4}};
    const auto refused = [&](const char* part) {
        try {
            rotary(row_kernels(Isa::generic), problem, pool);
        } catch (const InternalError& error) {
            return std::string(error.what()).find(part) != std::string::npos;
        }
        return false;
    };
    EXPECT_TRUE(refused("head_size is odd"));
    problem.head_size = 2;
    problem.tokens = 3;
    EXPECT_TRUE(refused("tokens is not a multiple of sequence"));
    problem.tokens = 2;
    EXPECT_NO_THROW(rotary(row_kernels(Isa::generic), problem, pool));
}

}  // namespace
}  // namespace mantissa::on_cpu
