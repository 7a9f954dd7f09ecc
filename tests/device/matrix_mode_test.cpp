// The matrix modes against one product after another, exactly, on awkward sizes and every level, with dense
// and with 2:4 sparse first operands.
#include "mantissa/device/cpu/modes/matrix_mode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/modes/mode_kernels.h"
#include "mantissa/device/cpu/modes/pack_mode.h"
#include "mantissa/device/cpu/sparse.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::on_cpu {
namespace {

constexpr MatrixMode all_modes[] = {
    MatrixMode::f64,           MatrixMode::f16, MatrixMode::s8, MatrixMode::s4, MatrixMode::b1_exclusive_or,
    MatrixMode::b1_conjunction};

std::int64_t sum_bytes(MatrixMode mode) {
    return mode == MatrixMode::f64 ? 8 : mode == MatrixMode::f16 ? 2 : 4;
}

using Bytes = std::vector<std::byte>;

/// Random bits are numbers of every integer format; of FP64, whole numbers of up to 10 bits; of FP16 numbers
/// below 4 of every exponent, subnormal ones too, whose sums round and stay finite.
Bytes operand(MatrixMode mode, std::int64_t rows, std::int64_t k, std::uint64_t seed) {
    const RandomStream random{.seed = seed};
    Bytes bytes(static_cast<std::size_t>(rows * k * operand_bits(mode) / 8));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random.bits(i));
    for (std::int64_t i = 0; i < rows * k && mode == MatrixMode::f16; ++i) {
        std::uint16_t half = 0;
        std::memcpy(&half, bytes.data() + 2 * i, 2);
        half = static_cast<std::uint16_t>((half & 0x8000) | (half & 0x7fff) % 0x4400);
        std::memcpy(bytes.data() + 2 * i, &half, 2);
    }
    if (mode != MatrixMode::f64) return bytes;
    for (std::int64_t i = 0; i < rows * k; ++i) {
        const double whole = static_cast<double>(random.bits(static_cast<std::uint64_t>(i)) % 2047) - 1023;
        std::memcpy(bytes.data() + 8 * i, &whole, 8);
    }
    return bytes;
}

/// Sums to add to, in the accumulator's format.
Bytes addend(MatrixMode mode, std::int64_t count) {
    Bytes bytes(static_cast<std::size_t>(count * sum_bytes(mode)));
    for (std::int64_t i = 0; i < count; ++i) {
        const auto whole = static_cast<std::int32_t>(i * 37 % 1000 - 500);
        const auto number = static_cast<double>(whole);
        const FP16 half = to_fp16(static_cast<float>(whole) / 7);
        if (mode == MatrixMode::f64)
            std::memcpy(bytes.data() + 8 * i, &number, 8);
        else if (mode == MatrixMode::f16)
            std::memcpy(bytes.data() + 2 * i, &half, 2);
        else
            std::memcpy(bytes.data() + 4 * i, &whole, 4);
    }
    return bytes;
}

std::vector<Isa> levels() {
    std::vector<Isa> levels;
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512, Isa::amx})
        if (isa <= best_isa()) levels.push_back(isa);
    return levels;
}

/// What multiply() writes with a workspace and an output full of ones before.
Bytes product(const ModeProblem& problem, ModeArguments arguments, Isa isa, int threads = 1) {
    ThreadPool pool(threads);
    Buffer workspace(workspace_bytes(problem, isa, threads));
    if (workspace.size() > 0) std::memset(workspace.data(), 0xff, workspace.size());
    Bytes d(static_cast<std::size_t>(problem.m * problem.n * sum_bytes(problem.mode)), std::byte{0xff});
    arguments.d = d.data();
    multiply(problem, arguments, workspace.as<std::byte>(), pool, isa);
    return d;
}

Bytes expected_product(const ModeProblem& problem, ModeArguments arguments) {
    Bytes d(static_cast<std::size_t>(problem.m * problem.n * sum_bytes(problem.mode)));
    arguments.d = d.data();
    multiply_reference(problem, arguments);
    return d;
}

std::string words(const ModeProblem& problem, Isa isa) {
    return std::string(name_of(problem.mode)) + " " + std::to_string(problem.m) + " x " +
           std::to_string(problem.n) + " x " + std::to_string(problem.k) + " " + std::string(name_of(isa));
}

void expect_exact(const ModeProblem& problem) {
    const Bytes a = operand(problem.mode, problem.m, problem.k, 1),
                b = operand(problem.mode, problem.n, problem.k, 2);
    const Bytes c = addend(problem.mode, problem.m * problem.n);
    for (const bool adds : {false, true}) {
        const ModeArguments arguments{.a = a.data(), .b = b.data(), .c = adds ? c.data() : nullptr};
        const Bytes expected = expected_product(problem, arguments);
        for (const Isa isa : levels())
            EXPECT_TRUE(product(problem, arguments, isa) == expected) << words(problem, isa);
    }
}

