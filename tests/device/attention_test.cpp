// Attention and its gradient on awkward sizes, against FP64 from the definition, at every level.
#include "mantissa/device/cpu/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/attention/places.h"
#include "mantissa/numerics/formats.h"
#include "tests/device/attention_oracle.h"
#include "tests/device/rows_harness.h"

namespace mantissa::on_cpu {
namespace {

struct AttentionCase {
    std::int64_t heads, queries, keys, head_size;
    bool causal;
    DType dtype = DType::f32;
    std::int64_t group = 1;

    AttentionSize size() const {
        return {.heads = heads,
                .queries = queries,
                .keys = keys,
                .head_size = head_size,
                .causal = causal,
                .scale = 1 / std::sqrt(static_cast<float>(head_size)),
                .dtype = dtype,
                .group = group};
    }
    std::string text() const {
        return std::to_string(heads) + " heads in groups of " + std::to_string(group) + " of " +
               std::to_string(head_size) + ", " + std::to_string(queries) + " x " + std::to_string(keys) +
               (causal ? " causal " : " ") + std::string(name_of(dtype));
    }
};

/// One, primes, neighbours of the blocks (32 queries, 128 keys forward; 64 keys, 64 queries backward), heads
/// of no whole vector, more heads than segments and fewer.
const AttentionCase attention_cases[] = {
    {1, 1, 1, 1, true},
    {1, 1, 9, 3, true},
    {2, 5, 1, 4, false},
    {3, 7, 7, 5, true},
    {2, 3, 11, 7, true},
    {1, 31, 31, 16, true},
    {1, 32, 32, 64, true},
    {1, 33, 33, 17, true},
    {2, 63, 64, 15, false},
    {1, 65, 127, 33, true},
    {1, 64, 128, 8, false},
    {1, 67, 129, 80, true},
    {1, 129, 131, 1, true},
    {1, 37, 300, 256, true},
    {1, 257, 257, 24, true},
    {1, 130, 67, 40, false},
    {17, 19, 23, 12, true},
    {5, 200, 200, 32, true},
    {2, 33, 65, 20, true, DType::bf16},
    {1, 70, 140, 64, false, DType::bf16},
    {17, 21, 21, 9, true, DType::f16},
    {3, 37, 37, 10, true, DType::f32, 3},
    {6, 65, 130, 17, true, DType::f32, 2},
    {32, 21, 67, 6, false, DType::f32, 2},
    {8, 70, 70, 12, true, DType::bf16, 4},
};

AttentionOperands operands_of(const AttentionCase& c) {
    const std::int64_t q = c.heads * c.queries * c.head_size, k = c.heads / c.group * c.keys * c.head_size;
    return {normal_values(q, c.dtype, 1, 1), normal_values(k, c.dtype, 1, 2), normal_values(k, c.dtype, 1, 3),
            normal_values(q, c.dtype, 1, 4)};
}

/// Calls `run` at every level, with 1, 2 and 3 threads and both placements; the bytes that it returns must be
/// the same for all of a level.
void for_each_setting(const std::function<std::vector<std::byte>(const Setting&, Isa)>& run) {
    static ThreadPool one(1), two(2), three(3);
    for (int level = 0; level <= static_cast<int>(std::min(best_isa(), Isa::avx512)); ++level) {
        const Isa isa = static_cast<Isa>(level);
        std::vector<std::byte> first;
        for (ThreadPool* pool : {&one, &two, &three})
            for (const Placement placement : {Placement::starts_at_guard, Placement::ends_at_guard}) {
                const Setting setting{row_kernels(isa), *pool, placement, Stores::plain};
                SCOPED_TRACE(setting.text());
                const std::vector<std::byte> bytes = run(setting, isa);
                if (::testing::Test::HasFailure()) return;
                if (first.empty()) first = bytes;
                ASSERT_TRUE(bytes == first) << "other bits than the first run of this level had";
            }
    }
}

struct ForwardMemory {
    Guarded q, k, v, o, lse, workspace;

