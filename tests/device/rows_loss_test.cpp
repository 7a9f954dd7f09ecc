// Cross-entropy and embedding with their gradients against their definitions in FP64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "tests/device/rows_harness.h"

namespace mantissa::on_cpu {
namespace {

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t limit) {
    const RandomStream random{.seed = 3, .operation = 9};
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<std::int32_t>(random.bits(i) % static_cast<std::uint64_t>(limit));
    return ids;
}

struct LossCase {
    std::int64_t rows;
    std::int64_t classes;
    std::int64_t stride;
    DType type;
};

/// More and fewer classes than one chunk of 1,024, with and without padding.
const LossCase loss_cases[] = {
    {1, 2, 2, DType::f32},       {3, 17, 17, DType::f32},      {5, 1023, 1024, DType::bf16},
    {4, 1025, 1088, DType::f32}, {131, 257, 272, DType::bf16}, {2, 5003, 5003, DType::f16},
};

TEST(RowsCrossEntropy, ValueAndGradientAgreeWithTheirDefinitions) {
    for (const LossCase& k : loss_cases) {
        SCOPED_TRACE(::testing::Message() << k.rows << " x " << k.classes << " " << name_of(k.type));
        std::vector<double> x = normal_values(k.rows * k.stride, k.type, 3, 1);
        const std::vector<std::int32_t> targets = random_ids(k.rows, k.classes);
        const float scale = 0.25f;
        std::vector<double> loss, lse, size, dx, dx_size;
        double mean = 0;
        for (std::int64_t r = 0; r < k.rows; ++r) {
            double* row = &x[static_cast<std::size_t>(r * k.stride)];
            double sum = 0, magnitude = 1;
            for (std::int64_t c = 0; c < k.classes; ++c) {
                sum += std::exp(row[c]);
                magnitude = std::fmax(magnitude, std::fabs(row[c]));
            }
            const double target = row[targets[static_cast<std::size_t>(r)]];
            // The kernel's gradient is given lse in FP32, and so is the definition.
            const auto given = static_cast<double>(static_cast<float>(std::log(sum)));
            lse.push_back(std::log(sum));
            loss.push_back(std::log(sum) - target);
            size.push_back(1 + std::fabs(std::log(sum)) + magnitude);
            mean += loss.back() / static_cast<double>(k.rows);
            for (std::int64_t c = 0; c < k.stride; ++c) {
                const double p = c < k.classes ? std::exp(row[c] - given) : 0;
                const double one = c == targets[static_cast<std::size_t>(r)] ? 1 : 0;
                dx.push_back((p - one) * static_cast<double>(scale));
                dx_size.push_back((one + p * (1 + std::fabs(row[c] - given))) * static_cast<double>(scale));
                if (c >= k.classes) row[c] = std::numeric_limits<double>::quiet_NaN();  // padding is not read
            }
        }
        double mean_size = 0;
        for (double s : size) mean_size += s / static_cast<double>(k.rows);
        check_everywhere([&](const Setting& setting) {
            Guarded logits(setting, k.type, k.rows * k.stride), ids(setting, DType::i32, k.rows);
            Guarded losses(setting, DType::f32, k.rows), lses(setting, DType::f32, k.rows);
            Guarded means(setting, DType::f32, 1), out(setting, k.type, k.rows * k.stride);
            logits.assign(x);
            ids.assign(targets);
            cross_entropy(setting.kernels,
                          {.rows = k.rows,
                           .classes = k.classes,
                           .stride = k.stride,
                           .logits = logits.in(),
                           .targets = ids.as<std::int32_t>(),
                           .loss = losses.f32(),
                           .lse = lses.f32(),
                           .mean_loss = means.f32()},
                          setting.pool);
            // An absolute error: that of log(sum), whose relative error is that of exp (2 eps) and of the
            // sum, and the roundings of the maximum's addition and of the difference.
            const double n = std::fmin(static_cast<double>(k.classes), 1024) / 64 + 12;
            expect_matches(lses, lse, Tolerance::bound(1, n, eps32, size));
            expect_matches(losses, loss, Tolerance::bound(1, n, eps32, size));
            expect_matches(means, std::vector{mean}, Tolerance::bound(1, n, eps32, std::vector{mean_size}));
            cross_entropy_grad(setting.kernels,
                               {.rows = k.rows,
                                .classes = k.classes,
                                .stride = k.stride,
                                .logits = logits.in(),
                                .targets = ids.as<std::int32_t>(),
                                .lse = lses.f32(),
                                .scale = scale,
                                .dlogits = out.out()},
                               setting.pool, setting.stores);
            // The kernel's own lse differs from the rounded exact one by up to n eps size.
            std::vector<double> gradient_size = dx_size;
            for (std::size_t i = 0; i < dx_size.size(); ++i)
                gradient_size[i] *= size[i / static_cast<std::size_t>(k.stride)];
            expect_matches(out, dx, Tolerance::bound(1, n, eps32, gradient_size));
            return joined({&losses, &lses, &means, &out});
        });
    }
}

TEST(RowsCrossEntropy, InfiniteAndNanLogits) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    check_everywhere([&](const Setting& setting) {
        // A masked class, a whole chunk of masked ones before the first finite one, a NaN behind them.
        std::vector<double> x(3 * 1100, -inf);
        x[0] = 1;
        x[1100 + 1050] = 2;
        x[2200 + 1] = nan;
        Guarded logits(setting, DType::f32, 3300), ids(setting, DType::i32, 3);
        Guarded losses(setting, DType::f32, 3), lses(setting, DType::f32, 3), means(setting, DType::f32, 1);
        logits.assign(x);
        ids.assign(std::vector<std::int32_t>{0, 1050, 0});
        cross_entropy(setting.kernels,
                      {.rows = 3,
                       .classes = 1100,
                       .logits = logits.in(),
                       .targets = ids.as<std::int32_t>(),
                       .loss = losses.f32(),
                       .lse = lses.f32(),
                       .mean_loss = means.f32()},
                      setting.pool);
        EXPECT_EQ(lses.values()[0], 1.0);
        EXPECT_EQ(lses.values()[1], 2.0);
        EXPECT_EQ(losses.values()[1], 0.0);
        EXPECT_TRUE(std::isnan(lses.values()[2]));
        EXPECT_TRUE(std::isnan(means.values()[0]));
        return std::vector<std::byte>(1);
    });
}

