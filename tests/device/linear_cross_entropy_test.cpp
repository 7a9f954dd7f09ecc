// The fused linear cross-entropy as a pure function: its memory, chunks of any size, bad targets. Against the
// reference it is tested with all other operations, in tests/runtime.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/loss/linear_cross_entropy.h"
#include "mantissa/numerics/formats.h"
#include "tests/device/levels.h"
#include "tests/device/normal_floats.h"

namespace mantissa::on_cpu {
namespace {

constexpr std::int64_t N = 101, C = 19, V = 53;

struct Outputs {
    float loss = 0;
    std::vector<float> dx = std::vector<float>(N * C, NAN), dw = std::vector<float>(V * C, NAN);

    friend bool operator==(const Outputs& a, const Outputs& b) {
        return a.loss == b.loss && a.dx == b.dx && a.dw == b.dw;
    }
};

std::vector<std::int32_t> some_targets() {
    std::vector<std::int32_t> targets(N);
    for (std::int64_t i = 0; i < N; ++i)
        targets[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 7 % V);
    return targets;
}

Outputs run_of_chunk(std::int64_t chunk, int threads,
                     const std::vector<std::int32_t>& targets = some_targets(),
                     bool ignore_negative = false) {
    const LinearCrossEntropy problem{.rows = N,
                                     .channels = C,
                                     .classes = V,
                                     .max_rows_of_chunk = chunk,
                                     .gradients = true,
                                     .ignore_negative = ignore_negative};
    ThreadPool pool(threads);
    const PreparedLinearCrossEntropy prepared = prepare_linear_cross_entropy(problem, best_isa());
    Buffer workspace(prepared.workspace_bytes(threads), "workspace");
    std::memset(workspace.data(), 0xff, workspace.size());
    const std::vector<float> x = normal_floats(N * C, {.seed = 3, .operation = 1}),
                             w = normal_floats(V * C, {.seed = 3, .operation = 2});
    Outputs out;
    linear_cross_entropy(prepared,
                         {.x = x.data(),
                          .w = w.data(),
                          .targets = targets.data(),
                          .seed = 2,
                          .loss = &out.loss,
                          .dx = out.dx.data(),
                          .dw = out.dw.data()},
                         {workspace.data(), workspace.size()}, pool);
    return out;
}

TEST(LinearCrossEntropy, ChunksOfAnySizeGiveTheSameButForTheOrderOfSums) {
    const Outputs whole = run_of_chunk(N, 2);
    for (const std::int64_t chunk : {1, 7, 32, 50, 64, 100}) {
        const Outputs got = run_of_chunk(chunk, 2);
        // Sums of N terms of |dlogits| <= 2 / N times |x| < 5, or of V terms; each order errs by
        // 2^-24 a term. The losses of rows are the same numbers but for the order of exponentials, in which
        // columns are grouped.
        EXPECT_FLOAT_EQ(got.loss, whole.loss) << chunk;
        for (std::size_t i = 0; i < whole.dx.size(); ++i)
            EXPECT_NEAR(got.dx[i], whole.dx[i], V * 0x1p-24 * 10.0 / N) << chunk;
        for (std::size_t i = 0; i < whole.dw.size(); ++i)
            EXPECT_NEAR(got.dw[i], whole.dw[i], N * 0x1p-24 * 10.0 / N) << chunk;
    }
}

TEST(LinearCrossEntropy, SameBitsForAnyNumberOfThreads) {
    for (const std::int64_t chunk : {32, 64, 1024}) {
        const Outputs one = run_of_chunk(chunk, 1);
        EXPECT_EQ(run_of_chunk(chunk, 2), one);
        EXPECT_EQ(run_of_chunk(chunk, 3), one);
    }
}

TEST(LinearCrossEntropy, IgnoredRowsHaveNoGradientAndABadTargetIsStillNamed) {
    std::vector<std::int32_t> targets = some_targets();
    targets[3] = targets[64] = -1;
    const Outputs out = run_of_chunk(32, 2, targets, true);
    for (const std::int64_t row : {std::int64_t{3}, std::int64_t{64}})
        for (std::int64_t c = 0; c < C; ++c) EXPECT_EQ(out.dx[static_cast<std::size_t>(row * C + c)], 0.0f);
    EXPECT_NE(out.dx[4 * C], 0.0f);
    EXPECT_LT(out.loss, run_of_chunk(32, 2).loss);
    targets[70] = V;
    try {
        run_of_chunk(32, 2, targets, true);
        ADD_FAILURE() << "a target beyond the classes was taken";
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("target 53 at position 70 is out of range"),
                  std::string::npos)
            << error.what();
    }
}

/// The loss and its gradients in FP64, row by row, over those that have a target.
Outputs by_rows_in_double(const std::vector<std::int32_t>& targets) {
    const std::vector<float> x = normal_floats(N * C, {.seed = 3, .operation = 1}),
                             w = normal_floats(V * C, {.seed = 3, .operation = 2});
    std::vector<double> dx(N * C), dw(V * C);
    double loss = 0;
    for (std::size_t i = 0; i < N; ++i) {
        if (targets[i] < 0) continue;
        std::vector<double> logits(V);
        double sum = 0;
        for (std::size_t v = 0; v < V; ++v) {
            for (std::size_t c = 0; c < C; ++c) logits[v] += double{w[v * C + c]} * double{x[i * C + c]};
            sum += std::exp(logits[v]);
        }
        loss += (std::log(sum) - logits[static_cast<std::size_t>(targets[i])]) / N;
        for (std::size_t v = 0; v < V; ++v) {
            const bool is_target = v == static_cast<std::size_t>(targets[i]);
            const double gradient = 2 * (std::exp(logits[v]) / sum - (is_target ? 1 : 0)) / N;
            for (std::size_t c = 0; c < C; ++c) {
                dx[i * C + c] += gradient * double{w[v * C + c]};
                dw[v * C + c] += gradient * double{x[i * C + c]};
            }
        }
    }
    Outputs out{.loss = static_cast<float>(loss)};
    std::ranges::transform(dx, out.dx.begin(), [](double d) { return static_cast<float>(d); });
    std::ranges::transform(dw, out.dw.begin(), [](double d) { return static_cast<float>(d); });
    return out;
}

TEST(LinearCrossEntropy, IgnoredRowsAreLeftOut) {
    for (const std::int64_t kept : {0, 1, 31, 32, 33, 64, 65, 96, 97}) {
        std::vector<std::int32_t> targets = some_targets();
        for (std::int64_t i = 0; i < N - kept; ++i) targets[static_cast<std::size_t>(i * 37 % N)] = -1;
        const Outputs exact = by_rows_in_double(targets);
        for (const std::int64_t chunk : {1, 32, 64, 80, 101}) {
            const Outputs got = run_of_chunk(chunk, 2, targets, true);
            EXPECT_NEAR(got.loss, exact.loss, 2e-6 * exact.loss) << chunk << " " << kept;
            for (std::size_t i = 0; i < exact.dx.size(); ++i)
                ASSERT_NEAR(got.dx[i], exact.dx[i], V * 0x1p-24 * 10.0 / N) << chunk << " " << kept;
            for (std::size_t i = 0; i < exact.dw.size(); ++i)
                ASSERT_NEAR(got.dw[i], exact.dw[i], N * 0x1p-24 * 10.0 / N) << chunk << " " << kept;
            EXPECT_EQ(run_of_chunk(chunk, 3, targets, true), got);
        }
    }
}

/// 300 rows of 4,000 classes, each fifth with a target: what the head takes is what it takes of 64 rows.
TEST(LinearCrossEntropy, TheHeadRunsOverRowsWithATargetAlone) {
    LinearCrossEntropy problem{
        .rows = 300, .channels = 24, .classes = 4000, .gradients = true, .ignore_negative = true};
    const PreparedLinearCrossEntropy prepared = prepare_linear_cross_entropy(problem, best_isa());
    EXPECT_EQ(prepared.rows_of(0), 64);
    EXPECT_EQ(prepared.rows_of(60), 64);
    EXPECT_EQ(prepared.rows_of(65), 128);
    EXPECT_EQ(prepared.rows_of(256), 256);
    EXPECT_EQ(prepared.rows_of(257), 300);
    const auto rows = static_cast<std::size_t>(problem.rows);
    std::vector<float> x = normal_floats(rows * 24, {.seed = 3, .operation = 1}),
                       w = normal_floats(4000 * 24, {.seed = 3, .operation = 2}), dw(w.size());
    std::vector<std::int32_t> targets(rows, -100);
    for (std::size_t row = 0; row < rows; row += 5) targets[row] = static_cast<std::int32_t>(row * 13);
    const auto run = [&](std::span<const std::int32_t> some) {
        std::vector<float> dx(rows * 24, NAN);
        float loss = NAN;
        ThreadPool pool(2);
        Buffer workspace(prepared.workspace_bytes(2), "workspace");
        std::memset(workspace.data(), 0xff, workspace.size());
        linear_cross_entropy(prepared,
                             {.x = x.data(),
                              .w = w.data(),
                              .targets = some.data(),
                              .loss = &loss,
                              .dx = dx.data(),
                              .dw = dw.data()},
                             {workspace.data(), workspace.size()}, pool);
        dx.push_back(loss);
        return dx;
    };
    // Rows that are left out are not looked at: with a NaN in one that is computed its loss would be one.
    const std::vector<float> expected = run(targets);
    for (std::size_t i = 299 * 24; i < rows * 24; ++i) x[i] = NAN;
    EXPECT_EQ(run(targets), expected);
    EXPECT_TRUE(std::ranges::none_of(dw, [](float each) { return std::isnan(each); }));
}

TEST(LinearCrossEntropy, HoldsOneChunkOfLogitsWhateverTheNumberOfRows) {
    LinearCrossEntropy problem{.rows = 4096, .channels = 768, .classes = 50257, .gradients = true};
    for (const DType dtype : {DType::f32, DType::bf16}) {
        problem.dtype = dtype;
        const std::size_t rows = static_cast<std::size_t>(problem.rows = 4096);
        const std::size_t bytes = prepare_linear_cross_entropy(problem, best_isa()).workspace_bytes(2);
        const std::size_t chunk = 1024 * 50257 * size_of(dtype);
        EXPECT_GE(bytes, chunk);
        EXPECT_LE(bytes, chunk + chunk / 4);  // packed panels and partial sums of a contraction
        problem.rows *= 4;
        EXPECT_EQ(prepare_linear_cross_entropy(problem, best_isa()).workspace_bytes(2),
                  bytes + 3 * rows * sizeof(float));
    }
}

TEST(LinearCrossEntropy, HoldsNoLogitsWhereNoGradientsAreWanted) {
    const LinearCrossEntropy problem{
        .rows = 4096, .channels = 768, .classes = 50257, .dtype = DType::bf16, .gradients = false};
    EXPECT_LE(prepare_linear_cross_entropy(problem, best_isa()).workspace_bytes(2),
              std::size_t{1024 * 50257 * 2 / 4});
}

/// The loss of `rows` equal rows x = 1 with C = 1, so that w is the logits, and dw, in FP64 and by the
/// kernel.
struct OneChannel {
    std::vector<double> logits = {};
    std::int32_t target = 0;
    std::int64_t rows = 1;