TEST(MatrixModes, AreExactOnAwkwardSizes) {
    for (const MatrixMode mode : all_modes)
        for (const std::int64_t m : {1, 7, 8, 9, 17})
            for (const std::int64_t n : {1, 23, 24, 48, 49, 97})
                for (const std::int64_t k : {8, 24, 40, 136})
                    expect_exact({.mode = mode, .m = m, .n = n, .k = k});
}

TEST(MatrixModes, AreExactAtEveryDepthThatFillsBytes) {
    for (std::int64_t k = 0; k < 20; ++k) {
        expect_exact({.mode = MatrixMode::f64, .m = 5, .n = 7, .k = k});
        expect_exact({.mode = MatrixMode::f16, .m = 5, .n = 7, .k = k});
        expect_exact({.mode = MatrixMode::s8, .m = 5, .n = 7, .k = k});
        expect_exact({.mode = MatrixMode::s4, .m = 5, .n = 7, .k = 2 * k});
        expect_exact({.mode = MatrixMode::b1_exclusive_or, .m = 5, .n = 7, .k = 8 * k});
    }
}

TEST(MatrixModes, AreExactOverSeveralBlocks) {
    for (const MatrixMode mode : all_modes) expect_exact({.mode = mode, .m = 203, .n = 801, .k = 64});
}

TEST(MatrixModes, SumsOfTheGreatestProductsAreExact) {
    // -128 times -128 and times 127, as deep as sums may be; a shifted row or a saturating sum would show.
    const std::int64_t k = 131071;
    for (const int other : {-128, 127}) {
        const Bytes a(static_cast<std::size_t>(k), std::byte{0x80});
        const Bytes b(static_cast<std::size_t>(k), static_cast<std::byte>(other & 0xff));
        for (const Isa isa : levels()) {
            const Bytes d = product({.mode = MatrixMode::s8, .m = 1, .n = 1, .k = k},
                                    {.a = a.data(), .b = b.data()}, isa);
            std::int32_t got = 0;
            std::memcpy(&got, d.data(), 4);
            EXPECT_EQ(got, static_cast<std::int32_t>(k) * -128 * other) << name_of(isa);
        }
    }
}

TEST(MatrixModes, HaveTheSameBitsForAnyNumberOfThreads) {
    for (const MatrixMode mode : all_modes) {
        const ModeProblem problem{.mode = mode, .m = 300, .n = 900, .k = 72};
        Bytes a = operand(mode, problem.m, problem.k, 1);
        const Bytes b = operand(mode, problem.n, problem.k, 2);
        const ModeArguments arguments{.a = a.data(), .b = b.data()};
        if (mode == MatrixMode::f64)  // so that sums round
            for (std::size_t i = 0; i + 8 <= a.size(); i += 8) {
                const double number = 1 / (1.0 + static_cast<double>(i));
                std::memcpy(a.data() + i, &number, 8);
            }
        for (const Isa isa : levels())
            EXPECT_TRUE(product(problem, arguments, isa, 1) == product(problem, arguments, isa, 3))
                << words(problem, isa);
    }
}

TEST(MatrixModes, OfFp64RoundWithinTheBound) {
    const ModeProblem problem{.mode = MatrixMode::f64, .m = 9, .n = 31, .k = 1000};
    const auto k = static_cast<std::size_t>(problem.k), n = static_cast<std::size_t>(problem.n);
    std::vector<double> a(static_cast<std::size_t>(problem.m) * k), b(n * k);
    const RandomStream random{.seed = 9};
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(random.normal(i)) / 3;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(random.normal(i + a.size())) / 7;
    for (const Isa isa : levels()) {
        const Bytes d = product(problem, {.a = a.data(), .b = b.data()}, isa);
        for (std::size_t at = 0; at < d.size() / 8; ++at) {
            long double exact = 0, magnitude = 0;
            for (std::size_t i = 0; i < k; ++i) {
                const long double term =
                    static_cast<long double>(a[at / n * k + i]) * static_cast<long double>(b[at % n * k + i]);
                exact += term;
                magnitude += std::fabs(term);
            }
            double got = 0;
            std::memcpy(&got, d.data() + 8 * at, 8);
            // A product and a sum round, each by half a unit of 2^-52 of a partial sum at most.
            const auto allowed = 2.0L * 1000 * 0x1p-53L * magnitude;
            ASSERT_LE(std::fabs(static_cast<long double>(got) - exact), allowed) << name_of(isa) << " " << at;
        }
    }
}

