// Contractions of few sums over a long depth, cut along it.
#include "mantissa/device/cpu/kernels/depth_shares.h"

#include <gtest/gtest.h>

#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/device/levels.h"

namespace mantissa::on_cpu {
namespace {

struct SharesCase {
    DType operands, out;
    Transpose a, b;
};

constexpr std::int64_t m = 24, n = 40, k = 12288;

struct SharesOperands {
    SharesOperands(const SharesCase& c, Values values)
        : a(c.operands, c.a, m, k, {1, 1}, 3), b(c.operands, c.b, k, n, {1, 1}, 2) {
        a.fill(values, 1);
        b.fill(values, 2);
        problem = {.m = m, .n = n, .k = k, .a = a.layout(), .b = b.layout()};
        problem.out = {.dtype = c.out, .leading = n + 5};
    }

    Operand a, b;
    ContractionProblem problem;
};

/// The output with what lies between its rows, which is NaN before.
Operand run_shares(SharesOperands& operands, Isa isa, int threads) {
    ThreadPool pool(threads, threads);
    operands.problem.threads = threads;
    const auto shares = DepthShares::of(prepare_contraction(operands.problem, isa));
    Operand out(operands.problem.out.dtype, Transpose::no, m, n, {1, 1}, 5);
    if (!shares) {
        ADD_FAILURE() << "it stays whole";
        return out;
    }
    const std::size_t bytes = shares->workspace_bytes(threads);
    Buffer workspace(bytes + 64);
    for (float& value : workspace.as<float>()) value = std::numeric_limits<float>::quiet_NaN();
    shares->run({.a = operands.a.data(), .b = operands.b.data(), .out = out.data()},
                workspace.as<std::byte>().subspan(0, bytes), pool);
    return out;
}

TEST(DepthShares, AreExactOnWholeNumbersAtEveryLevel) {
    for (const Isa isa : testable_levels())
        for (const SharesCase& c : {SharesCase{DType::f32, DType::f32, Transpose::yes, Transpose::no},
                                    SharesCase{DType::f32, DType::bf16, Transpose::no, Transpose::no},
                                    SharesCase{DType::bf16, DType::f32, Transpose::no, Transpose::yes},
                                    SharesCase{DType::bf16, DType::bf16, Transpose::yes, Transpose::yes}}) {
            SharesOperands operands(c, Values::whole);
            const Operand out = run_shares(operands, isa, 2);
            EXPECT_EQ(out.unwritten(), out.outside());
            for (std::int64_t i = 0; i < m; ++i)
                for (std::int64_t j = 0; j < n; ++j) {
                    const double sum = reference_sum(operands.problem, operands.a, operands.b, 0, i, j).sum;
                    ASSERT_EQ(out.get(0, i, j), c.out == DType::bf16 ? rounded_to_bf16(sum) : sum)
                        << name_of(isa) << ", row " << i << ", column " << j;
                }
        }
}

TEST(DepthShares, HaveTheSameBitsForAnyNumberOfThreads) {
    for (const Isa isa : testable_levels()) {
        SharesOperands operands({DType::f32, DType::f32, Transpose::yes, Transpose::no}, Values::normal);
        const Operand one = run_shares(operands, isa, 1);
        for (const int threads : {3, 64}) {
            const Operand many = run_shares(operands, isa, threads);
            for (std::int64_t i = 0; i < m; ++i)
                for (std::int64_t j = 0; j < n; ++j) ASSERT_EQ(one.get(0, i, j), many.get(0, i, j));
        }
    }
}

TEST(DepthShares, AreForFewSumsOverALongDepthOfEqualParts) {
    const auto pays_on = [](const ContractionKernels& kernels, ContractionProblem problem) {
        problem.a.transpose = Transpose::yes;
        problem.a.leading = problem.m;
        problem.b.leading = problem.out.leading = problem.n;
        problem.out.batch_stride[1] = problem.m * problem.n;
        return DepthShares::of(prepare_contraction(problem, kernels)).has_value();
    };
    const auto pays = [&](const ContractionProblem& problem) {
        return pays_on(contraction_kernels_generic(), problem);
    };
    EXPECT_TRUE(pays({.m = 128, .n = 128, .k = 50176}));
    EXPECT_FALSE(pays({.m = 128, .n = 128, .k = 50177})) << "no equal parts";
    EXPECT_FALSE(pays({.m = 128, .n = 128, .k = 512})) << "short";
    EXPECT_FALSE(pays({.m = 768, .n = 3072, .k = 4096})) << "blocks enough";
    EXPECT_FALSE(pays({.batch = {1, 2}, .m = 128, .n = 128, .k = 50176})) << "a batch as it is";
    EXPECT_TRUE(pays({.m = 128, .n = 128, .k = 8 * 1528}));
    const ContractionKernels tiles = contraction_kernels_tile_twin();
    EXPECT_FALSE(pays_on(tiles, {.m = 128, .n = 128, .k = 8 * 1528})) << "tiles are quicker than memory";
    EXPECT_TRUE(pays_on(tiles, {.m = 128, .n = 128, .k = 8 * 1536}));
    ContractionProblem more{.m = 128, .n = 128, .k = 50176};
    more.store = Store::accumulate;
    EXPECT_FALSE(pays(more)) << "sums are added to what there is";
}

}  // namespace
}  // namespace mantissa::on_cpu
