// Contractions whose first operand is 2:4 sparse and compressed: exact on whole numbers at awkward sizes, the
// bits of the dense operand's else, at every level and on the twins of the BF16 units; and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/convert.h"
#include "mantissa/device/cpu/sparse.h"
#include "mantissa/numerics/formats.h"
#include "tests/device/contraction_reference.h"

namespace mantissa::on_cpu {
namespace {

using Bytes = std::vector<std::byte>;

struct Mode {
    const char* name;
    DType type;
    Multiply multiply = Multiply::as_stored;
};

constexpr Mode all_modes[] = {
    {"f32", DType::f32}, {"tf32", DType::f32, Multiply::tf32}, {"f16", DType::f16}, {"bf16", DType::bf16}};

Bytes numbers(DType type, std::int64_t count, Values values, std::uint64_t seed) {
    const RandomStream random{.seed = seed};
    Bytes bytes(static_cast<std::size_t>(count) * size_of(type));
    for (std::int64_t i = 0; i < count; ++i) {
        const auto place = static_cast<std::uint64_t>(i);
        const double whole = static_cast<double>(random.bits(place) % 9) - 4;
        store_from_f64(bytes.data(), type, i,
                       values == Values::whole ? whole : static_cast<double>(random.normal(place)));
    }
    return bytes;
}

/// A pruned matrix, dense and compressed, in memory that ends where it ends.
struct SparseMatrix {
    Bytes dense, values;
    std::vector<std::uint8_t> positions;

