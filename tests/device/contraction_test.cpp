// The contraction on ordinary numbers: error within the derived bound, epilogues, the same bits for any
// number of threads, and the errors it reports.
#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/base/error.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/device/levels.h"
#include "tests/support/error_of.h"

namespace mantissa::on_cpu {
namespace {

/// Sums of n products in FP32, in any order: |error| <= n eps sum|a b| (1 + ...), eps = 2^-24 for each of the
/// n roundings of products and at most n of sums (Higham, Accuracy and Stability, 3.1). Chunks of the depth
/// and FMA only lessen it. The factor 2 counts a product's rounding beside the sum's.
double bound(std::int64_t n, double magnitude) { return 2 * static_cast<double>(n) * 0x1p-24 * magnitude; }

struct BoundedErrors {
    std::int64_t beyond_bound = 0;
    /// The largest error as a share of the bound.
    double worst = 0;
};

BoundedErrors errors_of_product(const ContractionProblem& problem, const Operand& a, const Operand& b,
                                const Operand& out) {
    BoundedErrors outcome;
    for (std::int64_t i = 0; i < problem.m; ++i)
        for (std::int64_t j = 0; j < problem.n; ++j) {
            const ReferenceSum reference = reference_sum(problem, a, b, 0, i, j);
            const double error = std::abs(out.get(0, i, j) - reference.sum);
            const double allowed = bound(problem.k, reference.magnitude);
            outcome.beyond_bound += !(error <= allowed);
            outcome.worst = std::max(outcome.worst, error / allowed);
        }
    return outcome;
}

TEST(Contraction, ErrorStaysWithinTheBoundAndTheBoundBites) {
    ThreadPool pool(2);
    for (const Isa isa : testable_levels()) {
        Operand a(DType::f32, Transpose::no, 67, 1000, {1, 1}, 0);
        Operand b(DType::f32, Transpose::yes, 1000, 131, {1, 1}, 0);
        Operand out(DType::f32, Transpose::no, 67, 131, {1, 1}, 0);
        a.fill(Values::normal, 1);
        b.fill(Values::normal, 2);
        const ContractionProblem problem{
            .m = 67, .n = 131, .k = 1000, .a = a.layout(), .b = b.layout(), .out = out.layout()};
        contract_in_new_workspace(problem, {.a = a.data(), .b = b.data(), .out = out.data()}, pool, isa);
        const BoundedErrors outcome = errors_of_product(problem, a, b, out);
        EXPECT_EQ(outcome.beyond_bound, 0) << name_of(isa);
        EXPECT_GT(outcome.worst, 0) << name_of(isa) << ": FP32 sums cannot all be exact";

        // One product of the thousand left out of one sum, or a sum never written: both must be noticed.
        const double missing = a.get(0, 5, 77) * b.get(0, 77, 9);
        const float right = static_cast<float>(out.get(0, 5, 9));
        out.set(0, 5, 9, static_cast<float>(right - missing));
        EXPECT_EQ(errors_of_product(problem, a, b, out).beyond_bound, 1) << name_of(isa);
        out.set(0, 5, 9, NAN);
        EXPECT_EQ(errors_of_product(problem, a, b, out).beyond_bound, 1) << name_of(isa);
    }
}

TEST(Contraction, SameBitsForAnyNumberOfThreads) {
    for (const Isa isa : testable_levels())
        for (const auto& [m, n, k] : {std::array{300, 500, 900}, std::array{768, 100, 1200},
                                      std::array{40, 3200, 64}, std::array{1, 5000, 300}}) {
            Operand a(DType::f32, Transpose::yes, m, k, {1, 1}, 0);
            Operand b(DType::f32, Transpose::no, k, n, {1, 1}, 0);
            a.fill(Values::normal, 1);
            b.fill(Values::normal, 2);
            std::vector<float> first;
            for (const int threads : {1, 2, 3, 7, 64}) {
                ThreadPool pool(threads, threads);  // all at once, though there are fewer cores
                std::vector<float> out(static_cast<std::size_t>(m * n), NAN);
                contract_in_new_workspace({.m = m,
                                           .n = n,
                                           .k = k,
                                           .a = a.layout(),
                                           .b = b.layout(),
                                           .out = {.leading = n},
                                           .threads = threads},
                                          {.a = a.data(), .b = b.data(), .out = out.data()}, pool, isa);
                if (first.empty()) first = out;
                EXPECT_EQ(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)), 0)
                    << name_of(isa) << " with " << threads << " threads";
            }
        }
}

