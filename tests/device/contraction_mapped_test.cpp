// Operands that are mapped as they are packed: the product is that of what their elements become.
#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/base/error.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/device/levels.h"

namespace mantissa::on_cpu {
namespace {

/// A whole number that depends on the place.
float moved(float value, std::int64_t row, std::int64_t column) {
    return value + static_cast<float>(row % 3) - static_cast<float>(column % 2);
}

void move(const MappedPart& part, const void* args) {
    const bool bf16 = *static_cast<const DType*>(args) == DType::bf16;
    for (std::int64_t i = 0; i < part.rows; ++i)
        for (std::int64_t j = 0; j < part.columns; ++j) {
            const std::int64_t from = i * part.from_leading + j, to = i * part.to_leading + j;
            const float value = bf16 ? bf16_value(static_cast<const std::uint16_t*>(part.from)[from])
                                     : static_cast<const float*>(part.from)[from];
            const float other = moved(value, part.row + i, part.column + j);
            if (bf16)
                static_cast<std::uint16_t*>(part.to)[to] = bf16_bits(other);
            else
                static_cast<float*>(part.to)[to] = other;
        }
}

struct MappedCase {
    std::int64_t m, n, k;
    DType type;
    Transpose transpose;
    Multiply multiply = Multiply::as_stored;
};

/// The product of a mapped a, and that of an a which was changed before.
template <class How>
void expect_exact_mapped(const MappedCase& c, ThreadPool& pool, const How& how) {
    Operand a(c.type, c.transpose, c.m, c.k, {1, 1}, 3), b(c.type, Transpose::no, c.k, c.n, {1, 1}, 5);
    a.fill(Values::whole, 1);
    b.fill(Values::whole, 2);
    ContractionProblem problem{.m = c.m, .n = c.n, .k = c.k, .a = a.layout(), .b = b.layout()};
    problem.out = {.leading = c.n};
    problem.multiply = c.multiply;
    problem.a.mapped = true;
    std::vector<float> out(static_cast<std::size_t>(c.m * c.n), NAN);
    contract_in_new_workspace(
        problem, {.a = a.data(), .b = b.data(), .out = out.data(), .map_a = move, .map_a_args = &c.type},
        pool, how);
    for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t k = 0; k < c.k; ++k) {
            const bool swapped = c.transpose == Transpose::yes;
            a.set(0, i, k, moved(static_cast<float>(a.get(0, i, k)), swapped ? k : i, swapped ? i : k));
        }
    for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t j = 0; j < c.n; ++j)
            ASSERT_EQ(out[static_cast<std::size_t>(i * c.n + j)], reference_sum(problem, a, b, 0, i, j).sum)
                << name_of(c.type) << " m " << c.m << " n " << c.n << " k " << c.k << " at " << i << ", "
                << j;
}

template <class Visit>
void for_mapped_cases(DType type, Visit visit) {
    for (const Transpose transpose : {Transpose::no, Transpose::yes})
        for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                      {17, 49, 33},
                                      {70, 9, 1201},
                                      {33, 7, 64},
                                      {300, 3, 65},
                                      {5, 3100, 40}})
            visit(MappedCase{m, n, k, type, transpose});
}

TEST(ContractionMapped, IsTheProductOfWhatElementsBecome) {
    ThreadPool pool(2);
    for (const Isa isa : testable_levels()) {
        for (const DType type : {DType::f32, DType::bf16})
            for_mapped_cases(type, [&](const MappedCase& c) { expect_exact_mapped(c, pool, isa); });
        for_mapped_cases(DType::f32, [&](MappedCase c) {
            c.multiply = Multiply::tf32;
            expect_exact_mapped(c, pool, isa);
        });
    }
    for_mapped_cases(DType::bf16, [&](const MappedCase& c) {
        expect_exact_mapped(c, pool, contraction_kernels_tile_twin());
        expect_exact_mapped(c, pool, contraction_kernels_dot_twin());
    });
}

TEST(ContractionMapped, IsRefusedWhereItCannotBe) {
    const ContractionProblem plain{
        .m = 4, .n = 4, .k = 4, .a = {.leading = 4}, .b = {.leading = 4}, .out = {.leading = 4}};
    ContractionProblem problem = plain;
    problem.b.mapped = true;
    EXPECT_EQ(refusal(problem), "only a can be mapped");
    problem = plain;
    problem.a.mapped = true;
    problem.batch = {1, 2};
    problem.out.batch_stride = {0, 16};
    EXPECT_EQ(refusal(problem), "a is mapped, which only a single matrix can be; the batch is 1 x 2");
    problem = plain;
    problem.a.mapped = true;
    ThreadPool pool(1);
    std::vector<float> matrix(16), out(16);
    try {
        contract_in_new_workspace(problem, {.a = matrix.data(), .b = matrix.data(), .out = out.data()}, pool,
                                  Isa::generic);
        FAIL() << "no function was missed";
    } catch (const InternalError& error) {
        EXPECT_NE(std::string(error.what()).find("the function that maps a is missing"), std::string::npos);
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