/// Chunks of a row that lie higher than those before, a little and by more than exponentials can express, and
/// lower again, so that their exponentials vanish.
TEST(RowsCrossEntropy, LogitsMayRiseAndFallAlongARow) {
    constexpr std::int64_t chunk = 1024, classes = 4 * chunk + 5;
    const std::vector<std::vector<double>> levels_of_rows = {{-300, 0, 7, 100, 101}, {100, 50, -300, 107, 0}};
    const auto rows = static_cast<std::int64_t>(levels_of_rows.size());
    std::vector<double> x = normal_values(rows * classes, DType::f32, 1, 1);
    std::vector<double> lse, size;
    for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::int64_t c = 0; c < classes; ++c) {
            double& logit = x[static_cast<std::size_t>(r * classes + c)];
            const double level =
                levels_of_rows[static_cast<std::size_t>(r)][static_cast<std::size_t>(c / chunk)];
            logit = static_cast<double>(static_cast<float>(logit + level));
            sum += std::exp(logit);
        }
        lse.push_back(std::log(sum));
        size.push_back(1 + std::fabs(std::log(sum)) + 300);
    }
    check_everywhere([&](const Setting& setting) {
        Guarded logits(setting, DType::f32, rows * classes), ids(setting, DType::i32, rows);
        Guarded losses(setting, DType::f32, rows), lses(setting, DType::f32, rows);
        Guarded mean(setting, DType::f32, 1);
        logits.assign(x);
        ids.assign(std::vector<std::int32_t>(static_cast<std::size_t>(rows), 0));
        cross_entropy(setting.kernels,
                      {.rows = rows,
                       .classes = classes,
                       .logits = logits.in(),
                       .targets = ids.as<std::int32_t>(),
                       .loss = losses.f32(),
                       .lse = lses.f32(),
                       .mean_loss = mean.f32()},
                      setting.pool);
        // As above; a difference of up to 8 is rounded before its exponential, which counts 8 times.
        const double n = static_cast<double>(chunk) / 64 + 12 + 8;
        expect_matches(lses, lse, Tolerance::bound(1, n, eps32, size));
        return joined({&losses, &lses, &mean});
    });
}

struct EmbeddingCase {
    std::int64_t tokens;
    std::int64_t vocabulary;
    std::int64_t channels;
    DType table;
    DType output;
};

const EmbeddingCase embedding_cases[] = {
    {1, 1, 1, DType::f32, DType::f32},       {7, 5, 17, DType::f32, DType::bf16},
    {300, 11, 64, DType::bf16, DType::f32},  {129, 257, 127, DType::f32, DType::f32},
    {50, 13, 160, DType::bf16, DType::bf16}, {90, 30, 16, DType::f32, DType::f16},
};

