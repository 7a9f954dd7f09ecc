// Drivers of pools: checks, and blocks of rows of pixels.
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

namespace {

std::int64_t image_elements(const PoolShape& s) { return s.images * s.rows * s.columns * s.channels; }
std::int64_t output_elements(const PoolShape& s) {
    return s.images * s.output_rows * s.output_columns * s.channels;
}

void check_shape(ProblemCheck& check, const PoolShape& s) {
    check.size("images", s.images).size("rows", s.rows).size("columns", s.columns);
    check.size("output_rows", s.output_rows).size("output_columns", s.output_columns);
    check.size("channels", s.channels);
    check.that(s.row_spans && s.column_spans, "the windows' spans are missing");
}

void check_gradient(ProblemCheck& check, const PoolShape& s) {
    check_shape(check, s);
    check.that(s.row_outputs && s.column_outputs, "the outputs of an image's elements are missing");
}

/// Rows of a size, of which a window of `rows` rows is read for each.
std::int64_t rows_of_block(std::int64_t elements, std::int64_t rows, DType type) {
    return rows_per_block(elements / rows * bytes_of(type));
}

}  // namespace

void max_pool(const RowKernels& kernels, const MaxPool& p, ThreadPool& pool, Stores wanted) {
    const PoolShape& s = p.shape;
    ProblemCheck check("max_pool");
    check_shape(check, s);
    check.size("window_columns", s.window_columns).same_type("y", p.y.type, p.x.type);
    check.input("x", p.x, image_elements(s)).output("y", p.y, output_elements(s));
    check.output("index", p.index, output_elements(s));
    const Stores stores = check.finish(wanted);
    const std::int64_t rows = s.images * s.output_rows;
    for_each_range(pool, rows, rows_of_block(image_elements(s), rows, p.x.type),
                   [&](Range range, std::int64_t) { kernels.max_pool(p, range, stores); });
}

void max_pool_grad(const RowKernels& kernels, const MaxPoolGrad& p, ThreadPool& pool, Stores wanted) {
    const PoolShape& s = p.shape;
    ProblemCheck check("max_pool_grad");
    check_gradient(check, s);
    check.size("window_columns", s.window_columns).same_type("dx", p.dx.type, p.dy.type);
    check.input("dy", p.dy, output_elements(s)).input("index", p.index, output_elements(s));
    check.output("dx", p.dx, image_elements(s));
    const Stores stores = check.finish(wanted);
    const std::int64_t rows = s.images * s.rows;
    for_each_range(pool, rows, rows_of_block(image_elements(s), rows, p.dx.type),
                   [&](Range range, std::int64_t) { kernels.max_pool_grad(p, range, stores); });
}

void average_pool(const RowKernels& kernels, const AveragePool& p, ThreadPool& pool, Stores wanted) {
    const PoolShape& s = p.shape;
    ProblemCheck check("average_pool");
    check_shape(check, s);
    check.same_type("y", p.y.type, p.x.type);
    check.input("x", p.x, image_elements(s)).output("y", p.y, output_elements(s));
    const Stores stores = check.finish(wanted);
    const std::int64_t rows = s.images * s.output_rows;
    for_each_range(pool, rows, rows_of_block(image_elements(s), rows, p.x.type),
                   [&](Range range, std::int64_t) { kernels.average_pool(p, range, stores); });
}

void average_pool_grad(const RowKernels& kernels, const AveragePoolGrad& p, ThreadPool& pool, Stores wanted) {
    const PoolShape& s = p.shape;
    ProblemCheck check("average_pool_grad");
    check_gradient(check, s);
    check.same_type("dx", p.dx.type, p.dy.type);
    check.input("dy", p.dy, output_elements(s)).output("dx", p.dx, image_elements(s));
    const Stores stores = check.finish(wanted);
    const std::int64_t rows = s.images * s.rows;
    for_each_range(pool, rows, rows_of_block(image_elements(s), rows, p.dx.type),
                   [&](Range range, std::int64_t) { kernels.average_pool_grad(p, range, stores); });
}

}  // namespace mantissa::on_cpu
