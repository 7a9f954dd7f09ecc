// A contraction whose b is codes and scales: at every level, in either direction and on any number of threads
// the bits of the same contraction of what these stand for, and FP64's sums. A wrong scale of one block
// shows.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/formats.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/device/levels.h"
#include "tests/support/error_of.h"

namespace mantissa::on_cpu {
namespace {

/// x [m, inputs] by W [outputs, inputs], transposed as forward, or x [m, outputs] by W as for the gradient.
struct CodedProduct {
    Layout codes = Layout::nf4;
    std::int64_t m = 1, outputs = 1, inputs = 1;
    bool forward = true;
    DType type = DType::f32;
    Multiply multiply = Multiply::as_stored;
    bool leaves_zeros_out = false;
    int threads = 1;

    CodedMatrix matrix() const { return {codes, outputs, inputs}; }
    std::int64_t n() const { return forward ? outputs : inputs; }
    std::int64_t k() const { return forward ? inputs : outputs; }
};

/// The operands of one, W as codes and as what they stand for.
struct CodedOperands {
    explicit CodedOperands(const CodedProduct& p)
        : product(p),
          a(p.type, Transpose::no, p.m, p.k(), {1, 1}, 3),
          w(p.type, p.forward ? Transpose::yes : Transpose::no, p.k(), p.n(), {1, 1}, 0),
          codes(static_cast<std::size_t>(coded_bytes(p.matrix()))) {
        a.fill(Values::normal, 1);
        if (p.leaves_zeros_out)
            for (std::int64_t i = p.m / 2; i < p.m; ++i)
                for (std::int64_t k = 0; k < p.k(); ++k) a.set(0, i, k, 0);
        const std::span<const float> weights = normals(2, static_cast<std::size_t>(p.outputs * p.inputs));
        write_codes(p.matrix(), weights, codes.data());
        read();
    }

    /// Says what the codes stand for.
    void read() {
        std::vector<float> row(static_cast<std::size_t>(product.inputs));
        for (std::int64_t i = 0; i < product.outputs; ++i) {
            read_codes(product.matrix(), codes.data(), i * product.inputs, row);
            for (std::int64_t j = 0; j < product.inputs; ++j)
                w.set(0, product.forward ? j : i, product.forward ? i : j, row[static_cast<std::size_t>(j)]);
        }
    }

    ContractionProblem problem(bool coded) const {
        ContractionProblem made{.m = product.m,
                                .n = product.n(),
                                .k = product.k(),
                                .a = a.layout(),
                                .b = w.layout(),
                                .out = {.leading = product.n()},
                                .multiply = product.multiply,
                                .leaves_zeros_out = product.leaves_zeros_out,
                                .threads = product.threads};
        if (coded) made.b.codes = product.codes;
        return made;
    }

    std::vector<float> run(bool coded, Isa isa, int threads) {
        std::vector<float> out(static_cast<std::size_t>(product.m * product.n()), -1);
        ThreadPool pool(threads);
        const void* const b = coded ? static_cast<const void*>(codes.data()) : w.data();
        contract_in_new_workspace(problem(coded), {.a = a.data(), .b = b, .out = out.data()}, pool, isa);
        return out;
    }

