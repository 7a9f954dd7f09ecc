// Binds pools, batch normalisation, relu's gradient, and sums over pixels to their operations.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "mantissa/device/cpu/kernels/row_bindings.h"
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/graph/pooling.h"

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// A pool's windows, with the memory that a `PoolShape` points into.
struct Windows {
    std::vector<PoolSpan> rows, columns;
    std::vector<PoolOutputs> row_outputs, column_outputs;
    PoolShape shape;
};

std::shared_ptr<const Windows> windows_of(const Attributes& attributes, const Shape& image) {
    const auto windows = std::make_shared<Windows>();
    Windows& w = *windows;
    w.rows = pool_spans(attributes, 0, image[1]);
    w.columns = pool_spans(attributes, 1, image[2]);
    w.row_outputs = pool_outputs(w.rows, image[1]);
    w.column_outputs = pool_outputs(w.columns, image[2]);
    w.shape = {.images = image[0],
               .rows = image[1],
               .columns = image[2],
               .output_rows = static_cast<std::int64_t>(w.rows.size()),
               .output_columns = static_cast<std::int64_t>(w.columns.size()),
               .channels = image[3],
               .row_spans = w.rows.data(),
               .column_spans = w.columns.data(),
               .row_outputs = w.row_outputs.data(),
               .column_outputs = w.column_outputs.data(),
               .window_columns = attributes.has("window") ? attributes.list("window")[1] : 0};
    return windows;
}

Launch prepare_max_pool(const Problem& problem, const BoundRows& b) {
    return [b, windows = windows_of(problem.attributes, problem.inputs[0].shape)](const Operands& o) {
        max_pool(
            b.kernels,
            {.shape = windows->shape, .x = b.in(o, 0), .y = b.out(o, 0), .index = o.output<std::uint8_t>(1)},
            b.pool);
    };
}

/// dy, index.
Launch prepare_max_pool_grad(const Problem& problem, const BoundRows& b) {
    return [b, windows = windows_of(problem.attributes, problem.outputs[0].shape)](const Operands& o) {
        max_pool_grad(
            b.kernels,
            {.shape = windows->shape, .dy = b.in(o, 0), .index = o.input<std::uint8_t>(1), .dx = b.out(o, 0)},
            b.pool);
    };
}

Launch prepare_average_pool(const Problem& problem, const BoundRows& b) {
    return [b, windows = windows_of(problem.attributes, problem.inputs[0].shape)](const Operands& o) {
        average_pool(b.kernels, {.shape = windows->shape, .x = b.in(o, 0), .y = b.out(o, 0)}, b.pool);
    };
}

Launch prepare_average_pool_grad(const Problem& problem, const BoundRows& b) {
    return [b, windows = windows_of(problem.attributes, problem.outputs[0].shape)](const Operands& o) {
        average_pool_grad(b.kernels, {.shape = windows->shape, .dy = b.in(o, 0), .dx = b.out(o, 0)}, b.pool);
    };
}

float epsilon_of(const Problem& problem) { return static_cast<float>(problem.attributes.number("epsilon")); }

std::int64_t moments_bytes(const Problem& problem) {
    const Shape& x = problem.inputs[0].shape;
    return moments_workspace(x.elements() / x[-1], x[-1]);
}

Launch prepare_moments(const Problem& problem, const BoundRows& b) {
    return [b, eps = epsilon_of(problem)](const Operands& o) {
        moments(b.kernels,
                {.rows = b.rows,
                 .channels = b.columns,
                 .eps = eps,
                 .x = b.in(o, 0),
                 .mean = o.output<float>(0),
                 .variance = o.output<float>(1),
                 .rstd = o.output<float>(2),
                 .workspace = reinterpret_cast<float*>(o.workspace)},
                b.pool);
    };
}

std::int64_t batch_norm_bytes(const Problem& problem) {
    return moments_bytes(problem) + problem.inputs[1].bytes();
}

/// x, gamma, beta -> y, mean, variance, 1/sigma.
Launch prepare_batch_norm(const Problem& problem, const BoundRows& b) {
    return [b, eps = epsilon_of(problem)](const Operands& o) {
        float* scale = reinterpret_cast<float*>(o.workspace);
        moments(b.kernels,
                {.rows = b.rows,
                 .channels = b.columns,
                 .eps = eps,
                 .x = b.in(o, 0),
                 .mean = o.output<float>(1),
                 .variance = o.output<float>(2),
                 .rstd = o.output<float>(3),
                 .workspace = scale + b.columns},
                b.pool);
        for (std::int64_t i = 0; i < b.columns; ++i) scale[i] = o.output<float>(3)[i] * o.input<float>(1)[i];
        normalize(b.kernels,
                  {.rows = b.rows,
                   .channels = b.columns,
                   .x = b.in(o, 0),
                   .mean = o.output<float>(1),
                   .scale = scale,
                   .beta = o.input<float>(2),
                   .y = b.out(o, 0)},
                  b.pool);
    };
}