float f16_product(const std::vector<float>& a, const std::vector<float>& b, float c, Isa isa) {
    std::vector<FP16> first, second;
    for (const float x : a) first.push_back(to_fp16(x));
    for (const float x : b) second.push_back(to_fp16(x));
    const FP16 sum = to_fp16(c);
    const Bytes d =
        product({.mode = MatrixMode::f16, .m = 1, .n = 1, .k = static_cast<std::int64_t>(a.size())},
                {.a = first.data(), .b = second.data(), .c = &sum}, isa);
    FP16 got{};
    std::memcpy(&got, d.data(), 2);
    return to_f32(got);
}

TEST(MatrixModes, OfFp16RoundEachSumOnce) {
    for (const Isa isa : levels()) {
        // 1 + 2^-10 + 2^-11 (1 - 2^-20) lies below a tie of FP16; rounded to FP32 first it would be the tie,
        // whose even neighbour is above.
        EXPECT_EQ(f16_product({1 + 0x1p-10f, 0x1p-11f * (1 + 0x1p-10f)}, {1, 1 - 0x1p-10f}, 0, isa),
                  1 + 0x1p-10f)
            << name_of(isa);
        EXPECT_EQ(f16_product({-1 - 0x1p-10f, 0x1p-11f * (1 + 0x1p-10f)}, {1, -1 + 0x1p-10f}, 0, isa),
                  -1 - 0x1p-10f)
            << name_of(isa);
        // 2^-11 (1 - 2^-10)^2 from 1 leaves more than the tie between 1 - 2^-11 and 1.
        EXPECT_EQ(f16_product({1, 0x1p-12f * (1 - 0x1p-10f)}, {1, -1 + 0x1p-10f}, 0, isa), 1.0f)
            << name_of(isa);
        // A sum that stays at 2048: each 1 alone is half a unit.
        EXPECT_EQ(f16_product({2048, 1, 1, 1}, {1, 1, 1, 1}, 0, isa), 2048.0f) << name_of(isa);
        EXPECT_EQ(f16_product({1, 1, 1, 1}, {1, 1, 1, 1}, 2048, isa), 2052.0f) << name_of(isa);
        // Subnormals, though threads flush those of FP32.
        EXPECT_EQ(f16_product({0x1p-24f, 0x1p-20f}, {1, 0x1p-4f}, 0, isa), 0x1p-23f) << name_of(isa);
    }
}

TEST(MatrixModes, OfFp16OverflowToInfinity) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const Isa isa : levels()) {
        EXPECT_EQ(f16_product({65504, 16}, {1, 1}, 0, isa), infinity) << name_of(isa);
        EXPECT_EQ(f16_product({65504, 15.99f}, {1, 1}, 0, isa), 65504.0f) << name_of(isa);
        EXPECT_EQ(f16_product({-60000, 1}, {60000, 1}, 0, isa), -infinity) << name_of(isa);
        EXPECT_EQ(f16_product({infinity, -65504}, {1, 65504}, 0, isa), infinity) << name_of(isa);
        EXPECT_TRUE(std::isnan(f16_product({infinity, infinity}, {1, -1}, 0, isa))) << name_of(isa);
        EXPECT_TRUE(std::isnan(f16_product({infinity, 1}, {0, 1}, 0, isa))) << name_of(isa);
        EXPECT_TRUE(std::isnan(f16_product({1}, {1}, std::numeric_limits<float>::quiet_NaN(), isa)));
    }
}

TEST(MatrixModes, OfFp16RoundWithinTheBound) {
    const ModeProblem problem{.mode = MatrixMode::f16, .m = 11, .n = 37, .k = 129};
    const Bytes a = operand(problem.mode, problem.m, problem.k, 3),
                b = operand(problem.mode, problem.n, problem.k, 4);
    for (const Isa isa : levels()) {
        const Bytes d = product(problem, {.a = a.data(), .b = b.data()}, isa);
        for (std::int64_t at = 0; at < problem.m * problem.n; ++at) {
            double exact = 0, magnitude = 0;
            for (std::int64_t i = 0; i < problem.k; ++i) {
                const double term = load_as_f64(a.data(), DType::f16, at / problem.n * problem.k + i) *
                                    load_as_f64(b.data(), DType::f16, at % problem.n * problem.k + i);
                exact += term;
                magnitude += std::fabs(term);
            }
            // Each sum rounds by half a unit, 2^-11 of itself or 2^-25 where it is subnormal, and none is
            // more than a sixteenth greater than the sum of all magnitudes.
            const double allowed = 129 * (0x1p-11 * 17 / 16 * magnitude + 0x1p-25);
            ASSERT_LE(std::fabs(load_as_f64(d.data(), DType::f16, at) - exact), allowed)
                << name_of(isa) << " " << at;
        }
    }
}

