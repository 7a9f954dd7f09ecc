// Operands that come packed: the same bits as from where they lie, one packed operand for several problems,
// and the errors about their memory.
#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/pack_avx512.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"

namespace mantissa::on_cpu {
namespace {

/// Packed memory of exactly the size asked for, every byte of it set before.
template <class How>
Buffer packed_copy(const ContractionProblem& problem, Side side, const void* source, ThreadPool& pool,
                   const How& how) {
    Buffer packed(packed_bytes(problem, side, how));
    std::ranges::fill(packed.as<std::byte>(), std::byte{0xff});  // NaN in every type
    pack(problem, side, source, packed.as<std::byte>(), pool, how);
    return packed;
}

struct Sizes {
    std::int64_t m, n, k;
};

struct Case {
    Sizes sizes;
    DType type;
    Transpose ta, tb;
    Multiply multiply = Multiply::as_stored;
};

template <class How>
std::vector<float> product(const Case& c, bool pack_a, bool pack_b, ThreadPool& pool, const How& how) {
    Operand a(c.type, c.ta, c.sizes.m, c.sizes.k, {1, 1}, 3);
    Operand b(c.type, c.tb, c.sizes.k, c.sizes.n, {1, 1}, 5);
    a.fill(Values::normal, 1);
    b.fill(Values::normal, 2);
    ContractionProblem problem{.m = c.sizes.m,
                               .n = c.sizes.n,
                               .k = c.sizes.k,
                               .a = a.layout(),
                               .b = b.layout(),
                               .out = {.leading = c.sizes.n},
                               .multiply = c.multiply};
    std::vector<float> out(static_cast<std::size_t>(c.sizes.m * c.sizes.n), NAN);
    ContractionArguments arguments{.a = a.data(), .b = b.data(), .out = out.data()};
    Buffer packed_a(0), packed_b(0);
    if (pack_a) {
        packed_a = packed_copy(problem, Side::a, a.data(), pool, how);
        problem.a = {.dtype = c.type, .packed = true};
        arguments.a = packed_a.data(), arguments.packed_a_bytes = packed_a.size();
    }
    if (pack_b) {
        packed_b = packed_copy(problem, Side::b, b.data(), pool, how);
        problem.b = {.dtype = c.type, .packed = true};
        arguments.b = packed_b.data(), arguments.packed_b_bytes = packed_b.size();
    }
    contract_in_new_workspace(problem, arguments, pool, how);
    return out;
}

template <class How>
void expect_same_bits(const Case& c, ThreadPool& pool, const How& how) {
    const std::vector<float> plain = product(c, false, false, pool, how);
    for (const auto& [a, b] : {std::pair{true, false}, {false, true}, {true, true}})
        ASSERT_EQ(std::memcmp(plain.data(), product(c, a, b, pool, how).data(), plain.size() * 4), 0)
            << (a ? "a" : "") << (b ? "b" : "") << " packed, " << name_of(c.type) << " m " << c.sizes.m
            << " n " << c.sizes.n << " k " << c.sizes.k;
}

/// The last two operands are so large, in FP32 and BF16, that their panels are written past the caches;
/// panels of an odd depth do not all begin with a line of cache.
template <class Visit>
void for_cases(DType type, Visit visit) {
    for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{17, 49, 33}, Sizes{12, 64, 769}, Sizes{70, 97, 1201},
                               Sizes{13, 3100, 40}, Sizes{9, 5, 0}})
        for (const Transpose ta : {Transpose::no, Transpose::yes})
            for (const Transpose tb : {Transpose::no, Transpose::yes}) visit(Case{sizes, type, ta, tb});
}

TEST(ContractionPacked, SameBitsAsFromWhereTheyLie) {
    ThreadPool pool(2);
    for (const Isa isa : testable_levels())
        for (const DType type : {DType::f32, DType::bf16})
            for_cases(type, [&](const Case& c) { expect_same_bits(c, pool, isa); });
}

TEST(ContractionPacked, SameBitsOnTheTwins) {
    ThreadPool pool(2);
    for_cases(DType::bf16, [&](const Case& c) {
        expect_same_bits(c, pool, contraction_kernels_tile_twin());
        expect_same_bits(c, pool, contraction_kernels_dot_twin());
    });
}