    ForwardMemory(const Setting& setting, const AttentionKernels& kernels, const AttentionSize& s,
                  const AttentionOperands& x)
        : q(setting, s.dtype, s.heads * s.queries * s.head_size),
          k(setting, s.dtype, s.heads / s.group * s.keys * s.head_size),
          v(setting, s.dtype, k.count()),
          o(setting, s.dtype, q.count()),
          lse(setting, DType::f32, s.heads * s.queries),
          workspace(setting, DType::f32, attention_workspace(kernels, s, setting.pool.threads()) / 4) {
        q.assign(x.q);
        k.assign(x.k);
        v.assign(x.v);
    }
    Attention problem(const AttentionSize& s) const {
        const HeadStrides by_query = dense_strides(s.heads, s.queries, s.head_size);
        const HeadStrides by_key = dense_strides(s.heads / s.group, s.keys, s.head_size);
        return {.size = s,
                .q = {q.in().data, by_query},
                .k = {k.in().data, by_key},
                .v = {v.in().data, by_key},
                .o = {o.out().data, by_query},
                .lse = lse.f32(),
                .workspace = workspace.f32()};
    }
};

struct BackwardMemory {
    Guarded d_o, q, k, v, o, lse, dq, dk, dv, workspace;

    BackwardMemory(const Setting& setting, const AttentionKernels& kernels, const AttentionSize& s,
                   const AttentionOperands& x, const Numbers& of_o, const Numbers& of_lse)
        : d_o(setting, s.dtype, s.heads * s.queries * s.head_size),
          q(setting, s.dtype, d_o.count()),
          k(setting, s.dtype, s.heads / s.group * s.keys * s.head_size),
          v(setting, s.dtype, k.count()),
          o(setting, s.dtype, q.count()),
          lse(setting, DType::f32, s.heads * s.queries),
          dq(setting, s.dtype, q.count()),
          dk(setting, s.dtype, k.count()),
          dv(setting, s.dtype, k.count()),
          workspace(setting, DType::f32, attention_grad_workspace(kernels, s, setting.pool.threads()) / 4) {
        d_o.assign(x.d_o);
        q.assign(x.q);
        k.assign(x.k);
        v.assign(x.v);
        o.assign(of_o);
        lse.assign(of_lse);
    }
    AttentionGrad problem(const AttentionSize& s) const {
        const HeadStrides by_query = dense_strides(s.heads, s.queries, s.head_size);
        const HeadStrides by_key = dense_strides(s.heads / s.group, s.keys, s.head_size);
        return {.size = s,
                .d_o = {d_o.in().data, by_query},
                .q = {q.in().data, by_query},
                .k = {k.in().data, by_key},
                .v = {v.in().data, by_key},
                .o = {o.in().data, by_query},
                .lse = lse.f32(),
                .dq = {dq.out().data, by_query},
                .dk = {dk.out().data, by_key},
                .dv = {dv.out().data, by_key},
                .workspace = workspace.f32()};
    }
};

/// Rounding errors on the way to an element, over the head and over the other positions, add up like the
/// steps of a random walk (Higham and Mary 2019, "A new approach to probabilistic rounding error analysis"):
/// four standard deviations, and a few roundings more.
double roundings(const AttentionSize& s) {
    return 4 * std::sqrt(static_cast<double>(s.head_size + std::max(s.keys, s.queries))) + 8;
}

Numbers rounded(const Numbers& x, DType dtype) {
    Numbers y;
    for (const double value : x) y.push_back(rounded_to(value, dtype));
    return y;
}

TEST(Attention, AgreesWithItsDefinition) {
    for (const AttentionCase& c : attention_cases) {
        SCOPED_TRACE(c.text());
        const AttentionSize s = c.size();
        const AttentionOperands x = operands_of(c);
        const ForwardOracle oracle = attention_oracle(s, x);
        for_each_setting([&](const Setting& setting, Isa isa) {
            const ForwardMemory memory(setting, attention_kernels(isa), s, x);
            attention(attention_kernels(isa), memory.problem(s), setting.pool);
            const double n = roundings(s);
            expect_matches(memory.o, oracle.o.values, Tolerance::bound(1, n, eps32, oracle.o.magnitudes));
            expect_matches(memory.lse, oracle.lse.values,
                           Tolerance::bound(1, n, eps32, oracle.lse.magnitudes));
            return joined({&memory.o, &memory.lse});
        });
        if (HasFailure()) return;
    }
}

TEST(Attention, GradientAgreesWithItsDefinition) {
    for (const AttentionCase& c : attention_cases) {
        SCOPED_TRACE(c.text());
        const AttentionSize s = c.size();
        const AttentionOperands x = operands_of(c);
        const ForwardOracle forward = attention_oracle(s, x);
        const Numbers o = rounded(forward.o.values, c.dtype), lse = rounded(forward.lse.values, DType::f32);
        const BackwardOracle oracle = attention_grad_oracle(s, x, o, lse);
        for_each_setting([&](const Setting& setting, Isa isa) {
            const BackwardMemory memory(setting, attention_kernels(isa), s, x, o, lse);
            attention_grad(attention_kernels(isa), memory.problem(s), setting.pool);
            const double n = roundings(s);
            expect_matches(memory.dq, oracle.dq.values, Tolerance::bound(1, n, eps32, oracle.dq.magnitudes));
            expect_matches(memory.dk, oracle.dk.values, Tolerance::bound(1, n, eps32, oracle.dk.magnitudes));
            expect_matches(memory.dv, oracle.dv.values, Tolerance::bound(1, n, eps32, oracle.dv.magnitudes));
            return joined({&memory.dq, &memory.dk, &memory.dv});
        });
        if (HasFailure()) return;
    }
}

TEST(Attention, QueriesWithoutAGradientGiveNothing) {
    // Blocks of 32 queries whose gradients are zeros are left out, but where weights are no numbers.
    const std::int64_t D = 24;
    for (const AttentionCase& c : {AttentionCase{2, 150, 150, D, true}, AttentionCase{4, 131, 70, D, false},
                                   AttentionCase{4, 130, 131, D, true, DType::bf16, 2}}) {
        SCOPED_TRACE(c.text());
        const AttentionSize s = c.size();
        AttentionOperands x = operands_of(c);
        const auto zero = [&](std::int64_t head, std::int64_t first, std::int64_t last) {
            for (std::int64_t i = first * D; i < last * D; ++i) x.d_o[head * s.queries * D + i] = 0;
        };
        zero(0, 0, 70);
        zero(1, 40, 100);
        zero(1, 128, s.queries);
        const ForwardOracle forward = attention_oracle(s, x);
        const Numbers o = rounded(forward.o.values, c.dtype), lse = rounded(forward.lse.values, DType::f32);
        const BackwardOracle oracle = attention_grad_oracle(s, x, o, lse);
        for_each_setting([&](const Setting& setting, Isa isa) {
            const BackwardMemory memory(setting, attention_kernels(isa), s, x, o, lse);
            attention_grad(attention_kernels(isa), memory.problem(s), setting.pool);
            const double n = roundings(s);
            expect_matches(memory.dq, oracle.dq.values, Tolerance::bound(1, n, eps32, oracle.dq.magnitudes));
            expect_matches(memory.dk, oracle.dk.values, Tolerance::bound(1, n, eps32, oracle.dk.magnitudes));
            expect_matches(memory.dv, oracle.dv.values, Tolerance::bound(1, n, eps32, oracle.dv.magnitudes));
            return joined({&memory.dq, &memory.dk, &memory.dv});
        });
        if (HasFailure()) return;
        Numbers no_number = lse;
        no_number[3] = NAN;
        for_each_setting([&](const Setting& setting, Isa isa) {
            const BackwardMemory memory(setting, attention_kernels(isa), s, x, o, no_number);
            attention_grad(attention_kernels(isa), memory.problem(s), setting.pool);
            EXPECT_TRUE(std::isnan(memory.dv.values()[0]));
            return joined({&memory.dq, &memory.dk, &memory.dv});
        });
    }
}

/// o, dq, dk, dv of a kernel, forward then backward.
PlainAttention run_both(const Setting& setting, const AttentionKernels& kernels, const AttentionSize& s,
                        const AttentionOperands& x) {
    const ForwardMemory forward(setting, kernels, s, x);
    attention(kernels, forward.problem(s), setting.pool);
    const BackwardMemory backward(setting, kernels, s, x, forward.o.values(), forward.lse.values());
    attention_grad(kernels, backward.problem(s), setting.pool);
    return {forward.o.values(), backward.dq.values(), backward.dk.values(), backward.dv.values()};
}

Comparison compare_stored(const Numbers& got, DType dtype, const Numbers& expected,
                          const Tolerance& tolerance) {
    std::vector<std::byte> bytes(got.size() * size_of(dtype));
    for (std::size_t i = 0; i < got.size(); ++i)
        store_from_f64(bytes.data(), dtype, static_cast<std::int64_t>(i), got[i]);
    const auto count = static_cast<std::int64_t>(got.size());
    return compare({dtype, bytes.data(), {count}}, expected, std::array{count}, tolerance);
}

void expect_close(DType dtype, const Numbers& ours, const Numbers& plain, const Numbers& truth,
                  double factor) {
    const Comparison comparison = compare_stored(ours, dtype, truth, Tolerance::low_precision(factor, plain));
    EXPECT_TRUE(comparison) << comparison.message;
    // A greater error does not pass.
    Numbers spoilt = ours;
    double greatest = 0;
    for (std::size_t i = 0; i < truth.size(); ++i)
        greatest = std::max(greatest, std::abs(plain[i] - truth[i]));
    spoilt[7] += 2 * (factor + 1) * greatest;
    EXPECT_FALSE(compare_stored(spoilt, dtype, truth, Tolerance::low_precision(factor, plain)));
}

void expect_twice_the_plain_error(const AttentionCase& c, std::span<const AttentionKernels* const> levels) {
    static ThreadPool pool(2), three(3);
    const AttentionSize s = c.size();
    const AttentionOperands x = operands_of(c);
    const ForwardOracle forward = attention_oracle(s, x);
    const BackwardOracle backward = attention_grad_oracle(s, x, forward.o.values, forward.lse.values);
    const PlainAttention plain = plain_attention(s, x);
    for (const AttentionKernels* kernels : levels) {
        SCOPED_TRACE(c.text() + " at " + kernels->name);
        const RowKernels& rows = row_kernels(Isa::generic);
        const Setting setting{rows, pool, Placement::starts_at_guard, Stores::plain};
        const PlainAttention got = run_both(setting, *kernels, s, x);
        expect_close(c.dtype, got.o, plain.o, forward.o.values, 2);
        expect_close(c.dtype, got.dq, plain.dq, backward.dq.values, 3);
        expect_close(c.dtype, got.dk, plain.dk, backward.dk.values, 3);
        expect_close(c.dtype, got.dv, plain.dv, backward.dv.values, 3);
        const Setting other{rows, three, Placement::ends_at_guard, Stores::plain};
        const PlainAttention again = run_both(other, *kernels, s, x);
        EXPECT_TRUE(again.o == got.o && again.dq == got.dq && again.dk == got.dk && again.dv == got.dv);
    }
}

TEST(Attention, ErrsAtMostTwiceAsMuchAsThePlainVersion) {
    std::vector<const AttentionKernels*> levels;
    for (int level = 0; level <= static_cast<int>(std::min(best_isa(), Isa::avx512)); ++level)
        levels.push_back(&attention_kernels(static_cast<Isa>(level)));
    for (const AttentionCase& c :
         {AttentionCase{2, 200, 200, 64, true}, AttentionCase{1, 150, 333, 80, false},
          AttentionCase{2, 200, 200, 64, true, DType::bf16},
          AttentionCase{1, 150, 333, 80, false, DType::f16}})
        expect_twice_the_plain_error(c, levels);
}

TEST(Attention, PairsOfBf16ErrAtMostTwiceAsMuchAsThePlainVersion) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    const AttentionKernels* const pairs = attention_kernels(Bf16Unit::avx512_bf16);
    for (const auto& [heads, queries, keys, head_size, causal] : {std::tuple{2, 200, 200, 64, true},
                                                                  {1, 150, 333, 80, false},
                                                                  {2, 33, 65, 20, true},
                                                                  {3, 131, 131, 18, true},
                                                                  {17, 63, 63, 30, true},
                                                                  {1, 37, 301, 256, true},
                                                                  {1, 33, 4000, 32, false},
                                                                  {1, 129, 67, 2, false}})
        expect_twice_the_plain_error({heads, queries, keys, head_size, causal, DType::bf16}, {&pairs, 1});
    for (const std::int64_t group : {2, 6})
        expect_twice_the_plain_error({6, 131, 131, 18, true, DType::bf16, group}, {&pairs, 1});
    EXPECT_EQ(refusal(*pairs, AttentionCase{1, 3, 3, 7, true, DType::bf16}.size()),
              "it takes heads of a multiple of 2, got 7");
    EXPECT_EQ(refusal(*pairs, AttentionCase{1, 3, 3, 8, true}.size()), "it is written for bf16, got f32");
}

TEST(Attention, TilesErrAtMostTwiceAsMuchAsThePlainVersion) {
    if (best_isa() < Isa::amx) GTEST_SKIP() << "no AMX";
    const AttentionKernels* const tiles = attention_kernels(Bf16Unit::amx);
    for (const auto& [heads, queries, keys, head_size, causal] : {std::tuple{2, 200, 200, 64, true},
                                                                  {1, 150, 333, 96, false},
                                                                  {2, 33, 65, 32, true},
                                                                  {3, 131, 131, 64, true},
                                                                  {1, 1, 9, 32, true},
                                                                  {17, 63, 63, 32, true},
                                                                  {1, 37, 301, 256, true},
                                                                  {1, 33, 4000, 32, false},
                                                                  {1, 129, 67, 64, false}})
        expect_twice_the_plain_error({heads, queries, keys, head_size, causal, DType::bf16}, {&tiles, 1});
    for (const std::int64_t group : {2, 6})
        expect_twice_the_plain_error({6, 131, 131, 64, true, DType::bf16, group}, {&tiles, 1});
    EXPECT_EQ(refusal(*tiles, AttentionCase{1, 3, 3, 80, true, DType::bf16}.size()),
              "it takes heads of a multiple of 32, got 80");
}

TEST(Attention, ScoresFarBelowZeroDoNotReachOtherKeys) {
    // Lanes without a key hold a score of 0, whose weight by a log-sum-exp of -400 would be infinite.
    const AttentionCase c{1, 3, 5, 4, false};
    AttentionOperands x = operands_of(c);
    for (double& value : x.q) value = 20;
    for (double& value : x.k) value = -10;
    const ForwardOracle forward = attention_oracle(c.size(), x);
    const Numbers lse = rounded(forward.lse.values, DType::f32);
    ASSERT_LT(lse[0], -300);
    const BackwardOracle oracle = attention_grad_oracle(c.size(), x, forward.o.values, lse);
    for_each_setting([&](const Setting& setting, Isa isa) {
        const PlainAttention got = run_both(setting, attention_kernels(isa), c.size(), x);
        for (std::size_t i = 0; i < got.dq.size(); ++i) EXPECT_NEAR(got.dq[i], oracle.dq.values[i], 1e-3);
        for (std::size_t i = 0; i < got.dk.size(); ++i) EXPECT_NEAR(got.dk[i], oracle.dk.values[i], 1e-3);
        for (std::size_t i = 0; i < got.o.size(); ++i) EXPECT_NEAR(got.o[i], forward.o.values[i], 1e-5);
        return std::vector<std::byte>{};
    });
}

TEST(Attention, UnderACausalMaskAQuerySeesItsKeyAndNoLaterOne) {
    // With scores of 0 the log-sum-exp counts the keys; the last query sees the last key.
    constexpr std::int64_t queries = 70, keys = 150;
    const AttentionCase c{1, queries, keys, 4, true};
    AttentionOperands x = operands_of(c);
    for (double& value : x.q) value = 0;
    for_each_setting([&](const Setting& setting, Isa isa) {
        const ForwardMemory memory(setting, attention_kernels(isa), c.size(), x);
        attention(attention_kernels(isa), memory.problem(c.size()), setting.pool);
        const Numbers lse = memory.lse.values();
        for (std::int64_t i = 0; i < queries; ++i)
            EXPECT_EQ(std::round(std::exp(lse[static_cast<std::size_t>(i)])), keys - queries + i + 1) << i;
        return std::vector<std::byte>{};
    });
}

TEST(Attention, NanAndInfinityArriveWhereTheyAreSeen) {
    const AttentionCase c{1, 40, 40, 3, true};
    AttentionOperands x = operands_of(c);
    x.k[20 * 3] = NAN;      // seen by queries 20 ... 39
    x.q[5 * 3] = INFINITY;  // query 5 alone
    for_each_setting([&](const Setting& setting, Isa isa) {
        const ForwardMemory memory(setting, attention_kernels(isa), c.size(), x);
        attention(attention_kernels(isa), memory.problem(c.size()), setting.pool);
        const Numbers o = memory.o.values(), lse = memory.lse.values();
        for (std::size_t i = 0; i < 40; ++i) {
            EXPECT_EQ(std::isnan(o[3 * i]), i >= 20 || i == 5) << i;
            if (i != 5) {
                EXPECT_EQ(std::isnan(lse[i]), i >= 20) << i;
            }
        }
        return std::vector<std::byte>{};
    });
}

TEST(Attention, TheLogSumExpOfTheUnitsForBf16IsThatOfFp32) {
    // Over many blocks of keys, where an error of the factor from one to the next would add up.
    static ThreadPool pool(2);
    const Setting setting{row_kernels(Isa::generic), pool, Placement::starts_at_guard, Stores::plain};
    std::vector<const AttentionKernels*> units;
    if (has_bf16_dot()) units.push_back(attention_kernels(Bf16Unit::avx512_bf16));
    if (best_isa() >= Isa::amx) units.push_back(attention_kernels(Bf16Unit::amx));
    for (const AttentionCase& c : {AttentionCase{1, 33, 4000, 32, false, DType::bf16},
                                   AttentionCase{2, 200, 200, 64, true, DType::bf16}})
        for (const AttentionKernels* kernels : units) {
            SCOPED_TRACE(c.text() + " at " + kernels->name);
            const AttentionSize s = c.size();
            const AttentionOperands x = operands_of(c);
            const ForwardOracle oracle = attention_oracle(s, x);
            const ForwardMemory memory(setting, *kernels, s, x);
            attention(*kernels, memory.problem(s), pool);
            expect_matches(memory.lse, oracle.lse.values,
                           Tolerance::bound(1, roundings(s), eps32, oracle.lse.magnitudes));
        }
}

TEST(Attention, NanAndInfinityArriveThroughTheUnitsForBf16) {
    static ThreadPool pool(2);
    const Setting setting{row_kernels(Isa::generic), pool, Placement::starts_at_guard, Stores::plain};
    std::vector<const AttentionKernels*> units;
    if (has_bf16_dot()) units.push_back(attention_kernels(Bf16Unit::avx512_bf16));
    if (best_isa() >= Isa::amx) units.push_back(attention_kernels(Bf16Unit::amx));
    const AttentionCase c{1, 40, 40, 32, true, DType::bf16};
    AttentionOperands x = operands_of(c);
    x.k[20 * 32] = NAN;      // seen by queries 20 ... 39
    x.q[5 * 32] = INFINITY;  // query 5 alone
    for (const AttentionKernels* kernels : units) {
        SCOPED_TRACE(kernels->name);
        const ForwardMemory memory(setting, *kernels, c.size(), x);
        attention(*kernels, memory.problem(c.size()), pool);
        const Numbers o = memory.o.values(), lse = memory.lse.values();
        for (std::size_t i = 0; i < 40; ++i) {
            EXPECT_EQ(std::isnan(o[32 * i]), i >= 20 || i == 5) << i;
            if (i != 5) {
                EXPECT_EQ(std::isnan(lse[i]), i >= 20) << i;
            }
        }
    }
}

TEST(Attention, HasTheSameBitsOnAnyNumberOfThreads) {
    static ThreadPool one(1), two(2), five(5);
    std::vector<const AttentionKernels*> levels{&attention_kernels(best_isa())};
    if (const AttentionKernels* const unit = attention_kernels(bf16_unit(best_isa()))) levels.push_back(unit);
    // Keys in as many segments as there ever are, blocks of queries by the dozen for each thread; and heads
    // enough for one thread and two, but not for five, that a thread packs operands of its own.
    for (const AttentionCase& c : {AttentionCase{1, 4096, 4096, 64, true, DType::bf16},
                                   AttentionCase{32, 70, 140, 64, true, DType::bf16, 2}})
        for (const AttentionKernels* kernels : levels) {
            SCOPED_TRACE(std::string(kernels->name) + ", heads " + std::to_string(c.heads));
            const AttentionOperands x = operands_of(c);
            const auto on = [&](ThreadPool& pool) {
                const Setting setting{row_kernels(Isa::generic), pool, Placement::starts_at_guard,
                                      Stores::plain};
                return run_both(setting, *kernels, c.size(), x);
            };
            const PlainAttention first = on(one);
            for (ThreadPool* pool : {&two, &five}) {
                const PlainAttention again = on(*pool);
                EXPECT_TRUE(again.o == first.o && again.dq == first.dq && again.dk == first.dk &&
                            again.dv == first.dv);
            }
        }
}

TEST(Attention, MemoryGrowsWithTheSequenceNotWithItsSquare) {
    for (const auto& [kernels, copies] :
         {std::pair{&attention_kernels_generic(), 0}, {&attention_kernels_amx(), 6}}) {
        SCOPED_TRACE(kernels->name);
        const auto bytes = [kernels = kernels](std::int64_t T, int threads) {
            const AttentionSize s = AttentionCase{1, T, T, 64, true, DType::bf16}.size();
            return attention_workspace(*kernels, s, threads) + attention_grad_workspace(*kernels, s, threads);
        };
        for (const int threads : {1, 2, 16}) {
            const std::int64_t short_bytes = bytes(1024, threads), long_bytes = bytes(16384, threads);
            EXPECT_LE(long_bytes, 16 * short_bytes);
            // At most eight dq in FP32 and a log-sum-exp's worth, besides the threads' blocks; where operands
            // are packed, k and v once more in BF16, q and do twice.
            EXPECT_LE(long_bytes - bytes(64, threads), 16384 * ((8 * 64 + 1) * 4 + copies * 64 * 2));
        }
        // As many heads as a model has: one dq a thread.
        const AttentionSize many = AttentionCase{48, 1024, 1024, 64, true, DType::bf16}.size();
        const std::int64_t packed = copies == 0 ? 0 : 4 * 48 * packed_floats(64, 1024) * 4;
        EXPECT_LE(attention_grad_workspace(*kernels, many, 2),
                  2 * (1024 * 64 * 4 + (256 << 10)) + 48 * 1024 * 4 + packed);
    }
}

/// Whether the call throws an InternalError with this text.
bool refuses(const std::function<void()>& run, const std::string& text) {
    try {
        run();
    } catch (const InternalError& error) {
        return std::string(error.what()).find("attention: " + text) != std::string::npos;
    }
    return false;
}

TEST(Attention, RefusesWhatItCannotDo) {
    ThreadPool pool(1);
    const Setting setting{row_kernels(Isa::generic), pool, Placement::starts_at_guard, Stores::plain};
    const AttentionCase c{1, 3, 3, 2, true};
    const ForwardMemory memory(setting, attention_kernels(Isa::generic), c.size(), operands_of(c));
    const auto attend = [&](const std::function<void(Attention&)>& change) {
        return [&, change] {
            Attention p = memory.problem(c.size());
            change(p);
            attention(attention_kernels(Isa::generic), p, pool);
        };
    };
    EXPECT_TRUE(
        refuses(attend([](Attention& p) { p.size.keys = 2; }), "a causal mask needs a key for every"));
    EXPECT_TRUE(refuses(attend([](Attention& p) { p.v.data = nullptr; }), "v is a null pointer"));
    EXPECT_TRUE(refuses(attend([](Attention& p) { p.o.data = const_cast<void*>(p.q.data); }),
                        "an output lies in an operand's memory"));
    EXPECT_TRUE(refuses(attend([](Attention& p) { p.size.head_size = 0; }), "head_size is 0, expected 1 or"));
    EXPECT_TRUE(refuses(attend([](Attention& p) { p.k.strides.position = 1; }), "rows of a tensor overlap"));
    EXPECT_FALSE(refuses(attend([](Attention&) {}), ""));
}

}  // namespace
}  // namespace mantissa::on_cpu