TEST(Contraction, DotProductsHaveTheBitsOfTheirTwin) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    ThreadPool pool(2);
    Operand a(DType::bf16, Transpose::no, 67, 1001, {1, 1}, 0);
    Operand b(DType::bf16, Transpose::yes, 1001, 131, {1, 1}, 0);
    a.fill(Values::normal, 1);
    b.fill(Values::normal, 2);
    const auto product = [&](const ContractionKernels& kernels) {
        std::vector<float> out(67 * 131, NAN);
        contract_in_new_workspace(
            {.m = 67, .n = 131, .k = 1001, .a = a.layout(), .b = b.layout(), .out = {.leading = 131}},
            {.a = a.data(), .b = b.data(), .out = out.data()}, pool, kernels);
        return out;
    };
    const std::vector<float> unit = product(contraction_kernels_avx512_bf16());
    EXPECT_EQ(std::memcmp(unit.data(), product(contraction_kernels_dot_twin()).data(), unit.size() * 4), 0);
    // The order of sums differs from FP32's, or nothing was compared.
    EXPECT_NE(std::memcmp(unit.data(), product(contraction_kernels_avx512()).data(), unit.size() * 4), 0);
}

/// c + a0 b0 + a1 b1 in BF16, c being the product (c, 1) one pair earlier. Nine equal rows, since fewer
/// are widened.
float dot_of_pairs(float c, std::array<float, 2> a, std::array<float, 2> b) {
    const std::array row{bf16_bits(c), bf16_bits(0), bf16_bits(a[0]), bf16_bits(a[1])};
    constexpr std::int64_t m = 9;
    std::array<std::array<std::uint16_t, 4>, m> rows;
    rows.fill(row);
    const std::array column{bf16_bits(1), bf16_bits(0), bf16_bits(b[0]), bf16_bits(b[1])};
    const MatrixLayout layout{.dtype = DType::bf16, .leading = 4};
    MatrixLayout transposed = layout;
    transposed.transpose = Transpose::yes;
    std::array<float, m> out{};
    ThreadPool pool(1);
    contract_in_new_workspace({.m = m, .n = 1, .k = 4, .a = layout, .b = transposed, .out = {.leading = 1}},
                              {.a = rows.data(), .b = column.data(), .out = out.data()}, pool,
                              contraction_kernels_avx512_bf16());
    return out[m - 1];
}

TEST(Contraction, DotProductsRoundAsDocumented) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    const float tiny = 0x1p-12F;
    // Two sums, each rounded to nearest even: two halves of an epsilon one after the other are lost ...
    EXPECT_EQ(dot_of_pairs(1, {tiny, tiny}, {tiny, tiny}), 1);
    EXPECT_EQ(dot_of_pairs(1, {tiny, 0}, {tiny * 1.5F, 0}), 1 + 0x1p-23F);
    // ... and the odd product comes first.
    EXPECT_EQ(dot_of_pairs(1, {tiny * tiny, -1}, {1, 1}), tiny * tiny);
    EXPECT_EQ(dot_of_pairs(1, {-1, tiny * tiny}, {1, 1}), 0);
    // Subnormal operands and sums are zero, whatever the thread's own flags say.
    EXPECT_EQ(dot_of_pairs(0, {0x1p-130F, 0}, {0x1p20F, 0}), 0);
    EXPECT_EQ(dot_of_pairs(0, {0x1p-64F, 0}, {0x1p-64F, 0}), 0);
    EXPECT_EQ(dot_of_pairs(0, {INFINITY, 0}, {-1, 0}), -INFINITY);
    EXPECT_TRUE(std::isnan(dot_of_pairs(0, {INFINITY, 0}, {0, 0})));
}

/// A standard epilogue, and what it writes.
struct EpilogueCase {
    StandardEpilogue epilogue;
    DType out = DType::f32;
};

void expect_epilogue(const EpilogueCase& c, std::int64_t k, Isa isa) {
    constexpr std::int64_t m = 53, n = 101;
    ThreadPool pool(2);
    Operand a(DType::f32, Transpose::no, m, k, {2, 2}, 1);
    Operand b(DType::f32, Transpose::no, k, n, {2, 2}, 1);
    Operand bias(c.epilogue.bias_dtype, Transpose::no, 1, n, {1, 1}, 0);
    Operand out(c.out, Transpose::no, m, n, {2, 2}, 3);
    a.fill(Values::whole, 1);
    b.fill(Values::whole, 2);
    bias.fill(Values::whole, 3);
    ContractionProblem problem{.batch = {2, 2},
                               .m = m,
                               .n = n,
                               .k = k,
                               .a = a.layout(),
                               .b = b.layout(),
                               .out = out.layout(),
                               .epilogue = c.epilogue};
    ASSERT_EQ(refusal(problem), "");
    contract_in_new_workspace(problem, {.a = a.data(), .b = b.data(), .out = out.data(), .bias = bias.data()},
                              pool, isa);
    for (std::int64_t entry = 0; entry < 4; ++entry)
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
                double expected = reference_sum(problem, a, b, entry, i, j).sum;
                if (c.epilogue.bias) expected += bias.get(0, 0, j);
                if (c.out == DType::bf16) expected = rounded_to_bf16(expected);
                ASSERT_EQ(out.get(entry, i, j), expected)
                    << name_of(isa) << " k " << k << " entry " << entry << " row " << i << " col " << j;
            }
    EXPECT_EQ(out.unwritten(), out.outside());
}

