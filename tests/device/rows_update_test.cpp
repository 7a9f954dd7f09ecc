// AdamW, SGD, the squared norm and sums over columns against their definitions in FP64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "mantissa/numerics/formats.h"
#include "tests/device/rows_harness.h"
#include "tests/support/random_draws.h"

namespace mantissa::on_cpu {
namespace {

const AdamWStep usual = {.learning_rate = 1e-2f,
                         .beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .eps = 1e-8f,
                         .weight_decay = 0.1f,
                         .bias_correction1 = 1 - 0.9f * 0.9f,
                         .bias_correction2 = 1 - 0.95f * 0.95f,
                         .grad_scale = 0.125f};

struct AdamState {
    std::vector<double> p, m, v, g;
};

AdamState random_state(std::int64_t count, DType gradient) {
    AdamState s = {normal_values(count, DType::f32, 1, 1), normal_values(count, DType::f32, 0.1, 2),
                   normal_values(count, DType::f32, 0.1, 3), normal_values(count, gradient, 4, 4)};
    for (double& v : s.v) v = static_cast<double>(static_cast<float>(v * v + 1e-3));
    return s;
}

TEST(RowsAdamW, AgreesWithItsDefinition) {
    for (const std::int64_t count : {1, 15, 16, 17, 4097, 70001})
        for (const DType type : {DType::f32, DType::bf16}) {
            SCOPED_TRACE(::testing::Message() << count << " " << name_of(type));
            const AdamState before = random_state(count, type);
            AdamState after = before;
            const AdamWStep& k = usual;
            const double b1 = k.beta1, b2 = k.beta2, lr = k.learning_rate;
            for (std::size_t i = 0; i < after.p.size(); ++i) {
                const double g = before.g[i] * static_cast<double>(k.grad_scale);
                after.m[i] = b1 * before.m[i] + (1 - b1) * g;
                after.v[i] = b2 * before.v[i] + (1 - b2) * g * g;
                const double root = std::sqrt(after.v[i] / static_cast<double>(k.bias_correction2));
                after.p[i] = before.p[i] * (1 - lr * static_cast<double>(k.weight_decay)) -
                             lr / static_cast<double>(k.bias_correction1) * after.m[i] /
                                 (root + static_cast<double>(k.eps));
            }
            // Sizes of what is added in each; three to six roundings, 1 - beta among them (relatively 1 /
            // 0.05).
            std::vector<double> m_size, v_size, p_size;
            for (std::size_t i = 0; i < after.p.size(); ++i) {
                m_size.push_back(std::fabs(before.m[i]) + std::fabs(before.g[i]));
                v_size.push_back(before.v[i] + before.g[i] * before.g[i]);
                p_size.push_back(std::fabs(before.p[i]) + lr * m_size.back() / std::sqrt(after.v[i]));
            }
            check_everywhere([&](const Setting& setting) {
                Guarded p(setting, DType::f32, count), m(setting, DType::f32, count),
                    v(setting, DType::f32, count);
                Guarded g(setting, type, count), copy(setting, DType::bf16, count);
                p.assign(before.p);
                m.assign(before.m);
                v.assign(before.v);
                g.assign(before.g);
                adamw(setting.kernels,
                      {.count = count,
                       .step = usual,
                       .gradient = g.in(),
                       .parameter_in = p.f32(),
                       .moment1_in = m.f32(),
                       .moment2_in = v.f32(),
                       .parameter = p.f32(),
                       .moment1 = m.f32(),
                       .moment2 = v.f32(),
                       .copy_in = copy.in(),
                       .copy = copy.out()},
                      setting.pool);
                expect_matches(m, after.m, Tolerance::bound(1, 6, eps32, m_size));
                expect_matches(v, after.v, Tolerance::bound(1, 8, eps32, v_size));
                expect_matches(p, after.p, Tolerance::bound(2, 12, eps32, p_size));
                const std::vector<double> rounded = copy.values();
                const std::vector<double> exact = p.values();
                for (std::size_t i = 0; i < exact.size(); ++i)
                    EXPECT_EQ(rounded[i], rounded_to(exact[i], DType::bf16)) << i;
                return joined({&p, &m, &v, &copy});
            });
        }
}

TEST(RowsAdamW, ABadStepLeavesNoTrace) {
    const std::int64_t count = 1003;
    AdamState before = random_state(count, DType::f32);
    before.g[500] = std::numeric_limits<double>::quiet_NaN();
    before.g[501] = std::numeric_limits<double>::infinity();
    check_everywhere([&](const Setting& setting) {
        Guarded p(setting, DType::f32, count), m(setting, DType::f32, count), v(setting, DType::f32, count);
        Guarded p2(setting, DType::f32, count), m2(setting, DType::f32, count),
            moment2(setting, DType::f32, count);
        Guarded g(setting, DType::f32, count), copy(setting, DType::bf16, count);
        p.assign(before.p);
        m.assign(before.m);
        v.assign(before.v);
        g.assign(before.g);
        copy.assign(before.p);
        const std::vector<std::byte> kept = joined({&p, &m, &v, &copy});
        AdamW problem = {.count = count,
                         .step = usual,
                         .gradient = g.in(),
                         .parameter_in = p.f32(),
                         .moment1_in = m.f32(),
                         .moment2_in = v.f32(),
                         .parameter = p.f32(),
                         .moment1 = m.f32(),
                         .moment2 = v.f32(),
                         .copy_in = copy.in(),
                         .copy = copy.out()};
        problem.step.apply = false;
        adamw(setting.kernels, problem, setting.pool);
        EXPECT_TRUE(joined({&p, &m, &v, &copy}) == kept) << "in place";
        problem.parameter = p2.f32();
        problem.moment1 = m2.f32();
        problem.moment2 = moment2.f32();
        adamw(setting.kernels, problem, setting.pool);
        EXPECT_TRUE(joined({&p2, &m2, &moment2, &copy}) == kept) << "out of place";
        problem.step.apply = true;
        adamw(setting.kernels, problem, setting.pool);
        EXPECT_TRUE(std::isnan(p2.values()[500])) << "applied, the same gradient does harm";
        return joined({&p, &m, &v});
    });
}

const SgdStep dampened = {
    .learning_rate = 1e-2f, .weight_decay = 0.1f, .momentum = 0.9f, .share = 0.75f, .grad_scale = 0.125f};

struct SgdCase {
    const char* name;
    bool buffers = true;
    SgdStep step = dampened;
};

std::vector<SgdCase> sgd_cases() {
    SgdStep nesterov = dampened, first = dampened;
    nesterov.nesterov = true;
    nesterov.share = 1;
    nesterov.weight_decay = 0;
    first.first = true;
    return {{"plain", false}, {"dampened"}, {"Nesterov", true, nesterov}, {"first", true, first}};
}

/// Parameter and buffer after the step, and the sizes of what is added in each.
struct SgdResult {
    std::vector<double> p, buffer, p_size, buffer_size;
};

SgdResult sgd_in_fp64(const SgdCase& c, const AdamState& before) {
    SgdResult after;
    const double momentum = c.step.momentum, share = c.step.share, decay = c.step.weight_decay;
    const double rate = c.step.learning_rate, scale = c.step.grad_scale;
    for (std::size_t i = 0; i < before.p.size(); ++i) {
        const double p = before.p[i], g = before.g[i] * scale + decay * p;
        const double buffer = c.step.first ? g : momentum * before.m[i] + share * g;
        const double direction = c.step.nesterov ? g + momentum * buffer : buffer;
        after.buffer.push_back(buffer);
        after.p.push_back(p - rate * (c.buffers ? direction : g));
        after.buffer_size.push_back(std::fabs(before.m[i]) + std::fabs(before.g[i] * scale) +
                                    std::fabs(decay * p));
        after.p_size.push_back(std::fabs(p) + 2 * rate * after.buffer_size.back());
    }
    return after;
}

TEST(RowsSgd, AgreesWithItsDefinition) {
    for (const SgdCase& c : sgd_cases())
        for (const std::int64_t count : {1, 15, 16, 17, 4097, 70001})
            for (const DType type : {DType::f32, DType::bf16}) {
                // Many elements have one of the two by turns.
                if (count > 5000 && (type == DType::f32) != c.buffers && !testing::sweeps_are_whole())
                    continue;
                SCOPED_TRACE(::testing::Message() << c.name << " " << count << " " << name_of(type));
                const AdamState before = random_state(count, type);
                const SgdResult after = sgd_in_fp64(c, before);
                check_everywhere([&](const Setting& setting) {
                    Guarded p(setting, DType::f32, count), buffer(setting, DType::f32, count);
                    Guarded g(setting, type, count), copy(setting, DType::bf16, count);
                    p.assign(before.p);
                    // The first step reads no buffer: it is left full of NaN.
                    if (!c.step.first) buffer.assign(before.m);
                    g.assign(before.g);
                    sgd(setting.kernels,
                        {.count = count,
                         .step = c.step,
                         .gradient = g.in(),
                         .parameter_in = p.f32(),
                         .buffer_in = c.buffers ? buffer.f32() : nullptr,
                         .parameter = p.f32(),
                         .buffer = c.buffers ? buffer.f32() : nullptr,
                         .copy_in = copy.in(),
                         .copy = copy.out()},
                        setting.pool);
                    // Up to seven roundings, each of a sum of these sizes.
                    if (c.buffers)
                        expect_matches(buffer, after.buffer,
                                       Tolerance::bound(1, 8, eps32, after.buffer_size));
                    expect_matches(p, after.p, Tolerance::bound(1, 8, eps32, after.p_size));
                    const std::vector<double> rounded = copy.values(), exact = p.values();
                    for (std::size_t i = 0; i < exact.size(); ++i)
                        EXPECT_EQ(rounded[i], rounded_to(exact[i], DType::bf16)) << i;
                    return joined({&p, &buffer, &copy});
                });
            }
}

TEST(RowsSgd, ABadStepLeavesNoTrace) {
    const std::int64_t count = 1003;
    AdamState before = random_state(count, DType::f32);
    before.g[500] = std::numeric_limits<double>::quiet_NaN();
    check_everywhere([&](const Setting& setting) {
        Guarded p(setting, DType::f32, count), buffer(setting, DType::f32, count);
        Guarded p2(setting, DType::f32, count), buffer2(setting, DType::f32, count);
        Guarded g(setting, DType::f32, count), copy(setting, DType::bf16, count);
        p.assign(before.p);
        buffer.assign(before.m);
        g.assign(before.g);
        copy.assign(before.p);
        const std::vector<std::byte> kept = joined({&p, &buffer, &copy});
        Sgd problem = {.count = count,
                       .step = dampened,
                       .gradient = g.in(),
                       .parameter_in = p.f32(),
                       .buffer_in = buffer.f32(),
                       .parameter = p.f32(),
                       .buffer = buffer.f32(),
                       .copy_in = copy.in(),
                       .copy = copy.out()};
        problem.step.apply = false;
        sgd(setting.kernels, problem, setting.pool);
        EXPECT_TRUE(joined({&p, &buffer, &copy}) == kept) << "in place";
        problem.parameter = p2.f32();
        problem.buffer = buffer2.f32();
        sgd(setting.kernels, problem, setting.pool);
        EXPECT_TRUE(joined({&p2, &buffer2, &copy}) == kept) << "out of place";
        problem.step.apply = true;
        sgd(setting.kernels, problem, setting.pool);
        EXPECT_TRUE(std::isnan(p2.values()[500])) << "applied, the same gradient does harm";
        return joined({&p, &buffer});
    });
}

TEST(RowsSquaredNorm, IsExactToFp64AndSeesWhatIsNotFinite) {
    for (const std::int64_t count : {1, 31, 33, 32768, 100003})
        for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
            SCOPED_TRACE(::testing::Message() << count << " " << name_of(type));
            const std::vector<double> x = normal_values(count, type, 100, 1);
            double expected = 0;
            for (const double value : x) expected += value * value;
            check_everywhere([&](const Setting& setting) {
                Guarded in(setting, type, count);
                Guarded workspace(setting, DType::f64, squared_norm_workspace(count) / 8);
                in.assign(x);
                const SquaredNorm problem = {
                    .count = count, .x = in.in(), .workspace = workspace.as<double>()};
                const SquaredNormResult result = squared_norm(setting.kernels, problem, setting.pool);
                // All terms are positive: n roundings of FP64, relatively.
                const double allowed = static_cast<double>(count) * 0x1p-53 * expected;
                EXPECT_TRUE(std::fabs(result.sum - expected) <= allowed) << result.sum << " " << expected;
                EXPECT_TRUE(result.finite);
                std::vector<std::byte> bytes(sizeof result.sum);
                std::memcpy(bytes.data(), &result.sum, sizeof result.sum);
                for (const double bad :
                     {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
                    std::vector<double> spoilt = x;
                    spoilt.back() = bad;
                    in.assign(spoilt);
                    EXPECT_FALSE(squared_norm(setting.kernels, problem, setting.pool).finite) << bad;
                }
                return bytes;
            });
        }
}

TEST(RowsSquaredNorm, TheLargestNumbersDoNotOverflowIt) {
    check_everywhere([&](const Setting& setting) {
        Guarded in(setting, DType::f32, 100), workspace(setting, DType::f64, 1);
        in.assign(std::vector<double>(100, 3e38));
        const SquaredNormResult result = squared_norm(
            setting.kernels, {.count = 100, .x = in.in(), .workspace = workspace.as<double>()}, setting.pool);
        EXPECT_TRUE(result.finite);
        EXPECT_NEAR(result.sum, 9e78, 1e72);
        return std::vector<std::byte>(1);
    });
}

TEST(RowsColumnSum, AgreesWithItsDefinition) {
    struct Case {
        std::int64_t rows;
        std::int64_t channels;
        DType type;
    };
    for (const Case& k : {Case{1, 1, DType::f32}, Case{7, 17, DType::bf16}, Case{257, 64, DType::f32},
                          Case{600, 1031, DType::f32}, Case{515, 15, DType::bf16}}) {
        SCOPED_TRACE(::testing::Message() << k.rows << " x " << k.channels);
        const std::vector<double> x = normal_values(k.rows * k.channels, k.type, 1, 1);
        std::vector<double> sum(static_cast<std::size_t>(k.channels)), size(sum.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            sum[i % sum.size()] += x[i];
            size[i % sum.size()] += std::fabs(x[i]);
        }
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, k.type, k.rows * k.channels), out(setting, DType::f32, k.channels);
            Guarded workspace(setting, DType::f32, column_sum_workspace(k.rows, k.channels) / 4);
            in.assign(x);
            column_sum(setting.kernels,
                       {.rows = k.rows,
                        .channels = k.channels,
                        .x = in.in(),
                        .sum = out.f32(),
                        .workspace = workspace.f32()},
                       setting.pool);
            // At most 64 groups of four rows one after another, then a tree.
            const double n = std::fmin(static_cast<double>(k.rows) / 4, 64) + 8;
            expect_matches(out, sum, Tolerance::bound(1, n, eps32, size));
            return joined({&out});
        });
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
