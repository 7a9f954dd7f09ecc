// Drivers of sums: the squared norm and the sums over columns.
#include <algorithm>
#include <cmath>

#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Rows that one block sums, and the columns whose sums it holds in L1 meanwhile (16 KB): a row of 3,072 is
/// read as it lies. In pieces of 1,024, whose next rows lie elsewhere, memory gave half its speed.
constexpr std::int64_t sum_rows = 256;
constexpr std::int64_t sum_columns = 4096;

}  // namespace

std::int64_t squared_norm_workspace(std::int64_t count) {
    return ceil_div(count, norm_block) * static_cast<std::int64_t>(sizeof(double));
}

void block_norms(const RowKernels& kernels, const SquaredNorm& p, ThreadPool& pool) {
    ProblemCheck check("squared_norm");
    check.size("count", p.count).input("x", p.x, p.count);
    check.output("workspace", p.workspace, squared_norm_workspace(p.count)).finish();
    static_assert(block_elements % norm_block == 0);
    for_each_range(pool, p.count, block_elements, [&](Range range, std::int64_t) {
        for (std::int64_t first = range.first; first < range.last; first += norm_block)
            p.workspace[first / norm_block] =
                kernels.squared_norm(p, {first, std::min(range.last, first + norm_block)});
    });
}

SquaredNormResult sum_of_block_norms(std::span<double> norms) {
    const std::size_t blocks = norms.size();
    for (std::size_t step = 1; step < blocks; step *= 2)
        for (std::size_t block = 0; block + step < blocks; block += 2 * step)
            norms[block] += norms[block + step];
    // The square of the largest FP32 number is 1e77: only an infinity or a NaN makes the sum one.
    return {norms[0], std::isfinite(norms[0])};
}

SquaredNormResult squared_norm(const RowKernels& kernels, const SquaredNorm& p, ThreadPool& pool) {
    block_norms(kernels, p, pool);
    return sum_of_block_norms({p.workspace, static_cast<std::size_t>(ceil_div(p.count, norm_block))});
}

std::int64_t column_sum_workspace(std::int64_t rows, std::int64_t channels) {
    return ceil_div(rows, sum_rows) * channels * float_bytes;
}

void column_sum(const RowKernels& kernels, const ColumnSum& p, ThreadPool& pool) {
    ProblemCheck check("column_sum");
    check.size("rows", p.rows).size("channels", p.channels).input("x", p.x, p.rows * p.channels);
    check.output("sum", p.sum, p.channels * float_bytes);
    check.output("workspace", p.workspace, column_sum_workspace(p.rows, p.channels)).finish();
    const std::int64_t row_blocks = ceil_div(p.rows, sum_rows);
    const std::int64_t column_blocks = ceil_div(p.channels, sum_columns);
    pool.for_each_block(row_blocks * column_blocks, [&](std::int64_t block, int) {
        const std::int64_t row_block = block / column_blocks;
        const std::int64_t column = block % column_blocks * sum_columns;
        const Range rows = {row_block * sum_rows, std::min(p.rows, (row_block + 1) * sum_rows)};
        const Range columns = {column, std::min(p.channels, column + sum_columns)};
        kernels.column_sum(p, rows, columns, p.workspace + row_block * p.channels + column);
    });
    add_partial_sums(pool, p.workspace, row_blocks, p.channels, p.sum);
}

}  // namespace mantissa::on_cpu