TEST(Contraction, StandardEpilogues) {
    for (const Isa isa : testable_levels())
        for (const std::int64_t k : {0, 3, 800})  // nothing to sum; one chunk; several
            for (const DType out : {DType::f32, DType::bf16})
                for (const EpilogueCase& c : {EpilogueCase{{.bias = true}, out},
                                              EpilogueCase{{.bias = true, .bias_dtype = DType::bf16}, out}}) {
                    expect_epilogue(c, k, isa);
                    if (HasFatalFailure()) return;
                }
}

/// The sums that a custom epilogue saw, as a matrix over all entries.
struct Seen {
    std::int64_t n;
    std::vector<float> sums;
    std::vector<int> times;
};

void record(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
            std::int64_t cols, const void* args) {
    Seen& seen = *const_cast<Seen*>(static_cast<const Seen*>(args));
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j) {
            const auto at = static_cast<std::size_t>((row0 + i) * seen.n + col0 + j);
            seen.sums[at] = sums[i * ld + j];
            ++seen.times[at];
        }
}

TEST(Contraction, CustomEpilogueSeesEverySumOnce) {
    ThreadPool pool(3);
    for (const Isa isa : testable_levels())
        for (const std::int64_t k : {10, 1000}) {
            constexpr std::int64_t m = 70, n = 59;
            Operand a(DType::f32, Transpose::no, m, k, {3, 1}, 0);
            Operand b(DType::f32, Transpose::no, k, n, {3, 1}, 0);
            a.fill(Values::whole, 1);
            b.fill(Values::whole, 2);
            const ContractionProblem problem{.batch = {3, 1},
                                             .m = m,
                                             .n = n,
                                             .k = k,
                                             .a = a.layout(),
                                             .b = b.layout(),
                                             .custom_epilogue = true};
            Seen seen{n, std::vector<float>(3 * m * n, NAN), std::vector<int>(3 * m * n)};
            contract_in_new_workspace(
                problem, {.a = a.data(), .b = b.data(), .epilogue = record, .epilogue_args = &seen}, pool,
                isa);
            for (std::int64_t i = 0; i < 3 * m * n; ++i) {
                ASSERT_EQ(seen.times[static_cast<std::size_t>(i)], 1);
                ASSERT_EQ(seen.sums[static_cast<std::size_t>(i)],
                          reference_sum(problem, a, b, i / (m * n), i / n % m, i % n).sum);
            }
        }
}

void fail_late(float*, std::int64_t, std::int64_t row0, std::int64_t, std::int64_t, std::int64_t,
               const void*) {
    if (row0 > 100) throw InternalError("the epilogue failed");
}

TEST(Contraction, AnEpilogueThatThrowsEndsTheCall) {
    ThreadPool pool(3);
    std::vector<float> a(512 * 800, 1.0F), b(800 * 300, 1.0F);
    EXPECT_THROW(
        contract_in_new_workspace({.m = 512,
                                   .n = 300,
                                   .k = 800,
                                   .a = {.leading = 800},
                                   .b = {.leading = 300},
                                   .custom_epilogue = true},
                                  {.a = a.data(), .b = b.data(), .epilogue = fail_late}, pool, best_isa()),
        InternalError);
}

TEST(Contraction, InfinitiesAndNaNsArrive) {
    ThreadPool pool(1);
    for (const Isa isa : testable_levels()) {
        std::vector<float> a(9 * 20, 1.0F), b(20 * 50, 1.0F), out(9 * 50);
        a[3 * 20 + 7] = INFINITY;
        b[7 * 50 + 49] = -1;
        b[8 * 50 + 1] = NAN;
        contract_in_new_workspace(
            {.m = 9, .n = 50, .k = 20, .a = {.leading = 20}, .b = {.leading = 50}, .out = {.leading = 50}},
            {.a = a.data(), .b = b.data(), .out = out.data()}, pool, isa);
        EXPECT_EQ(out[3 * 50], INFINITY);
        EXPECT_EQ(out[3 * 50 + 49], -INFINITY);
        EXPECT_TRUE(std::isnan(out[1]));
        EXPECT_EQ(out[0], 20);
    }
}