TEST(RowsEmbedding, GathersAndScatters) {
    for (const EmbeddingCase& k : embedding_cases) {
        SCOPED_TRACE(::testing::Message() << k.tokens << " of " << k.vocabulary << " x " << k.channels);
        const std::vector<std::int32_t> ids = random_ids(k.tokens, k.vocabulary);
        const std::vector<double> table = normal_values(k.vocabulary * k.channels, k.table, 1, 1);
        const std::vector<double> dy = normal_values(k.tokens * k.channels, k.output, 1, 2);
        std::vector<double> y, dtable(table.size()), size(table.size());
        for (std::int64_t t = 0; t < k.tokens; ++t)
            for (std::int64_t c = 0; c < k.channels; ++c) {
                const auto at = static_cast<std::size_t>(ids[static_cast<std::size_t>(t)] * k.channels + c);
                const double d = dy[static_cast<std::size_t>(t * k.channels + c)];
                y.push_back(table[at]);
                dtable[at] += d;
                size[at] += std::fabs(d);
            }
        check_everywhere([&](const Setting& setting) {
            Guarded list(setting, DType::i32, k.tokens), rows(setting, k.table, k.vocabulary * k.channels);
            Guarded out(setting, k.output, k.tokens * k.channels),
                d(setting, k.output, k.tokens * k.channels);
            Guarded dt(setting, DType::f32, k.vocabulary * k.channels);
            list.assign(ids);
            rows.assign(table);
            d.assign(dy);
            embedding(setting.kernels,
                      {.tokens = k.tokens,
                       .vocabulary = k.vocabulary,
                       .channels = k.channels,
                       .ids = list.as<std::int32_t>(),
                       .table = rows.in(),
                       .y = out.out()},
                      setting.pool, setting.stores);
            expect_matches(out, y, Tolerance::ulp(k.output == DType::f32 ? 0 : 0.5));  // one rounding
            std::vector<std::int32_t> workspace(
                static_cast<std::size_t>(embedding_grad_workspace(k.tokens, k.vocabulary)) / 4);
            EmbeddingGrad problem = {.tokens = k.tokens,
                                     .vocabulary = k.vocabulary,
                                     .channels = k.channels,
                                     .ids = list.as<std::int32_t>(),
                                     .dy = d.in(),
                                     .dtable = dt.f32(),
                                     .workspace = workspace.data()};
            embedding_grad(setting.kernels, problem, setting.pool, setting.stores);
            expect_matches(dt, dtable, Tolerance::bound(1, static_cast<double>(k.tokens), eps32, size));
            const std::vector<std::byte> once = joined({&out, &dt});
            problem.accumulate = Accumulate::add;
            embedding_grad(setting.kernels, problem, setting.pool);
            std::vector<double> twice = dtable;
            for (double& value : twice) value *= 2;
            expect_matches(dt, twice, Tolerance::bound(2, static_cast<double>(2 * k.tokens), eps32, size));
            return once;
        });
    }
}

TEST(RowsEmbedding, AnIdOutOfRangeIsNamed) {
    ThreadPool pool(1);
    std::vector<float> table(4 * 3), y(3 * 3);
    for (const std::int32_t bad : {-1, 4}) {
        const std::vector<std::int32_t> ids = {0, bad, 9};
        try {
            embedding(row_kernels(Isa::generic),
                      {.tokens = 3,
                       .vocabulary = 4,
                       .channels = 3,
                       .ids = ids.data(),
                       .table = {table.data()},
                       .y = {y.data()}},
                      pool);
            FAIL() << bad << " was accepted";
        } catch (const UserError& error) {
            const std::string expected =
                "embedding: id " + std::to_string(bad) + " at position 1 is out of range, expected 0 to 3";
            EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
        }
    }
    std::vector<float> loss(1), lse(1), mean(1);
    const std::int32_t target = 12;
    try {
        cross_entropy(row_kernels(Isa::generic),
                      {.rows = 1,
                       .classes = 12,
                       .logits = {table.data()},
                       .targets = &target,
                       .loss = loss.data(),
                       .lse = lse.data(),
                       .mean_loss = mean.data()},
                      pool);
        FAIL() << "a target of 12 in 12 classes was accepted";
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("target 12 at position 0 is out of range, expected 0 to 11"),
                  std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