TEST(ContractionPacked, SameBitsPastTheCaches) {
    // So large that panels are written past the caches; those of an odd depth begin inside of lines of cache.
    // The third is so large that a contraction writes the panels of its own b likewise.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "under a sanitizer: minutes of the loops that smaller sizes run, too";
#endif
    ThreadPool pool(2);
    for (const Isa isa : testable_levels())
        for (const DType type : {DType::f32, DType::bf16})
            for (const Transpose transposed : {Transpose::no, Transpose::yes}) {
                expect_same_bits({{11, 1401, 769}, type, Transpose::no, transposed}, pool, isa);
                expect_same_bits({{1401, 3, 769}, type, transposed, Transpose::no}, pool, isa);
                expect_same_bits({{11, 3072, 1536}, type, Transpose::no, transposed}, pool, isa);
            }
}

TEST(ContractionPacked, SameBitsOfConvertedOperandsInSeveralItems) {
    // 4 MB of FP32: rows across the depth are cut where no chunk of it ends.
    ThreadPool pool(2);
    for (const Isa isa : testable_levels())
        for (const Transpose transposed : {Transpose::no, Transpose::yes}) {
            expect_same_bits({{11, 1401, 769}, DType::f32, Transpose::no, transposed, Multiply::tf32}, pool,
                             isa);
            expect_same_bits({{1401, 3, 769}, DType::f32, transposed, Transpose::no, Multiply::tf32}, pool,
                             isa);
        }
}

/// Packed by `vectors`, an operand is byte by byte what `plain` packs.
void expect_same_panels(const ContractionKernels& plain, const ContractionKernels& vectors) {
    ThreadPool pool(2);
    for (const Sizes& sizes :
         {Sizes{1, 1, 1}, Sizes{33, 65, 37}, Sizes{1401, 1401, 769}, Sizes{64, 96, 1408}})
        for (const Side side : {Side::a, Side::b})
            for (const Transpose transposed : {Transpose::no, Transpose::yes}) {
                const bool is_a = side == Side::a;
                const std::int64_t rows = is_a ? sizes.m : sizes.k, columns = is_a ? sizes.k : sizes.n;
                Operand operand(DType::bf16, transposed, rows, columns, {1, 1}, 3);
                operand.fill(Values::normal, 1);
                ContractionProblem problem{.m = sizes.m, .n = sizes.n, .k = sizes.k};
                (is_a ? problem.a : problem.b) = operand.layout();
                const Buffer expected = packed_copy(problem, side, operand.data(), pool, plain);
                const Buffer packed = packed_copy(problem, side, operand.data(), pool, vectors);
                ASSERT_EQ(std::memcmp(packed.data(), expected.data(), expected.size()), 0)
                    << (is_a ? "a" : "b") << (transposed == Transpose::yes ? " transposed" : "") << ", rows "
                    << rows << ", columns " << columns;
            }
}

TEST(ContractionPacked, VectorsPackTheBytesOfTheTwins) {
    if (best_isa() < Isa::avx512) GTEST_SKIP() << "no AVX-512";
    ContractionKernels tiles = contraction_kernels_tile_twin();
    tiles.pack_a = tile_panels_a_avx512();
    tiles.pack_b = tile_panels_b_avx512();
    expect_same_panels(contraction_kernels_tile_twin(), tiles);
    ContractionKernels pairs = contraction_kernels_dot_twin();
    pairs.pack_a = paired_panels_avx512<8>();
    pairs.pack_b = paired_panels_avx512<48>();
    expect_same_panels(contraction_kernels_dot_twin(), pairs);
}

