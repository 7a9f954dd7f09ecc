// On whole numbers every level of the contraction must give exactly the FP64 reference, at all sizes, layouts
// and types, and must write nothing but its output.
#include <gtest/gtest.h>

#include "mantissa/device/cpu/contraction/pack_avx512.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/device/levels.h"
#include "tests/support/random_draws.h"

namespace mantissa::on_cpu {
namespace {

struct ContractionShape {
    std::array<std::int64_t, 2> batch = {1, 1};
    std::int64_t m = 1, n = 1, k = 1;
};

struct Form {
    DType input = DType::f32;
    DType output = DType::f32;
    Store store = Store::overwrite;
    std::int64_t gap = 0;
};

std::string text_of_case(const ContractionShape& s, const ContractionProblem& p, Isa isa) {
    return std::string(name_of(isa)) + " batch " + std::to_string(s.batch[0]) + "x" +
           std::to_string(s.batch[1]) + " m " + std::to_string(s.m) + " n " + std::to_string(s.n) + " k " +
           std::to_string(s.k) + (p.a.transpose == Transpose::yes ? " a^T" : "") +
           (p.b.transpose == Transpose::yes ? " b^T" : "");
}

/// The FP64 sums of a shape; fill() gives the same operands in every layout and type.
std::vector<double> reference_sums(const ContractionShape& shape) {
    Operand a(DType::f32, Transpose::no, shape.m, shape.k, shape.batch, 0);
    Operand b(DType::f32, Transpose::no, shape.k, shape.n, shape.batch, 0);
    a.fill(Values::whole, 1);
    b.fill(Values::whole, 2);
    std::vector<double> sums;
    for (std::int64_t entry = 0; entry < shape.batch[0] * shape.batch[1]; ++entry)
        for (std::int64_t i = 0; i < shape.m; ++i)
            for (std::int64_t j = 0; j < shape.n; ++j)
                sums.push_back(reference_sum({.k = shape.k}, a, b, entry, i, j).sum);
    return sums;
}

struct Run {
    Transpose ta, tb;
    Isa isa;
    ThreadPool& pool;
    /// Kernels to use instead of the level's.
    const ContractionKernels* kernels = nullptr;
};

void expect_exact(const ContractionShape& shape, const std::vector<double>& sums, const Form& form,
                  const Run& run) {
    Operand a(form.input, run.ta, shape.m, shape.k, shape.batch, form.gap);
    Operand b(form.input, run.tb, shape.k, shape.n, shape.batch, form.gap);
    Operand out(form.output, Transpose::no, shape.m, shape.n, shape.batch, form.gap);
    a.fill(Values::whole, 1);
    b.fill(Values::whole, 2);
    const bool accumulate = form.store == Store::accumulate;
    if (accumulate) out.fill(Values::whole, 3);
    const Operand before = out;
    const ContractionProblem problem{.batch = shape.batch,
                                     .m = shape.m,
                                     .n = shape.n,
                                     .k = shape.k,
                                     .a = a.layout(),
                                     .b = b.layout(),
                                     .out = out.layout(),
                                     .store = form.store};
    SCOPED_TRACE(text_of_case(shape, problem, run.isa));
    ASSERT_EQ(refusal(problem), "");
    const ContractionArguments arguments{.a = a.data(), .b = b.data(), .out = out.data()};
    if (run.kernels)
        contract_in_new_workspace(problem, arguments, run.pool, *run.kernels);
    else
        contract_in_new_workspace(problem, arguments, run.pool, run.isa);
    auto sum = sums.begin();
    for (std::int64_t entry = 0; entry < shape.batch[0] * shape.batch[1]; ++entry)
        for (std::int64_t i = 0; i < shape.m; ++i)
            for (std::int64_t j = 0; j < shape.n; ++j) {
                double expected = *sum++;
                if (accumulate) expected += before.get(entry, i, j);
                if (form.output == DType::bf16) expected = rounded_to_bf16(expected);
                ASSERT_EQ(out.get(entry, i, j), expected)
                    << "entry " << entry << " row " << i << " col " << j;
            }
    EXPECT_EQ(out.unwritten(), out.outside()) << "wrote outside of the output";
}

void expect_exact_in_every_form(const ContractionShape& shape, ThreadPool& pool) {
    const std::vector<double> sums = reference_sums(shape);
    const std::vector<Form> forms{{},
                                  {.input = DType::bf16, .gap = 5},
                                  {.store = Store::accumulate, .gap = 1},
                                  {.input = DType::bf16, .output = DType::bf16},
                                  {.gap = 3}};
    std::size_t turn = 0;  // each second form, others of the next transposition
    for (const Isa isa : testable_levels())
        for (const Transpose ta : {Transpose::no, Transpose::yes})
            for (const Transpose tb : {Transpose::no, Transpose::yes})
                for (const Form& form : forms) {
                    if (++turn % 2 == 0 && !testing::sweeps_are_whole()) continue;
                    expect_exact(shape, sums, form, {ta, tb, isa, pool});
                    if (::testing::Test::HasFatalFailure()) return;
                }
}

/// The tile kernels on their checked twin, whatever this CPU has.
void expect_twin_exact(const ContractionShape& shape, const ContractionKernels& twin, ThreadPool& pool) {
    const std::vector<double> sums = reference_sums(shape);
    for (const Transpose ta : {Transpose::no, Transpose::yes})
        for (const Transpose tb : {Transpose::no, Transpose::yes}) {
            const Run run{ta, tb, Isa::generic, pool, &twin};
            expect_exact(shape, sums, {.input = DType::bf16, .gap = 3}, run);
            expect_exact(shape, sums, {.input = DType::bf16, .output = DType::bf16}, run);
            expect_exact(shape, sums, {.input = DType::bf16, .store = Store::accumulate, .gap = 1}, run);
            if (::testing::Test::HasFatalFailure()) return;
        }
}

void expect_twin_exact_at_all_sizes(const ContractionKernels& twin) {
    ThreadPool pool(2);
    for (const std::int64_t m : {1, 15, 16, 17, 31, 32, 33})
        for (const std::int64_t n : {1, 16, 17, 33, 64})
            for (const std::int64_t k : {1, 2, 31, 32, 33})
                expect_twin_exact({.m = m, .n = n, .k = k}, twin, pool);
    for (const ContractionShape& shape :
         {ContractionShape{.m = 300, .n = 70, .k = 131}, ContractionShape{.m = 37, .n = 200, .k = 1025},
          ContractionShape{.batch = {3, 4}, .m = 33, .n = 47, .k = 65},
          ContractionShape{.m = 5, .n = 50, .k = 0}})
        expect_twin_exact(shape, twin, pool);
}

TEST(ContractionExact, TileKernelsOnTheirTwin) {
    expect_twin_exact_at_all_sizes(contraction_kernels_tile_twin());
}

/// Limits so small that every way of cutting a problem is met: k in one chunk and in several, inside of a
/// block and outside, rows of a packed by a block and for all of them, several chunks of columns.
TEST(ContractionExact, EveryWayOfCuttingAProblem) {
    ThreadPool pool(2);
    ContractionKernels twin = contraction_kernels_tile_twin();
    twin.max_depth = 32;
    twin.whole_depth = 64;
    twin.max_block_bytes = 64 * 64 * 2;
    for (const std::int64_t sums : {0, 64 * 64 * 4}) {
        twin.max_partial_bytes = sums;
        for (const std::int64_t k : testing::some_of<std::int64_t>({64, 70, 131}, 2))
            for (const ContractionShape& shape :
                 {ContractionShape{.m = 300, .n = 70, .k = k}, ContractionShape{.m = 70, .n = 800, .k = k},
                  ContractionShape{.m = 33, .n = 3100, .k = k}})
                expect_twin_exact(shape, twin, pool);
    }
}

TEST(ContractionExact, TilePackingWithAvx512) {
    if (best_isa() < Isa::avx512) GTEST_SKIP() << "no AVX-512";
    ContractionKernels twin = contraction_kernels_tile_twin();
    twin.pack_a = tile_panels_a_avx512();
    twin.pack_b = tile_panels_b_avx512();
    expect_twin_exact_at_all_sizes(twin);
}

TEST(ContractionExact, DotProductsOnTheirTwin) {
    expect_twin_exact_at_all_sizes(contraction_kernels_dot_twin());
}

TEST(ContractionExact, DotProducts) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    expect_twin_exact_at_all_sizes(contraction_kernels_avx512_bf16(PanelWidth::wide));
    expect_twin_exact_at_all_sizes(contraction_kernels_avx512_bf16(PanelWidth::narrow));
}

TEST(ContractionExact, PackingForDotProductsWithVectors) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    ContractionKernels twin = contraction_kernels_dot_twin();
    twin.pack_a = contraction_kernels_avx512_bf16().pack_a;
    twin.pack_b = contraction_kernels_avx512_bf16().pack_b;
    expect_twin_exact_at_all_sizes(twin);
}

