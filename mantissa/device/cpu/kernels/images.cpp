// Binds pools, batch normalisation, relu's gradient, and sums over pixels to their operations.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/rows/image_kernels.h"
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"
#include "mantissa/graph/pooling.h"

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct BoundImages {
    const ImageKernels& kernels;
    const RowKernels& rows;
    ThreadPool& pool;
};

/// Where a pool's windows lie, with the memory that a `PoolShape` points into.
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

Launch prepare_max_pool(const Problem& problem, const BoundImages& b) {
    return [b, dtype = problem.inputs[0].dtype,
            windows = windows_of(problem.attributes, problem.inputs[0].shape)](const Operands& o) {
        max_pool(b.kernels,
                 {.shape = windows->shape,
                  .x = {o.inputs[0], dtype},
                  .y = {o.outputs[0], dtype},
                  .index = o.output<std::uint8_t>(1)},
                 b.pool);
    };
}

/// dy, index.
Launch prepare_max_pool_grad(const Problem& problem, const BoundImages& b) {
    return [b, dtype = problem.inputs[0].dtype,
            windows = windows_of(problem.attributes, problem.outputs[0].shape)](const Operands& o) {
        max_pool_grad(b.kernels,
                      {.shape = windows->shape,
                       .dy = {o.inputs[0], dtype},
                       .index = o.input<std::uint8_t>(1),
                       .dx = {o.outputs[0], dtype}},
                      b.pool);
    };
}

Launch prepare_average_pool(const Problem& problem, const BoundImages& b) {
    return [b, dtype = problem.inputs[0].dtype,
            windows = windows_of(problem.attributes, problem.inputs[0].shape)](const Operands& o) {
        average_pool(b.kernels,
                     {.shape = windows->shape, .x = {o.inputs[0], dtype}, .y = {o.outputs[0], dtype}},
                     b.pool);
    };
}

Launch prepare_average_pool_grad(const Problem& problem, const BoundImages& b) {
    return [b, dtype = problem.inputs[0].dtype,
            windows = windows_of(problem.attributes, problem.outputs[0].shape)](const Operands& o) {
        average_pool_grad(b.kernels,
                          {.shape = windows->shape, .dy = {o.inputs[0], dtype}, .dx = {o.outputs[0], dtype}},
                          b.pool);
    };
}

/// dy, y.
Launch prepare_relu_grad(const Problem& problem, const BoundImages& b) {
    return [b, count = problem.inputs[1].shape.elements(), dy = problem.inputs[0].dtype,
            y = problem.inputs[1].dtype](const Operands& o) {
        relu_grad(b.kernels,
                  {.count = count, .dy = {o.inputs[0], dy}, .y = {o.inputs[1], y}, .dx = {o.outputs[0], y}},
                  b.pool);
    };
}

/// The sizes of a problem whose operand `x` is [rows, C].
struct Channels {
    std::int64_t rows = 0, channels = 0;
    float eps = 0;
};

Channels channels_of(const Problem& problem, std::size_t x) {
    const Shape& shape = problem.inputs[x].shape;
    return {.rows = shape.elements() / shape[-1],
            .channels = shape[-1],
            .eps = static_cast<float>(problem.attributes.number("epsilon"))};
}

std::int64_t moments_bytes(const Problem& problem) {
    const Channels c = channels_of(problem, 0);
    return moments_workspace(c.rows, c.channels);
}

