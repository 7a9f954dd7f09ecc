// Drivers of batch normalisation: sums over parts of rows and columns, which are joined in a fixed order, and
// the normalised rows.
#include <algorithm>
#include <cmath>

#include "mantissa/base/function_ref.h"
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Elements of a part: 128 KB of FP32, which stay in L2 for the second walk over them, in runs of 1 KB of
/// each row.
constexpr std::int64_t part_elements = 32 << 10;

/// At most 1,024 rows, so that sums in FP32 stay short.
std::int64_t part_rows(std::int64_t channels) {
    return std::min<std::int64_t>(part_elements / std::min(channels, columns_of_part), 1024);
}

std::int64_t row_parts(std::int64_t rows, std::int64_t channels) {
    return ceil_div(rows, part_rows(channels));
}

/// body(rows, columns, which part of the rows) for each part, on all threads.
void for_each_part(ThreadPool& pool, std::int64_t rows, std::int64_t channels,
                   FunctionRef<void(Range, Range, std::int64_t)> body) {
    const std::int64_t of_columns = ceil_div(channels, columns_of_part), height = part_rows(channels);
    pool.for_each_block(row_parts(rows, channels) * of_columns, [&](std::int64_t block, int) {
        const std::int64_t row_part = block / of_columns, column = block % of_columns * columns_of_part;
        body({row_part * height, std::min(rows, (row_part + 1) * height)},
             {column, std::min(channels, column + columns_of_part)}, row_part);
    });
}

/// Columns whose parts are joined at a time.
constexpr std::int64_t joined_columns = 64;

/// Parts of some columns become those of all rows, one part after another. Each part's numbers are `channels`
/// apart from the next one's.
void join_parts(const Moments& p, const MomentsOfPart& parts, Range columns) {
    const std::int64_t count = row_parts(p.rows, p.channels), height = part_rows(p.channels);
    const std::int64_t first = columns.first, size = columns.last - first;
    double means[joined_columns] = {}, squares[joined_columns] = {};
    const auto for_each = [&](auto body) {
        for (std::int64_t part = 0; part < count; ++part) {
            const auto number = static_cast<double>(std::min(p.rows - part * height, height));
            for (std::int64_t c = 0, at = part * p.channels + first; c < size; ++c, ++at)
                body(c, at, number,
                     static_cast<double>(parts.first_row[at]) + static_cast<double>(parts.off_first[at]));
        }
    };
    const auto rows = static_cast<double>(p.rows);
    for_each([&](std::int64_t c, std::int64_t, double number, double mean) { means[c] += number * mean; });
    for (std::int64_t c = 0; c < size; ++c) means[c] /= rows;
    for_each([&](std::int64_t c, std::int64_t at, double number, double mean) {
        const double off = mean - means[c];
        squares[c] += static_cast<double>(parts.squares[at]) + number * off * off;
    });
    for (std::int64_t c = 0; c < size; ++c) {
        const double variance = squares[c] / rows;
        p.mean[first + c] = static_cast<float>(means[c]);
        p.variance[first + c] = static_cast<float>(variance);
        p.rstd[first + c] = static_cast<float>(1 / std::sqrt(variance + static_cast<double>(p.eps)));
    }
}

}  // namespace

std::int64_t moments_workspace(std::int64_t rows, std::int64_t channels) {
    return row_parts(rows, channels) * channels * 3 * float_bytes;
}