TEST(ContractionExact, Bf16WidenedOnAvx512) {
    // The arithmetic of the level on CPUs without AVX512_BF16, and where one operand only is BF16.
    if (best_isa() < Isa::avx512) GTEST_SKIP() << "no AVX-512";
    expect_twin_exact_at_all_sizes(contraction_kernels_avx512(PanelWidth::wide));
    expect_twin_exact_at_all_sizes(contraction_kernels_avx512(PanelWidth::narrow));
}

TEST(ContractionExact, SizesAroundThePanels) {
    ThreadPool pool(2);
    for (const std::int64_t m : {1, 2, 6, 7, 8, 9, 12, 15, 17})
        for (const std::int64_t n : {1, 15, 16, 17, 31, 47, 48, 49, 65})
            for (const std::int64_t k : {1, 2, 17})
                expect_exact_in_every_form({.m = m, .n = n, .k = k}, pool);
}

TEST(ContractionExact, SizesAroundTheBlocks) {
    ThreadPool pool(3);
    for (const ContractionShape& shape :
         {ContractionShape{.m = 257, .n = 49, .k = 383}, ContractionShape{.m = 129, .n = 193, .k = 385},
          ContractionShape{.m = 61, .n = 191, .k = 769}, ContractionShape{.m = 3, .n = 3073, .k = 2},
          ContractionShape{.m = 149, .n = 31, .k = 321}, ContractionShape{.m = 301, .n = 33, .k = 641},
          ContractionShape{.m = 13, .n = 101, .k = 1613}, ContractionShape{.m = 1024, .n = 5, .k = 16}})
        expect_exact_in_every_form(shape, pool);
}