    SparseMatrix(DType type, std::int64_t rows, std::int64_t k, Values kind) {
        const SparseFormat format = sparse_format_of(type);
        dense = numbers(type, rows * k, kind, 1);
        prune(format, dense.data(), rows, k);
        const SparseSizes sizes = sparse_sizes(format, rows, k);
        values.resize(sizes.values);
        positions.resize(sizes.positions);
        compress(format, dense.data(), rows, k, values.data(), positions.data());
    }
};

struct Sizes {
    std::int64_t m, n, k;
};

ContractionProblem problem_of(const Mode& mode, const Sizes& sizes, bool sparse) {
    return {.m = sizes.m,
            .n = sizes.n,
            .k = sizes.k,
            .a = {.dtype = mode.type, .leading = sizes.k, .two_of_four = sparse},
            .b = {.dtype = mode.type, .transpose = Transpose::yes, .leading = sizes.k},
            .out = {.leading = sizes.n},
            .multiply = mode.multiply};
}

template <class How>
std::vector<float> product(const Mode& mode, const Sizes& sizes, const SparseMatrix& a, const Bytes& b,
                           bool sparse, const How& how) {
    ThreadPool pool(2);
    std::vector<float> out(static_cast<std::size_t>(sizes.m * sizes.n), NAN);
    contract_in_new_workspace(problem_of(mode, sizes, sparse),
                              {.a = sparse ? a.values.data() : a.dense.data(),
                               .b = b.data(),
                               .out = out.data(),
                               .a_positions = sparse ? a.positions.data() : nullptr},
                              pool, how);
    return out;
}

template <class How>
void expect_exact(const Mode& mode, const Sizes& sizes, const How& how, const std::string& by) {
    const SparseMatrix a(mode.type, sizes.m, sizes.k, Values::whole);
    const Bytes b = numbers(mode.type, sizes.n * sizes.k, Values::whole, 2);
    const std::vector<float> got = product(mode, sizes, a, b, true, how);
    for (std::int64_t i = 0; i < sizes.m; ++i)
        for (std::int64_t j = 0; j < sizes.n; ++j) {
            double sum = 0;
            for (std::int64_t k = 0; k < sizes.k; ++k)
                sum += load_as_f64(a.dense.data(), mode.type, i * sizes.k + k) *
                       load_as_f64(b.data(), mode.type, j * sizes.k + k);
            ASSERT_EQ(static_cast<double>(got[static_cast<std::size_t>(i * sizes.n + j)]), sum)
                << by << " " << mode.name << " " << sizes.m << " x " << sizes.n << " x " << sizes.k << " at "
                << i << ", " << j;
        }
}

template <class How>
void expect_bits_of_dense(const Mode& mode, const Sizes& sizes, const How& how, const std::string& by) {
    const SparseMatrix a(mode.type, sizes.m, sizes.k, Values::normal);
    const Bytes b = numbers(mode.type, sizes.n * sizes.k, Values::normal, 2);
    const std::vector<float> sparse = product(mode, sizes, a, b, true, how);
    const std::vector<float> dense = product(mode, sizes, a, b, false, how);
    const auto same = [](float x, float y) {
        return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    };
    EXPECT_TRUE(std::ranges::equal(sparse, dense, same))
        << by << " " << mode.name << " " << sizes.m << " x " << sizes.n << " x " << sizes.k;
}

/// Calls `expect(mode, how, name)` for every level, and for the twins of the units that this CPU may lack.
template <class Expect>
void for_each_way(const Expect& expect) {
    for (const Mode& mode : all_modes)
        for (const Isa isa : testable_levels()) expect(mode, isa, std::string(name_of(isa)));
    const ContractionKernels tiles = contraction_kernels_tile_twin(), dots = contraction_kernels_dot_twin();
    const ConvertKernels& convert = convert_kernels_generic();
    expect(all_modes[1], converted(tiles, Products::bf16x3, convert), "tile twin");
    expect(all_modes[2], converted(tiles, Products::fp16x4, convert), "tile twin");
    expect(all_modes[3], tiles, "tile twin");
    expect(all_modes[3], dots, "dot twin");
}

TEST(SparseContraction, IsExactOnWholeNumbersAtAwkwardSizes) {
    // Depths below, at and beyond a byte of positions, a slice of 64 and a chunk of 384, or 128 of TF32
    // parts.
    for_each_way([](const Mode& mode, const auto& how, const std::string& name) {
        for (const std::int64_t k : {4, 8, 12, 60, 68, 132, 388, 772, 1036})
            for (const Sizes& sizes : {Sizes{1, 1, k}, {1, 53, k}, {9, 49, k}, {67, 17, k}})
                expect_exact(mode, sizes, how, name);
    });
}

TEST(SparseContraction, HasTheBitsOfTheDenseOne) {
    for_each_way([](const Mode& mode, const auto& how, const std::string& name) {
        for (const Sizes& sizes : {Sizes{1, 97, 772}, {13, 31, 388}, {259, 97, 132}, {6, 5, 0}, {0, 3, 8}})
            expect_bits_of_dense(mode, sizes, how, name);
    });
}

TEST(SparseContraction, TakesAPackedSecondOperand) {
    const Sizes sizes{9, 131, 452};
    ThreadPool pool(2);
    for (const Mode& mode : all_modes)
        for (const Isa isa : testable_levels()) {
            const SparseMatrix a(mode.type, sizes.m, sizes.k, Values::normal);
            const Bytes b = numbers(mode.type, sizes.n * sizes.k, Values::normal, 2);
            ContractionProblem problem = problem_of(mode, sizes, true);
            Buffer packed(packed_bytes(problem, Side::b, isa));
            pack(problem, Side::b, b.data(), packed.as<std::byte>(), pool, isa);
            problem.b.packed = true;
            std::vector<float> out(static_cast<std::size_t>(sizes.m * sizes.n), NAN);
            contract_in_new_workspace(problem,
                                      {.a = a.values.data(),
                                       .b = packed.data(),
                                       .out = out.data(),
                                       .a_positions = a.positions.data(),
                                       .packed_b_bytes = packed.size()},
                                      pool, isa);
            EXPECT_EQ(out, product(mode, sizes, a, b, true, isa)) << mode.name << " " << name_of(isa);
        }
}

TEST(SparseContraction, RefusesWithAReason) {
    const auto refused = [](auto change) {
        ContractionProblem problem = problem_of(all_modes[0], {2, 3, 8}, true);
        change(problem);
        return refusal(problem, best_isa());
    };
    EXPECT_EQ(refused([](ContractionProblem&) {}), "");
    EXPECT_EQ(refused([](ContractionProblem& p) { p.k = 6; }),
              "a is 2:4 sparse: K must be a multiple of 4, got 6");
    EXPECT_EQ(refused([](ContractionProblem& p) { p.a.transpose = Transpose::yes; }),
              "a 2:4 sparse a is neither packed, gathered nor stored transposed");
    EXPECT_EQ(refused([](ContractionProblem& p) { p.a.packed = true; }),
              "a 2:4 sparse a is neither packed, gathered nor stored transposed");
    EXPECT_EQ(refused([](ContractionProblem& p) {
                  p.batch = {1, 2};
              }),
              "a is 2:4 sparse, which only a single matrix can be; the batch is 1 x 2");
    EXPECT_EQ(refused([](ContractionProblem& p) { p.a.dtype = DType::f64; }),
              "a is f64; expected f32, bf16 or f16");
    EXPECT_EQ(refused([](ContractionProblem& p) { p.b.two_of_four = true; }),
              "b cannot be 2:4 sparse, only a can");
    EXPECT_EQ(refused([](ContractionProblem& p) { p.out.two_of_four = true; }),
              "the output cannot be 2:4 sparse, only a can");
}

TEST(SparseContraction, NeedsItsPositions) {
    const ContractionProblem problem = problem_of(all_modes[0], {2, 3, 8}, true);
    std::vector<float> a(8), b(24), out(6);
    std::vector<std::uint8_t> positions(2);
    ThreadPool pool(1);
    const auto error = [&](const std::uint8_t* at, float* to) -> std::string {
        try {
            contract_in_new_workspace(problem, {.a = a.data(), .b = b.data(), .out = to, .a_positions = at},
                                      pool, best_isa());
        } catch (const InternalError& failure) {
            return failure.what();
        }
        return "done";
    };
    EXPECT_EQ(error(positions.data(), out.data()), "done");
    EXPECT_NE(error(nullptr, out.data()).find("the positions of a are missing"), std::string::npos);
    EXPECT_NE(error(reinterpret_cast<std::uint8_t*>(out.data()), out.data())
                  .find("the output overlaps the positions of a"),
              std::string::npos);
    EXPECT_NE(error(positions.data(), a.data()).find("the output overlaps a"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::on_cpu