void moments(const RowKernels& kernels, const Moments& p, ThreadPool& pool) {
    const std::int64_t C = p.channels;
    ProblemCheck check("moments");
    check.size("rows", p.rows).size("channels", C).input("x", p.x, p.rows * C);
    check.output("mean", p.mean, C * float_bytes).output("variance", p.variance, C * float_bytes);
    check.output("rstd", p.rstd, C * float_bytes);
    check.output("workspace", p.workspace, moments_workspace(p.rows, C)).finish();
    const std::int64_t numbers = row_parts(p.rows, C) * C;
    const MomentsOfPart parts{p.workspace, p.workspace + numbers, p.workspace + 2 * numbers};
    for_each_part(pool, p.rows, C, [&](Range rows, Range columns, std::int64_t part) {
        const std::int64_t at = part * C + columns.first;
        kernels.moments(p, rows, columns, {parts.first_row + at, parts.off_first + at, parts.squares + at});
    });
    for_each_range(pool, C, joined_columns,
                   [&](Range columns, std::int64_t) { join_parts(p, parts, columns); });
}

void normalize(const RowKernels& kernels, const Normalize& p, ThreadPool& pool, Stores wanted) {
    const std::int64_t C = p.channels;
    ProblemCheck check("normalize");
    check.size("rows", p.rows).size("channels", C).input("x", p.x, p.rows * C);
    check.input("mean", p.mean, C * float_bytes).input("scale", p.scale, C * float_bytes);
    check.input("beta", p.beta, C * float_bytes).output("y", p.y, p.rows * C);
    const Stores stores = check.finish(wanted);
    const std::int64_t row_bytes = C * (bytes_of(p.x.type) + bytes_of(p.y.type));
    for_each_range(pool, p.rows, rows_per_block(row_bytes),
                   [&](Range rows, std::int64_t) { kernels.normalize(p, rows, stores); });
}

std::int64_t batch_norm_grad_workspace(std::int64_t rows, std::int64_t channels) {
    return (2 * row_parts(rows, channels) + 3) * channels * float_bytes;
}

void batch_norm_grad(const RowKernels& kernels, const BatchNormGrad& p, ThreadPool& pool, Stores wanted) {
    const std::int64_t C = p.channels, parts = row_parts(p.rows, C);
    ProblemCheck check("batch_norm_grad");
    check.size("rows", p.rows).size("channels", C).same_type("dx", p.dx.type, p.x.type);
    check.input("dy", p.dy, p.rows * C).input("x", p.x, p.rows * C).input("gamma", p.gamma, C * float_bytes);
    check.input("mean", p.mean, C * float_bytes).input("rstd", p.rstd, C * float_bytes);
    check.output("dx", p.dx, p.rows * C).output("dgamma", p.dgamma, C * float_bytes);
    check.output("dbeta", p.dbeta, C * float_bytes);
    check.output("workspace", p.workspace, batch_norm_grad_workspace(p.rows, C));
    const Stores stores = check.finish(wanted);
    float *scale = p.workspace, *mean_dy = scale + C, *slope = mean_dy + C, *sums_dy = slope + C,
          *sums_dy_x = sums_dy + parts * C;
    for_each_part(pool, p.rows, C, [&](Range rows, Range columns, std::int64_t part) {
        kernels.batch_norm_grad_sums(p, rows, columns, sums_dy + part * C + columns.first,
                                     sums_dy_x + part * C + columns.first);
    });
    add_partial_sums(pool, sums_dy, parts, C, p.dbeta);
    add_partial_sums(pool, sums_dy_x, parts, C, p.dgamma);
    const float count = static_cast<float>(p.rows);
    for (std::int64_t c = 0; c < C; ++c) {
        scale[c] = p.rstd[c] * p.gamma[c];
        mean_dy[c] = p.dbeta[c] / count;
        slope[c] = p.rstd[c] * p.rstd[c] * (p.dgamma[c] / count);
        p.dgamma[c] *= p.rstd[c];
    }
    const std::int64_t row_bytes = C * (bytes_of(p.dy.type) + 2 * bytes_of(p.x.type));
    for_each_range(pool, p.rows, rows_per_block(row_bytes), [&](Range rows, std::int64_t) {
        kernels.batch_norm_grad(p, {.scale = scale, .mean_dy = mean_dy, .slope = slope}, rows, stores);
    });
}

}  // namespace mantissa::on_cpu