    double log_sum_exp() const {
        const double most = *std::max_element(logits.begin(), logits.end());
        double sum = 0;
        for (const double x : logits) sum += std::exp(x - most);
        return most + std::log(sum);
    }

    /// In units of what is allowed. An exponential errs by 2^-23, by 2^-26 of its logit besides, a sum in
    /// FP32 by 2^-22: whole multiples of 1, where a target is sure and little is left of it. In 16 bits
    /// weights are rounded, as exponentials and as gradients, of which FP16 has none below 2^-24.
    double worst_error(DType dtype, Isa isa) const {
        const auto count = logits.size();
        const auto stored = [&](double value) {
            const auto x = static_cast<float>(value);
            if (dtype == DType::bf16) return to_bf16(x).bits;
            return to_fp16(x).bits;
        };
        std::vector<float> w32(logits.begin(), logits.end()), x32(static_cast<std::size_t>(rows), 1.0f);
        std::vector<std::uint16_t> w16(count), x16(x32.size(), stored(1.0));
        for (std::size_t i = 0; i < count; ++i) w16[i] = stored(logits[i]);
        std::vector<float> dx(x32.size()), dw(count, NAN);
        const std::vector<std::int32_t> targets(x32.size(), target);
        float loss = NAN;
        const bool wide = dtype == DType::f32;
        const LinearCrossEntropy problem{.rows = rows,
                                         .channels = 1,
                                         .classes = static_cast<std::int64_t>(count),
                                         .dtype = dtype,
                                         .gradients = true};
        ThreadPool pool(2);
        const PreparedLinearCrossEntropy prepared = prepare_linear_cross_entropy(problem, isa);
        Buffer workspace(prepared.workspace_bytes(2), "workspace");
        std::memset(workspace.data(), 0xff, workspace.size());
        linear_cross_entropy(prepared,
                             {.x = wide ? static_cast<void*>(x32.data()) : x16.data(),
                              .w = wide ? static_cast<void*>(w32.data()) : w16.data(),
                              .targets = targets.data(),
                              .loss = &loss,
                              .dx = dx.data(),
                              .dw = dw.data()},
                             {workspace.data(), workspace.size()}, pool);
        const auto at = static_cast<std::size_t>(target);
        const double lse = log_sum_exp(), expected_loss = lse - logits[at];
        const double relative = dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : 0.0;
        const double least = 0x1p-21 + (dtype == DType::f16 ? static_cast<double>(rows) * 0x1p-25 : 0.0);
        double worst = std::abs(loss - expected_loss) / (0x1p-21 + 2e-5 * expected_loss);
        for (std::size_t i = 0; i < count; ++i) {
            const double p = i == at ? std::expm1(logits[i] - lse) : std::exp(logits[i] - lse);
            const double error = std::abs(dw[i] - p) / (least + (relative + 2e-5) * std::abs(p));
            worst = std::isnan(worst) || error <= worst ? worst : error;  // a NaN stays
        }
        return worst;
    }
};

TEST(LinearCrossEntropy, LogitsMayRiseAndFallAlongARow) {
    // A row's first logits are taken from another base than its last; 400 is 577 powers of two.
    for (const double slope : {8.0, -8.0, 0.0})
        for (const double offset : {0.0, -300.0, 64.0})
            for (const std::int64_t rows : {1, 5, 33}) {
                OneChannel one{.rows = rows};
                for (int v = 0; v < 53; ++v) one.logits.push_back(offset + slope * v);
                for (const std::int32_t target : {0, 20, 52}) {
                    one.target = target;
                    for (const Isa isa : testable_levels())
                        for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
                            const double worst = one.worst_error(dtype, isa);
                            EXPECT_TRUE(worst <= 1)
                                << worst << " of " << name_of(dtype) << " at " << name_of(isa) << ", slope "
                                << slope << ", offset " << offset << ", rows " << rows;
                        }
                }
            }
}