    CodedProduct product;
    Operand a, w;
    std::vector<std::byte> codes;
};

std::vector<CodedProduct> coded_products() {
    std::vector<CodedProduct> all;
    for (const Layout codes : {Layout::nf4, Layout::int4, Layout::int8})
        for (const DType type : {DType::f32, DType::bf16})
            for (const bool forward : {true, false}) {
                all.push_back({codes, 20, 70, 130, forward, type});    // blocks of NF4 go on from row to row
                all.push_back({codes, 33, 256, 1728, forward, type});  // chunks of the depth
                all.push_back({.codes = codes,
                               .m = 40,
                               .outputs = 1700,
                               .inputs = 192,
                               .forward = forward,
                               .type = type,
                               .leaves_zeros_out = true,
                               .threads = 16});
            }
    all.push_back({Layout::nf4, 20, 70, 131, true, DType::bf16});  // rows begin with either half of a byte
    all.push_back({Layout::nf4, 20, 70, 131, false, DType::f32});
    for (const bool forward : {true, false})
        all.push_back({Layout::nf4, 20, 70, 130, forward, DType::f32, Multiply::tf32});
    return all;
}

TEST(ContractionCodes, BitsOfWhatTheyStandForAtEveryLevel) {
    for (const CodedProduct& product : coded_products())
        at_every_level([&](Isa isa) {
            CodedOperands operands(product);
            const std::vector<float> expected = operands.run(false, isa, 1);
            for (const int threads : {1, 3})
                ASSERT_EQ(operands.run(true, isa, threads), expected)
                    << name_of(product.codes) << " " << product.m << " " << product.n() << " " << product.k();
        });
}

/// Few rows go through panels, too, where a plain b is read as it lies: FP64 judges.
TEST(ContractionCodes, SumsBesideFp64) {
    for (const std::int64_t rows : {1, 5, 12})
        for (const DType type : {DType::f32, DType::bf16})
            at_every_level([&](Isa isa) {
                CodedOperands operands({Layout::nf4, rows, 96, 320, true, type});
                const auto furthest = [&] {
                    const std::vector<float> sums = operands.run(true, isa, 2);
                    double most = 0;  // in roundings of the sum's terms
                    for (std::int64_t i = 0; i < rows; ++i)
                        for (std::int64_t j = 0; j < 96; ++j) {
                            const ReferenceSum exact =
                                reference_sum(operands.problem(false), operands.a, operands.w, 0, i, j);
                            const double error =
                                std::abs(sums[static_cast<std::size_t>(i * 96 + j)] - exact.sum);
                            most = std::max(most, error / exact.magnitude);
                        }
                    return most;
                };
                // Products are exact; each of 320 additions rounds once, to 2^-24.
                constexpr double bound = 320 * 0x1p-24;
                EXPECT_LE(furthest(), bound);
                // The scale of the 100th block is that of another code.
                operands.codes[96 * 320 / 2 + 4 * 3 + 100] ^= std::byte{0x40};
                EXPECT_GT(furthest(), 100 * bound);
            });
}

TEST(ContractionCodes, KeptPanelsAreOfWidenedCodes) {
    CodedOperands operands({Layout::nf4, 20, 70, 130, true, DType::bf16});
    const Isa isa = best_isa();
    ContractionProblem problem = operands.problem(true);
    problem.keeps_b = true;
    const PreparedContraction prepared = prepare_contraction(problem, isa);
    ThreadPool pool(2);
    Buffer panels(prepared.kept_bytes()), workspace(prepared.workspace_bytes(2));
    pack_b(prepared, operands.codes.data(), panels.as<std::byte>(), pool);
    std::vector<float> out(20 * 70);
    contract(prepared, {.a = operands.a.data(), .b = panels.as<std::byte>().data(), .out = out.data()},
             workspace.as<std::byte>(), pool);
    EXPECT_EQ(out, operands.run(false, isa, 1));
}

TEST(ContractionCodes, RefusesWhatCannotBe) {
    const CodedOperands operands({Layout::nf4, 20, 70, 130, true, DType::f32});
    ContractionProblem problem = operands.problem(true);
    EXPECT_EQ(refusal(problem), "");
    problem.b.leading += 1;
    EXPECT_EQ(refusal(problem), "b is nf4, which only one matrix can be whose rows follow each other");
    problem = operands.problem(true);
    problem.a.codes = Layout::int8;
    EXPECT_EQ(refusal(problem), "only b can be codes and scales");
    problem = operands.problem(true);
    problem.a.dtype = problem.b.dtype = DType::f16;
    EXPECT_EQ(refusal(problem), "codes are widened to f32 or bf16, not to f16");
    problem = operands.problem(true);
    problem.b.scales_apart = true;
    EXPECT_EQ(refusal(problem), "b is nf4, whose scales lie behind its codes");
}

TEST(ContractionCodes, ScalesMayLieApart) {
    CodedOperands operands({Layout::int4, 20, 70, 130, true, DType::f32});
    ContractionProblem problem = operands.problem(true);
    problem.b.scales_apart = true;
    const PreparedContraction prepared = prepare_contraction(problem, best_isa());
    const auto* const scales =
        static_cast<const BF16*>(source_of(operands.product.matrix(), operands.codes.data()).scales);
    const std::vector<std::byte> codes(operands.codes.begin(), operands.codes.begin() + 70 * 130 / 2);
    const std::vector<BF16> apart(scales, scales + 70 * 5);
    std::vector<float> out(20 * 70);
    ContractionArguments arguments{
        .a = operands.a.data(), .b = codes.data(), .scales_of_b = apart.data(), .out = out.data()};
    ThreadPool pool(2);
    Buffer workspace(prepared.workspace_bytes(2));
    contract(prepared, arguments, workspace.as<std::byte>(), pool);
    EXPECT_EQ(out, operands.run(true, best_isa(), 1));
    arguments.scales_of_b = nullptr;
    EXPECT_TRUE(testing::error_of<InternalError>([&] {
                    contract(prepared, arguments, workspace.as<std::byte>(), pool);
                }).starts_with("internal error: contraction: the scales of b are missing"));
}

}  // namespace
}  // namespace mantissa::on_cpu