TEST(ContractionPacked, OneWeightServesEveryNumberOfRows) {
    ThreadPool pool(2);
    constexpr std::int64_t n = 70, k = 900, most = 40;
    Operand a(DType::f32, Transpose::no, most, k, {1, 1}, 0);
    Operand b(DType::f32, Transpose::yes, k, n, {1, 1}, 0);
    a.fill(Values::whole, 1);
    b.fill(Values::whole, 2);
    ContractionProblem problem{.m = most, .n = n, .k = k, .a = a.layout(), .b = b.layout()};
    problem.out = {.leading = n};
    const Buffer packed = packed_copy(problem, Side::b, b.data(), pool, best_isa());
    problem.b.packed = true;
    for (const std::int64_t m : {std::int64_t{1}, std::int64_t{7}, most}) {
        problem.m = m;
        std::vector<float> out(most * n, NAN);
        contract_in_new_workspace(
            problem, {.a = a.data(), .b = packed.data(), .out = out.data(), .packed_b_bytes = packed.size()},
            pool, best_isa());
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j)
                ASSERT_EQ(out[static_cast<std::size_t>(i * n + j)],
                          reference_sum(problem, a, b, 0, i, j).sum);
    }
}

class ContractionPackedErrors : public ::testing::Test {
  protected:
    template <class Call>
    void expect_message(const std::string& text, Call call) {
        try {
            call();
            FAIL() << "no error for: " << text;
        } catch (const InternalError& error) {
            EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
        }
    }
    void run(const ContractionProblem& problem, const void* b, std::size_t bytes) {
        contract_in_new_workspace(
            problem, {.a = a_.data(), .b = b, .out = out_.data(), .packed_b_bytes = bytes}, pool_, isa_);
    }

    Isa isa_ = Isa::generic;
    ThreadPool pool_{1};
    std::vector<float> a_ = std::vector<float>(32), out_ = std::vector<float>(32);
    Buffer source_{4096}, packed_{4096};
    ContractionProblem problem_{
        .m = 4, .n = 4, .k = 4, .a = {.leading = 4}, .b = {.leading = 4}, .out = {.leading = 4}};
};

TEST_F(ContractionPackedErrors, OfPacking) {
    const auto memory = packed_.as<std::byte>();
    const std::size_t needed = packed_bytes(problem_, Side::b, isa_);
    EXPECT_EQ(needed, 8 * 4 * 4);  // four columns filled up to a panel of eight
    const auto pack_b = [&](const ContractionProblem& problem, const void* source,
                            std::span<std::byte> packed) {
        pack(problem, Side::b, source, packed, pool_, isa_);
    };
    pack_b(problem_, source_.data(), memory.subspan(0, needed));
    expect_message("the packed b has 127 bytes; 128 are needed",
                   [&] { pack_b(problem_, source_.data(), memory.subspan(0, needed - 1)); });
    expect_message("is not aligned to 64 bytes",
                   [&] { pack_b(problem_, source_.data(), memory.subspan(4)); });
    expect_message("b is missing", [&] { pack_b(problem_, nullptr, memory); });
    expect_message("b overlaps its packed copy", [&] { pack_b(problem_, memory.data() + 32, memory); });
    ContractionProblem batched = problem_;
    batched.batch = {1, 2};
    batched.out.batch_stride = {0, 16};
    expect_message("only a single matrix can be packed; the batch is 1 x 2",
                   [&] { pack_b(batched, source_.data(), memory); });
    ContractionProblem twice = problem_;
    twice.b.packed = true;
    expect_message("its layout says that it is", [&] { pack_b(twice, source_.data(), memory); });
}

TEST_F(ContractionPackedErrors, OfContracting) {
    const std::size_t needed = packed_bytes(problem_, Side::b, isa_);
    problem_.b.packed = true;
    run(problem_, packed_.data(), needed);
    expect_message("the packed b has 127 bytes; 128 are needed",
                   [&] { run(problem_, packed_.data(), needed - 1); });
    expect_message("is not aligned to 64 bytes", [&] { run(problem_, packed_.data() + 4, needed); });
    expect_message("b is missing", [&] { run(problem_, nullptr, needed); });
    ContractionProblem batched = problem_;
    batched.batch = {3, 1};
    EXPECT_EQ(refusal(batched), "b is packed, which only a single matrix can be; the batch is 3 x 1");
    ContractionProblem output = problem_;
    output.out.packed = true;
    EXPECT_EQ(refusal(output), "only a and b can be packed, not the output or the residual");
    problem_.b.dtype = DType::i32;
    EXPECT_EQ(refusal(problem_), "b is i32; expected f32, bf16 or f16");
}

}  // namespace
}  // namespace mantissa::on_cpu