TEST(ContractionExact, Batches) {
    ThreadPool pool(3);
    for (const ContractionShape& shape : {ContractionShape{.batch = {2, 3}, .m = 9, .n = 33, .k = 10},
                                          ContractionShape{.batch = {3, 5}, .m = 35, .n = 64, .k = 64},
                                          ContractionShape{.batch = {1, 9}, .m = 17, .n = 1025, .k = 3},
                                          ContractionShape{.batch = {9, 1}, .m = 17, .n = 11, .k = 400}})
        expect_exact_in_every_form(shape, pool);
}

TEST(ContractionExact, FewRows) {
    ThreadPool pool(3);
    for (const ContractionShape& shape :
         {ContractionShape{.n = 3, .k = 1000}, ContractionShape{.n = 700, .k = 130},
          ContractionShape{.n = 9, .k = 70000}, ContractionShape{.batch = {2, 3}, .n = 300, .k = 70},
          ContractionShape{.n = 40, .k = 0}, ContractionShape{.m = 5, .n = 10, .k = 1000},
          ContractionShape{.m = 8, .n = 700, .k = 130},
          ContractionShape{.batch = {2, 3}, .m = 3, .n = 300, .k = 70}})
        expect_exact_in_every_form(shape, pool);
}

TEST(ContractionExact, SizesOfZero) {
    ThreadPool pool(2);
    for (const ContractionShape& shape :
         {ContractionShape{.m = 0, .n = 3, .k = 4}, ContractionShape{.m = 3, .n = 0, .k = 4},
          ContractionShape{.m = 5, .n = 50, .k = 0},
          ContractionShape{.batch = {0, 3}, .m = 2, .n = 2, .k = 2},
          ContractionShape{.batch = {3, 3}, .m = 2, .n = 2, .k = 0}})
        expect_exact_in_every_form(shape, pool);
}