class ContractionErrors : public ::testing::Test {
  protected:
    std::string message(const ContractionProblem& problem, const ContractionArguments& arguments) {
        return testing::error_of<InternalError>([&] {
            contract(prepare_contraction(problem, Isa::generic), arguments, workspace_.as<std::byte>(),
                     pool_);
        });
    }
    void expect_message(const ContractionProblem& problem, const ContractionArguments& arguments,
                        const std::string& text) {
        const std::string got = message(problem, arguments);
        EXPECT_NE(got.find(text), std::string::npos) << got;
    }

    ContractionProblem problem_{
        .m = 4, .n = 4, .k = 4, .a = {.leading = 4}, .b = {.leading = 4}, .out = {.leading = 4}};
    std::vector<float> a_ = std::vector<float>(32), b_ = std::vector<float>(32),
                       out_ = std::vector<float>(32);
    ContractionArguments arguments_{.a = a_.data(), .b = b_.data(), .out = out_.data()};
    Buffer workspace_{1 << 16};
    ThreadPool pool_{1};
};

TEST_F(ContractionErrors, NameWhatIsWrongWithTheOperands) {
    EXPECT_EQ(message(problem_, arguments_), "no error");
    ContractionArguments wrong = arguments_;
    wrong.a = nullptr;
    expect_message(problem_, wrong, "a is missing");
    wrong = arguments_;
    wrong.b = reinterpret_cast<const std::byte*>(b_.data()) + 2;
    expect_message(problem_, wrong, "is not aligned to its elements of type f32");
    wrong = arguments_;
    wrong.out = a_.data() + 15;
    expect_message(problem_, wrong, "the output overlaps a");
    wrong.out = b_.data();
    expect_message(problem_, wrong, "the output overlaps b");
    wrong.out = workspace_.data() + 64;
    expect_message(problem_, wrong, "the output overlaps the workspace");
}

TEST_F(ContractionErrors, NameWhatIsWrongWithTheWorkspace) {
    const PreparedContraction prepared = prepare_contraction(problem_, Isa::generic);
    const auto run = [&](std::span<std::byte> workspace) {
        try {
            contract(prepared, arguments_, workspace, pool_);
        } catch (const InternalError& error) {
            return std::string(error.what());
        }
        return std::string("no error");
    };
    const std::size_t needed = prepared.workspace_bytes(1);
    const auto memory = workspace_.as<std::byte>();
    EXPECT_NE(run(memory.subspan(0, needed - 1))
                  .find("the workspace has " + std::to_string(needed - 1) + " bytes; " +
                        std::to_string(needed) + " are needed"),
              std::string::npos);
    EXPECT_NE(run(memory.subspan(4)).find("the workspace is not aligned to 64 bytes"), std::string::npos);
}

TEST_F(ContractionErrors, RefusalsGiveTheReason) {
    const auto reason = [&](auto change) {
        ContractionProblem problem = problem_;
        change(problem);
        return refusal(problem);
    };
    EXPECT_EQ(reason([](auto&) {}), "");
    EXPECT_EQ(reason([](auto& p) { p.a.dtype = DType::i32; }), "a is i32; expected f32, bf16 or f16");
    EXPECT_EQ(reason([](auto& p) { p.b.leading = 3; }),
              "b has rows of 4 elements but a leading dimension of 3");
    EXPECT_EQ(reason([](auto& p) { p.out.transpose = Transpose::yes; }),
              "the output cannot be stored transposed");
    EXPECT_EQ(reason([](auto& p) { p.out.dtype = DType::bf16, p.store = Store::accumulate; }),
              "accumulation needs an f32 output");
    EXPECT_EQ(reason([](auto& p) { p.epilogue.bias = true, p.store = Store::accumulate; }),
              "accumulation takes no epilogue");
    EXPECT_EQ(reason([](auto& p) {
                  p.batch = {2, 1};
              }),
              "the entries of the batch share one output (batch stride 0)");
    EXPECT_EQ(reason([](auto& p) { p.k = -1; }), "sizes must not be negative: batch 1 x 1, m 4, n 4, k -1");
    EXPECT_EQ(reason([](auto& p) { p.custom_epilogue = true, p.epilogue.bias = true; }),
              "a custom epilogue replaces the standard one; both were asked for");
}

}  // namespace
}  // namespace mantissa::on_cpu