TEST(LinearCrossEntropy, LogitsTooLargeForTheirExponentialsAreNoNumbers) {
    for (const double size : {-6e8, 6e8, 1e10, -1e10, 1e30}) {
        OneChannel one{.target = 6, .rows = 3};
        for (int v = 0; v < 53; ++v) one.logits.push_back(size * (1 + v % 7 / 64.0));
        for (const Isa isa : testable_levels()) {
            const double worst = one.worst_error(DType::f32, isa);
            EXPECT_TRUE(std::abs(size) < 1e9 ? worst <= 1 : std::isnan(worst))
                << worst << " of logits about " << size << " at " << name_of(isa);
        }
    }
}

TEST(LinearCrossEntropy, TheGradientAtASureTargetKeepsItsDigits) {
    // 1 - p = 0.0044: were p rounded to BF16 first, nothing of it would be left.
    OneChannel one{.logits = std::vector<double>(13, 0.0), .target = 5, .rows = 2};
    one.logits[5] = 8;
    for (const Isa isa : testable_levels())
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
            const double worst = one.worst_error(dtype, isa);
            EXPECT_TRUE(worst <= 1) << worst << " of " << name_of(dtype);
        }
}

TEST(LinearCrossEntropy, ClassesOfSeveralProductsCountAlike) {
    // More than 3,072 classes, and a depth of two chunks, whose sums wait in memory.
    constexpr std::int64_t tokens = 5, channels = 800, classes = 3301;
    const std::vector<float> x = normal_floats(tokens * channels, {.seed = 3, .operation = 1}),
                             w = normal_floats(classes * channels, {.seed = 3, .operation = 2});
    const std::vector<std::int32_t> targets{0, 3071, 3072, 3300, 17};
    for (const Isa isa : testable_levels()) {
        const LinearCrossEntropy problem{
            .rows = tokens, .channels = channels, .classes = classes, .gradients = true};
        ThreadPool pool(2);
        const PreparedLinearCrossEntropy prepared = prepare_linear_cross_entropy(problem, isa);
        Buffer workspace(prepared.workspace_bytes(2), "workspace");
        std::memset(workspace.data(), 0xff, workspace.size());
        float loss = NAN;
        std::vector<float> dx(x.size(), NAN), dw(w.size(), NAN);
        linear_cross_entropy(prepared,
                             {.x = x.data(),
                              .w = w.data(),
                              .targets = targets.data(),
                              .loss = &loss,
                              .dx = dx.data(),
                              .dw = dw.data()},
                             {workspace.data(), workspace.size()}, pool);
        std::vector<double> weights(tokens * classes);
        double expected = 0;
        for (std::size_t t = 0; t < tokens; ++t) {
            OneChannel row;
            for (std::size_t v = 0; v < classes; ++v) {
                double logit = 0;
                for (std::size_t c = 0; c < channels; ++c)
                    logit += double{x[t * channels + c]} * double{w[v * channels + c]};
                row.logits.push_back(logit);
            }
            const double lse = row.log_sum_exp();
            const auto target = static_cast<std::size_t>(targets[t]);
            expected += (lse - row.logits[target]) / tokens;
            for (std::size_t v = 0; v < classes; ++v)
                weights[t * classes + v] = (std::exp(row.logits[v] - lse) - (v == target)) / tokens;
        }
        // Logits of some 30 err by 2^-24 of the sum of 800 terms' absolute values, 500: 3e-5.
        EXPECT_NEAR(loss, expected, 1e-4);
        for (std::size_t v = 0; v < classes; ++v) {
            double first = 0;
            for (std::size_t t = 0; t < tokens; ++t)
                first += weights[t * classes + v] * double{x[t * channels]};
            ASSERT_NEAR(dw[v * channels], first, 1e-4) << name_of(isa) << " class " << v;
        }
    }
}

TEST(LinearCrossEntropy, ABadTargetIsNamedByItsPositionAmongAllRows) {
    std::vector<std::int32_t> targets = some_targets();
    targets[70] = V;
    try {
        run_of_chunk(32, 2, targets);
        FAIL() << "target 53 of 53 classes was accepted";
    } catch (const UserError& error) {
        EXPECT_EQ(std::string(error.what()).substr(0, 74),
                  "linear_cross_entropy: target 53 at position 70 is out of range, expected 0");
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