TEST(ContractionExact, HeadsAreReadAndWrittenWhereTheyLie) {
    // q, k in [B, T, 3, H, D]; the logits [B, H, T, T]; then [T, T] times v written to [B, T, H, D].
    constexpr std::int64_t B = 2, T = 21, H = 5, D = 16, row = 3 * H * D;
    std::vector<float> qkv(B * T * row), logits(B * H * T * T, NAN), heads(B * T * H * D, NAN);
    for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] = static_cast<float>(i * 7 % 9) - 4;
    const MatrixLayout in{.leading = row, .batch_stride = {T * row, D}};
    MatrixLayout transposed = in;
    transposed.transpose = Transpose::yes;
    const MatrixLayout square{.leading = T, .batch_stride = {H * T * T, T * T}};
    const MatrixLayout out{.leading = H * D, .batch_stride = {T * H * D, D}};
    ThreadPool pool(2);
    for (const Isa isa : testable_levels()) {
        contract_in_new_workspace(
            {.batch = {B, H}, .m = T, .n = T, .k = D, .a = in, .b = transposed, .out = square},
            {.a = qkv.data(), .b = qkv.data() + H * D, .out = logits.data()}, pool, isa);
        contract_in_new_workspace({.batch = {B, H}, .m = T, .n = D, .k = T, .a = square, .b = in, .out = out},
                                  {.a = logits.data(), .b = qkv.data() + 2 * H * D, .out = heads.data()},
                                  pool, isa);
        const auto at = [&](std::int64_t b, std::int64_t t, std::int64_t which, std::int64_t h,
                            std::int64_t d) {
            return qkv[static_cast<std::size_t>(b * T * row + t * row + which * H * D + h * D + d)];
        };
        for (std::int64_t b = 0; b < B; ++b)
            for (std::int64_t h = 0; h < H; ++h)
                for (std::int64_t t = 0; t < T; ++t)
                    for (std::int64_t d = 0; d < D; ++d) {
                        double expected = 0;
                        for (std::int64_t s = 0; s < T; ++s) {
                            double logit = 0;
                            for (std::int64_t e = 0; e < D; ++e)
                                logit += at(b, t, 0, h, e) * at(b, s, 1, h, e);
                            expected += logit * at(b, s, 2, h, d);
                        }
                        ASSERT_EQ(heads[static_cast<std::size_t>(((b * T + t) * H + h) * D + d)], expected)
                            << name_of(isa);
                    }
    }
}

TEST(ContractionExact, OutputsThatBypassTheCaches) {
    // More than 2^21 sums in rows of whole lines, with rows and columns left over at the edges.
    const ContractionShape shape{.m = 1453, .n = 1456, .k = 5};
    const std::vector<double> sums = reference_sums(shape);
    Operand filled_a(DType::f32, Transpose::no, shape.m, shape.k, {1, 1}, 0);
    Operand filled_b(DType::f32, Transpose::no, shape.k, shape.n, {1, 1}, 0);
    filled_a.fill(Values::whole, 1);
    filled_b.fill(Values::whole, 2);
    Buffer out(sums.size() * sizeof(float));
    ThreadPool pool(2);
    for (const Isa isa : testable_levels()) {
        for (float& value : out.as<float>()) value = NAN;
        contract_in_new_workspace({.m = shape.m,
                                   .n = shape.n,
                                   .k = shape.k,
                                   .a = filled_a.layout(),
                                   .b = filled_b.layout(),
                                   .out = {.leading = shape.n}},
                                  {.a = filled_a.data(), .b = filled_b.data(), .out = out.data()}, pool, isa);
        for (std::size_t i = 0; i < sums.size(); ++i)
            ASSERT_EQ(out.as<float>()[i], sums[i]) << name_of(isa) << i;
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