TEST(MatrixModes, AddToTheirOwnOutput) {
    const ModeProblem problem{.mode = MatrixMode::s8, .m = 19, .n = 53, .k = 20};
    const Bytes a = operand(problem.mode, problem.m, problem.k, 1),
                b = operand(problem.mode, problem.n, problem.k, 2);
    const Bytes c = addend(problem.mode, problem.m * problem.n);
    const Bytes expected = expected_product(problem, {.a = a.data(), .b = b.data(), .c = c.data()});
    ThreadPool pool(2);
    for (const Isa isa : levels()) {
        Bytes d = c;
        Buffer workspace(workspace_bytes(problem, isa, 2));
        multiply(problem, {.a = a.data(), .b = b.data(), .c = d.data(), .d = d.data()},
                 workspace.as<std::byte>(), pool, isa);
        EXPECT_TRUE(d == expected) << name_of(isa);
    }
}

TEST(MatrixModes, RunOnTheUnitsOfTheLevel) {
    EXPECT_EQ(mode_kernel(MatrixMode::s8, Isa::generic).row_shift, 0);
    EXPECT_EQ(mode_kernel(MatrixMode::s8, Isa::avx2).width, 16);
    if (best_isa() < Isa::avx512) GTEST_SKIP() << "no AVX-512";
    EXPECT_EQ(mode_kernel(MatrixMode::s8, Isa::avx512).row_shift, has_avx512_vnni() ? 128 : 0);
    EXPECT_EQ(mode_kernel(MatrixMode::f16, Isa::avx512).word_bytes, has_avx512_fp16() ? 2 : 4);
    EXPECT_EQ(mode_kernel(MatrixMode::b1_conjunction, Isa::avx512).width, has_avx512_vpopcntdq() ? 48 : 16);
}

TEST(MatrixModes, RefuseWithAReason) {
    EXPECT_EQ(refusal({.mode = MatrixMode::s4, .m = 1, .n = 1, .k = 7}),
              "s4*s4+s32 holds 2 numbers in a byte: K must be a multiple of 2, got 7");
    EXPECT_EQ(refusal({.mode = MatrixMode::b1_conjunction, .m = 1, .n = 1, .k = 12}),
              "b1*b1+s32 (and) holds 8 numbers in a byte: K must be a multiple of 8, got 12");
    EXPECT_EQ(refusal({.mode = MatrixMode::s8, .m = 1, .n = 1, .k = 131072}),
              "s8*s8+s32: sums of more than 131071 products could leave 32 bits, K is 131072");
    EXPECT_EQ(refusal({.mode = MatrixMode::f64, .m = 1, .n = -1, .k = 1}),
              "f64*f64+f64: M, N and K must be 0 or more, got 1, -1 and 1");
    EXPECT_EQ(refusal({.mode = MatrixMode::f64, .first = FirstOperand::two_of_four}),
              "f64*f64+f64 has no form with a 2:4 sparse first operand; f16, s8 and s4 have");
    EXPECT_EQ(refusal({.mode = MatrixMode::s8, .first = FirstOperand::two_of_four, .m = 1, .n = 1, .k = 6}),
              "s8*s8+s32, 2:4 sparse: K must be a multiple of 4, got 6");
    EXPECT_EQ(refusal({.mode = MatrixMode::s8, .m = 3, .n = 3, .k = 7}), "");
    ThreadPool pool(1);
    EXPECT_THROW(multiply({.mode = MatrixMode::s4, .m = 1, .n = 1, .k = 7}, {}, {}, pool, Isa::generic),
                 UserError);
}

TEST(MatrixModes, ProductsOfSparseOperandsAreThoseOfTheDenseOnes) {
    for (const MatrixMode mode : {MatrixMode::f16, MatrixMode::s8, MatrixMode::s4})
        for (const std::int64_t k : {4, 12, 20, 128}) {
            const SparseFormat format = mode == MatrixMode::f16  ? SparseFormat::f16
                                        : mode == MatrixMode::s8 ? SparseFormat::s8
                                                                 : SparseFormat::s4;
            ModeProblem problem{.mode = mode, .m = 19, .n = 51, .k = k};
            Bytes a = operand(mode, problem.m, k, 1);
            const Bytes b = operand(mode, problem.n, k, 2);
            prune(format, a.data(), problem.m, k);
            const SparseSizes sizes = sparse_sizes(format, problem.m, k);
            Bytes values(sizes.values);
            std::vector<std::uint8_t> positions(sizes.positions);
            compress(format, a.data(), problem.m, k, values.data(), positions.data());
            const Bytes expected = expected_product(problem, {.a = a.data(), .b = b.data()});

            problem.first = FirstOperand::two_of_four;
            const ModeArguments compressed{.a = values.data(), .positions = positions.data(), .b = b.data()};
            EXPECT_TRUE(expected_product(problem, compressed) == expected) << k;
            for (const Isa isa : levels())
                EXPECT_TRUE(product(problem, compressed, isa) == expected) << words(problem, isa);
        }
}

}  // namespace
}  // namespace mantissa::on_cpu
