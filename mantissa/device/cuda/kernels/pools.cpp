// Pools over images and their gradients: a thread an element.
#include <fmt/format.h>

#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/graph/pooling.h"

namespace mantissa::inline v0::on_cuda {

namespace {

struct NamedPool {
    const char* op;
    codegen::PoolResult makes;
};

constexpr NamedPool pools[] = {
    {"max_pool2d", codegen::PoolResult::maximum},
    {"max_pool2d_grad", codegen::PoolResult::gradient_of_maximum},
    {"average_pool2d", codegen::PoolResult::average},
    {"average_pool2d_grad", codegen::PoolResult::gradient_of_average},
    {"adaptive_average_pool2d", codegen::PoolResult::average},
    {"adaptive_average_pool2d_grad", codegen::PoolResult::gradient_of_average},
};

codegen::PoolKernel pool_of(const Problem& problem, codegen::PoolResult makes) {
    codegen::PoolKernel pool{.makes = makes, .dtype = problem.inputs[0].dtype};
    const Shape& image = pool.is_gradient() ? problem.outputs[0].shape : problem.inputs[0].shape;
    pool.images = image[0];
    pool.channels = image[3];
    pool.row_spans = pool_spans(problem.attributes, 0, image[1]);
    pool.column_spans = pool_spans(problem.attributes, 1, image[2]);
    pool.row_outputs = pool_outputs(pool.row_spans, image[1]);
    pool.column_outputs = pool_outputs(pool.column_spans, image[2]);
    if (pool.is_maximum()) pool.window_columns = problem.attributes.list("window")[1];
    return pool;
}

Expected<PreparedKernel> prepare_pool(Context& context, const NamedPool& named, const Problem& problem) {
    codegen::GridKernel kernel{.name = fmt::format("{}_{}", named.op, name_of(problem.inputs[0].dtype)),
                               .code = pool_of(problem, named.makes)};
    return PreparedKernel{.launch = launch_of(context, add_sized(context, std::move(kernel)))};
}

}  // namespace

void add_pool_kernels(KernelTable& table, Context& context) {
    for (const NamedPool& named : pools)
        table[named.op].push_back({.name = "pool " + context.unit,
                                   .arithmetic = {.unit = context.unit},
                                   .prepare = [&context, &named](const Problem& problem) {
                                       return prepare_pool(context, named, problem);
                                   }});
}

}  // namespace mantissa::on_cuda