/// x, gamma, beta, mean, variance.
Launch prepare_normalize(const Problem& problem, const BoundRows& b) {
    return [b, eps = epsilon_of(problem)](const Operands& o) {
        float* scale = reinterpret_cast<float*>(o.workspace);
        for (std::int64_t i = 0; i < b.columns; ++i)
            scale[i] = 1 / std::sqrt(o.input<float>(4)[i] + eps) * o.input<float>(1)[i];
        normalize(b.kernels,
                  {.rows = b.rows,
                   .channels = b.columns,
                   .x = b.in(o, 0),
                   .mean = o.input<float>(3),
                   .scale = scale,
                   .beta = o.input<float>(2),
                   .y = b.out(o, 0)},
                  b.pool);
    };
}

/// Rows that are added one after another in FP32: more than the pixels of any image that is averaged whole.
constexpr std::int64_t max_pixels = 4096;

/// A sum over neighbouring axes between others, as of an image's pixels: x [outer, pixels, C] -> [outer, C].
struct PixelSum {
    std::int64_t outer = 1, pixels = 1, channels = 1;
};

/// The sum's axes; nothing unless they are neighbours.
std::optional<PixelSum> pixel_sum_of(const Problem& problem) {
    const Shape& x = problem.inputs[0].shape;
    std::vector<std::int64_t> axes = problem.attributes.list("axes");
    std::sort(axes.begin(), axes.end());
    if (axes.empty() || axes.front() == 0 || axes.back() == x.rank() - 1) return std::nullopt;
    if (axes.back() - axes.front() + 1 != static_cast<std::int64_t>(axes.size())) return std::nullopt;
    PixelSum sum;
    for (int axis = 0; axis < x.rank(); ++axis)
        (axis < axes.front() ? sum.outer : axis <= axes.back() ? sum.pixels : sum.channels) *= x[axis];
    return sum;
}

std::string refuse_unless_pixels(const Problem& problem) {
    const std::optional<PixelSum> sum = pixel_sum_of(problem);
    if (!sum) return "it sums over neighbouring axes between others";
    if (problem.outputs[0].dtype != DType::f32)
        return fmt::format("it writes f32, not {}", name_of(problem.outputs[0].dtype));
    if (sum->pixels > max_pixels)
        return fmt::format("it adds up to {} terms in a row, not {}", max_pixels, sum->pixels);
    return refuse_empty_or_wide(problem);
}

Launch prepare_pixel_sum(const Problem& problem, const BoundRows& b) {
    return [b, sum = *pixel_sum_of(problem), dtype = problem.inputs[0].dtype](const Operands& o) {
        constexpr std::int64_t columns_at_once = 1024;
        const std::int64_t C = sum.channels, parts = ceil_div(C, columns_at_once);
        const std::int64_t image_bytes = sum.pixels * C * static_cast<std::int64_t>(size_of(dtype));
        b.pool.for_each_block(sum.outer * parts, [&](std::int64_t block, int) {
            const std::int64_t image = block / parts, first = block % parts * columns_at_once;
            ColumnSum part;
            part.rows = sum.pixels;
            part.channels = C;
            part.x = {o.inputs[0] + image * image_bytes, dtype};
            b.kernels.column_sum(part, {0, sum.pixels}, {first, std::min(C, first + columns_at_once)},
                                 o.output<float>(0) + image * C + first);
        });
    };
}

Launch prepare_running_average(const Problem& problem, const BoundRows&) {
    const double momentum = problem.attributes.number("momentum");
    return
        [kept = static_cast<float>(1 - momentum), added = static_cast<float>(momentum),
         channels = problem.inputs[0].shape.elements(),
         rows = problem.inputs[1].shape.elements() / problem.inputs[0].shape.elements()](const Operands& o) {
            const float *before = o.input<float>(0), *statistics = o.input<float>(1);
            float* const average = o.output<float>(0);
            for (std::int64_t c = 0; c < channels; ++c) {
                float value = before[c];
                for (std::int64_t row = 0; row < rows; ++row)
                    value = value * kept + statistics[row * channels + c] * added;
                average[c] = value;
            }
        };
}

const RowBinding bindings_of_images[] = {
    {"max_pool2d", prepare_max_pool},
    {"max_pool2d_grad", prepare_max_pool_grad},
    {"average_pool2d", prepare_average_pool},
    {"average_pool2d_grad", prepare_average_pool_grad},
    {"adaptive_average_pool2d", prepare_average_pool},
    {"adaptive_average_pool2d_grad", prepare_average_pool_grad},
    {"sum", prepare_pixel_sum, 0, refuse_unless_pixels},
    {"running_average", prepare_running_average},
    {"moments", prepare_moments, 0, refuse_empty_or_wide, moments_bytes},
    {"batch_norm", prepare_batch_norm, 0, refuse_empty_or_wide, batch_norm_bytes, {1, 2}},
    {"normalize",
     prepare_normalize,
     0,
     refuse_empty_or_wide,
     [](const Problem& problem) { return problem.inputs[1].bytes(); },
     {1, 2, 3, 4}},
    {"batch_norm_grad",
     prepare_norm_grad<BatchNormGrad, batch_norm_grad>,
     1,
     refuse_empty_or_wide,
     [](const Problem& problem) {
         const Shape& x = problem.inputs[1].shape;
         return batch_norm_grad_workspace(x.elements() / x[-1], x[-1]);
     },
     {2, 3, 4}},
};

}  // namespace

void add_image_kernels(KernelTable& table, const Context& context) {
    add_bindings(table, context, fmt::format("images {}", row_kernels(context.isa).name), bindings_of_images);
}

}  // namespace mantissa::on_cpu