Launch prepare_moments(const Problem& problem, const BoundImages& b) {
    return [b, c = channels_of(problem, 0), dtype = problem.inputs[0].dtype](const Operands& o) {
        moments(b.kernels,
                {.rows = c.rows,
                 .channels = c.channels,
                 .eps = c.eps,
                 .x = {o.inputs[0], dtype},
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
Launch prepare_batch_norm(const Problem& problem, const BoundImages& b) {
    return [b, c = channels_of(problem, 0), dtype = problem.inputs[0].dtype](const Operands& o) {
        float* scale = reinterpret_cast<float*>(o.workspace);
        moments(b.kernels,
                {.rows = c.rows,
                 .channels = c.channels,
                 .eps = c.eps,
                 .x = {o.inputs[0], dtype},
                 .mean = o.output<float>(1),
                 .variance = o.output<float>(2),
                 .rstd = o.output<float>(3),
                 .workspace = scale + c.channels},
                b.pool);
        for (std::int64_t i = 0; i < c.channels; ++i) scale[i] = o.output<float>(3)[i] * o.input<float>(1)[i];
        normalize(b.kernels,
                  {.rows = c.rows,
                   .channels = c.channels,
                   .x = {o.inputs[0], dtype},
                   .mean = o.output<float>(1),
                   .scale = scale,
                   .beta = o.input<float>(2),
                   .y = {o.outputs[0], dtype}},
                  b.pool);
    };
}

/// x, gamma, beta, mean, variance.
Launch prepare_normalize(const Problem& problem, const BoundImages& b) {
    return [b, c = channels_of(problem, 0), dtype = problem.inputs[0].dtype](const Operands& o) {
        float* scale = reinterpret_cast<float*>(o.workspace);
        for (std::int64_t i = 0; i < c.channels; ++i)
            scale[i] = 1 / std::sqrt(o.input<float>(4)[i] + c.eps) * o.input<float>(1)[i];
        normalize(b.kernels,
                  {.rows = c.rows,
                   .channels = c.channels,
                   .x = {o.inputs[0], dtype},
                   .mean = o.input<float>(3),
                   .scale = scale,
                   .beta = o.input<float>(2),
                   .y = {o.outputs[0], dtype}},
                  b.pool);
    };
}

/// dy, x, gamma, mean, 1/sigma.
Launch prepare_batch_norm_grad(const Problem& problem, const BoundImages& b) {
    return [b, c = channels_of(problem, 1), dy = problem.inputs[0].dtype,
            x = problem.inputs[1].dtype](const Operands& o) {
        batch_norm_grad(b.kernels,
                        {.rows = c.rows,
                         .channels = c.channels,
                         .dy = {o.inputs[0], dy},
                         .x = {o.inputs[1], x},
                         .gamma = o.input<float>(2),
                         .mean = o.input<float>(3),
                         .rstd = o.input<float>(4),
                         .dx = {o.outputs[0], x},
                         .dgamma = o.output<float>(1),
                         .dbeta = o.output<float>(2),
                         .workspace = reinterpret_cast<float*>(o.workspace)},
                        b.pool);
    };
}

/// Rows that are added one after another in FP32: more than the pixels of any image that is averaged whole.
constexpr std::int64_t max_pixels = 4096;

/// A sum over neighbouring axes between others, as of an image's pixels: x [outer, pixels, C] -> [outer, C].
struct PixelSum {
    std::int64_t outer = 1, pixels = 1, channels = 1;
};

/// Nothing unless the axes are such.
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
    return "";
}

Launch prepare_pixel_sum(const Problem& problem, const BoundImages& b) {
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
            b.rows.column_sum(part, {0, sum.pixels}, {first, std::min(C, first + columns_at_once)},
                              o.output<float>(0) + image * C + first);
        });
    };
}

Launch prepare_running_average(const Problem& problem, const BoundImages&) {
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

std::int64_t no_workspace(const Problem&) { return 0; }
std::string refuse_nothing(const Problem&) { return ""; }

struct Binding {
    const char* op;
    Launch (*prepare)(const Problem&, const BoundImages&);
    std::int64_t (*workspace)(const Problem&) = no_workspace;
    /// Operands that it reads in FP32 only: scales and statistics.
    std::vector<std::size_t> f32_inputs = {};
    std::string (*refuse)(const Problem&) = refuse_nothing;

    std::string refusal(const Problem& problem) const {
        if (std::string reason = refuse(problem); !reason.empty()) return reason;
        for (std::size_t i : f32_inputs)
            if (problem.inputs[i].dtype != DType::f32)
                return fmt::format("operand {} must be f32, got {}", i, problem.inputs[i].text());
        for (std::span<const Type> types : {problem.inputs, problem.outputs})
            for (const Type& type : types) {
                if (type.dtype == DType::f64)
                    return fmt::format("it is written for f32, bf16 and f16, got {}", type.text());
                if (type.shape.elements() == 0) return "it needs one element or more";
            }
        return "";
    }
};

const Binding bindings[] = {
    {"max_pool2d", prepare_max_pool},
    {"max_pool2d_grad", prepare_max_pool_grad},
    {"average_pool2d", prepare_average_pool},
    {"average_pool2d_grad", prepare_average_pool_grad},
    {"adaptive_average_pool2d", prepare_average_pool},
    {"adaptive_average_pool2d_grad", prepare_average_pool_grad},
    {"relu_grad", prepare_relu_grad},
    {"sum", prepare_pixel_sum, no_workspace, {}, refuse_unless_pixels},
    {"running_average", prepare_running_average},
    {"moments", prepare_moments, moments_bytes},
    {"batch_norm", prepare_batch_norm, batch_norm_bytes, {1, 2}},
    {"normalize",
     prepare_normalize,
     [](const Problem& problem) { return problem.inputs[1].bytes(); },
     {1, 2, 3, 4}},
    {"batch_norm_grad",
     prepare_batch_norm_grad,
     [](const Problem& problem) {
         const Channels c = channels_of(problem, 1);
         return batch_norm_grad_workspace(c.rows, c.channels);
     },
     {2, 3, 4}},
};

}  // namespace

void add_image_kernels(KernelTable& table, const Context& context) {
    const ImageKernels& kernels = image_kernels(context.isa);
    const RowKernels& rows = row_kernels(context.isa);
    for (const Binding& binding : bindings) {
        const auto prepare = [&kernels, &rows, &binding,
                              &pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
            if (std::string reason = binding.refusal(problem); !reason.empty()) return Unexpected{reason};
            return PreparedKernel{.launch = binding.prepare(problem, {kernels, rows, pool}),
                                  .workspace = binding.workspace(problem)};
        };
        Kernel kernel;  // GCC 12 warns of members that are named and initialised in place here
        kernel.name = fmt::format("images {}", kernels.name);
        kernel.prepare = prepare;
        table[binding.op].push_back(std::move(kernel));
    }
}

}  // namespace mantissa::on_cpu
