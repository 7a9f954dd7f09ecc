// A b whose panels are kept for many calls: the same bits as from where it lies, and the errors about their
// memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/convert.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/device/levels.h"
#include "tests/support/error_of.h"
#include "tests/support/random_draws.h"

namespace mantissa::on_cpu {
namespace {

struct KeptCase {
    std::array<std::int64_t, 2> batch;
    std::int64_t m, n, k;
    DType type = DType::f32;
    Transpose ta = Transpose::no, tb = Transpose::no;
    Multiply multiply = Multiply::as_stored;
    bool epilogue = false;  ///< one of the caller's
};

std::string described(const KeptCase& c) {
    return std::string(name_of(c.type)) + (c.multiply == Multiply::tf32 ? " as tf32" : "") + ", batch " +
           std::to_string(c.batch[0] * c.batch[1]) + ", m " + std::to_string(c.m) + " n " +
           std::to_string(c.n) + " k " + std::to_string(c.k) + (c.ta == Transpose::yes ? " a^T" : "") +
           (c.tb == Transpose::yes ? " b^T" : "") + (c.epilogue ? ", epilogue" : "");
}

/// Every 16 bits of a BF16 number are a number of FP16, too, and its NaN a NaN.
DType stored_as(DType type) { return type == DType::f16 ? DType::bf16 : type; }

MatrixLayout layout_of(const Operand& operand, DType type) {
    MatrixLayout layout = operand.layout();
    layout.dtype = type;
    return layout;
}

/// The bits of two products of one b by two a, one after the other; kept, b is NaN when the products are
/// made.
template <class How>
std::vector<std::uint32_t> products(const KeptCase& c, bool keeps, int threads, const How& how) {
    ThreadPool pool(threads, threads);
    Operand b(stored_as(c.type), c.tb, c.k, c.n, c.batch, 3);
    b.fill(Values::normal, 1);
    std::vector<float> out(static_cast<std::size_t>(2 * c.batch[0] * c.batch[1] * c.m * c.n), NAN);
    std::optional<PreparedContraction> prepared;
    Buffer panels(0);
    for (std::uint32_t call = 0; call < 2; ++call) {
        Operand a(stored_as(c.type), c.ta, c.m, c.k, c.batch, 5);
        a.fill(Values::normal, 2 + call);
        if (!prepared) {
            prepared = prepare_contraction(
                {.batch = c.batch,
                 .m = c.m,
                 .n = c.n,
                 .k = c.k,
                 .a = layout_of(a, c.type),
                 .b = layout_of(b, c.type),
                 .out = {.leading = c.n, .batch_stride = {c.batch[1] * c.m * c.n, c.m * c.n}},
                 .multiply = c.multiply,
                 .custom_epilogue = c.epilogue,
                 .keeps_b = keeps,
                 .threads = threads},
                how);
            panels = Buffer(prepared->kept_bytes());
            std::ranges::fill(panels.as<std::byte>(), std::byte{0xff});  // NaN in every type
            pack_b(*prepared, b.data(), panels.as<std::byte>(), pool);
            if (prepared->kept_bytes() > 0)
                for (std::int64_t entry = 0; entry < c.batch[0] * c.batch[1]; ++entry)
                    for (std::int64_t i = 0; i < c.k; ++i)
                        for (std::int64_t j = 0; j < c.n; ++j) b.set(entry, i, j, NAN);
        }
        EXPECT_EQ(prepared->kept_bytes() > 0,
                  keeps && std::holds_alternative<PreparedMatrices>(prepared->way));
        const void* const given = prepared->kept_bytes() > 0 ? panels.data() : b.data();
        const CopiedSums to{out.data() + call * (out.size() / 2), c.n};
        ContractionArguments arguments{.a = a.data(), .b = given};
        if (c.epilogue) {
            arguments.epilogue = copy_sums;
            arguments.epilogue_args = &to;
        } else {
            arguments.out = to.out;
        }
        contract_in_new_workspace(*prepared, arguments, pool);
    }
    std::vector<std::uint32_t> bits(out.size());
    std::ranges::transform(out, bits.begin(),
                           [](float value) { return std::bit_cast<std::uint32_t>(value); });
    return bits;
}

template <class How>
void expect_same_bits(const KeptCase& c, const How& how) {
    SCOPED_TRACE(described(c));
    const std::vector<std::uint32_t> plain = products(c, false, 2, how);
    for (const int threads : testing::some_of<int>({1, 2, 12}, 2))
        ASSERT_EQ(plain, products(c, true, threads, how));
}

/// Each way of an operand, and both together where sweeps are whole: only b is kept.
bool takes_some(Transpose ta, Transpose tb) { return ta == tb || testing::sweeps_are_whole(); }

/// Several chunks of the depth and of the columns, sizes that fill no panel, entries one after another and
/// one a thread, and few rows, which keep nothing.
template <class Visit>
void for_kept_cases(DType type, Visit visit, bool (*takes)(Transpose, Transpose) = takes_some) {
    for (const KeptCase& sizes :
         {KeptCase{{1, 1}, 16, 512, 512}, KeptCase{{1, 1}, 13, 3100, 40}, KeptCase{{1, 1}, 70, 97, 1201},
          KeptCase{{2, 2}, 9, 50, 33}, KeptCase{{1, 9}, 17, 49, 900}, KeptCase{{1, 1}, 4, 70, 90},
          KeptCase{{1, 1}, 9, 5, 0}, KeptCase{{1, 1}, 0, 5, 7}})
        for (const Transpose ta : {Transpose::no, Transpose::yes})
            for (const Transpose tb : {Transpose::no, Transpose::yes}) {
                if (!takes(ta, tb)) continue;
                KeptCase c = sizes;
                c.type = type;
                c.ta = ta;
                c.tb = tb;
                visit(c);
            }
}

TEST(ContractionKept, SameBitsAsFromWhereItLies) {
    for (const Isa isa : testable_levels())
        for (const DType type : {DType::f32, DType::bf16})
            for_kept_cases(type, [&](const KeptCase& c) { expect_same_bits(c, isa); });
}

TEST(ContractionKept, SameBitsToAnEpilogue) {
    for (const Isa isa : testable_levels())
        for_kept_cases(DType::f32, [&](KeptCase c) {
            if (c.k == 0) return;
            c.epilogue = true;
            expect_same_bits(c, isa);
        });
}

TEST(ContractionKept, SameBitsOfConvertedOperands) {
    for (const Isa isa : testable_levels())
        for_kept_cases(DType::f32, [&](KeptCase c) {
            c.multiply = Multiply::tf32;
            expect_same_bits(c, isa);
        });
    for (const Isa isa : testable_levels())
        for_kept_cases(DType::f16, [&](const KeptCase& c) { expect_same_bits(c, isa); });
}

/// Few enough products for emulated units.
bool is_quick(const KeptCase& c) { return c.tb == Transpose::no || c.m * c.n * c.k < 1'000'000; }
bool takes_a_as_it_lies(Transpose ta, Transpose) { return ta == Transpose::no; }

TEST(ContractionKept, SameBitsOnTheTwins) {
    const auto in_parts = [](Products products) {
        return converted(contraction_kernels_tile_twin(), products, convert_kernels_generic());
    };
    const auto for_quick_cases = [](DType type, const std::function<void(KeptCase)>& visit) {
        for_kept_cases(
            type,
            [&](const KeptCase& c) {
                if (is_quick(c)) visit(c);
            },
            takes_a_as_it_lies);
    };
    for_quick_cases(DType::bf16, [](const KeptCase& c) {
        expect_same_bits(c, contraction_kernels_tile_twin());
        expect_same_bits(c, contraction_kernels_dot_twin());
    });
    for_quick_cases(DType::f16, [&](const KeptCase& c) { expect_same_bits(c, in_parts(Products::fp16x4)); });
    for_quick_cases(DType::f32, [&](KeptCase c) {
        c.multiply = Multiply::tf32;
        expect_same_bits(c, in_parts(Products::bf16x3));
    });
}

TEST(ContractionKept, ItsPanelsTakeNoWorkspace) {
    ContractionProblem problem{.m = 16, .n = 512, .k = 512, .a = {.leading = 512}, .b = {.leading = 512}};
    problem.out = {.leading = 512};
    const std::size_t whole = prepare_contraction(problem, best_isa()).workspace_bytes(2);
    problem.keeps_b = true;
    const PreparedContraction prepared = prepare_contraction(problem, best_isa());
    EXPECT_GE(prepared.kept_bytes(), std::size_t{512 * 512 * 4});
    EXPECT_LE(prepared.workspace_bytes(2) + std::size_t{512 * 512 * 4}, whole);
}

TEST(ContractionKept, WhatIsNotThereIsNamed) {
    ThreadPool pool(1);
    Buffer a(4096), b(4096), out(4096), panels(4096);
    const PreparedContraction prepared = prepare_contraction({.m = 9,
                                                              .n = 4,
                                                              .k = 4,
                                                              .a = {.leading = 4},
                                                              .b = {.leading = 4},
                                                              .out = {.leading = 4},
                                                              .keeps_b = true},
                                                             Isa::generic);
    ASSERT_EQ(prepared.kept_bytes(), std::size_t{8 * 8 * 4});  // filled up to panels of eight, eight deep
    const auto memory = panels.as<std::byte>();
    const auto pack = [&](const void* from, std::span<std::byte> to) {
        return testing::error_of<InternalError>([&] { pack_b(prepared, from, to, pool); });
    };
    EXPECT_EQ(pack(b.data(), memory.subspan(0, 256)), "no error");
    EXPECT_NE(pack(b.data(), memory.subspan(0, 255)).find("the panels of b have 255 bytes; 256 are needed"),
              std::string::npos);
    EXPECT_NE(pack(b.data(), memory.subspan(4)).find("the panels of b are not aligned to 64 bytes"),
              std::string::npos);
    EXPECT_NE(pack(nullptr, memory).find("b is missing"), std::string::npos);
    EXPECT_NE(pack(memory.data() + 32, memory).find("the panels of b overlap b"), std::string::npos);
    const auto multiply = [&](const void* given) {
        return testing::error_of<InternalError>([&] {
            contract_in_new_workspace(prepared, {.a = a.data(), .b = given, .out = out.data()}, pool);
        });
    };
    EXPECT_EQ(multiply(panels.data()), "no error");
    EXPECT_NE(multiply(nullptr).find("the panels of b are missing"), std::string::npos);
    EXPECT_NE(multiply(memory.data() + 4).find("the panels of b are not aligned"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::on_cpu
