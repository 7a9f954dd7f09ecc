// Movement: strided copies between parts of tensors, and counters.
#include <fmt/format.h>

#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// One strided copy between parts of two tensors.
struct CopiedPart {
    codegen::ElementKernel kernel;
    std::size_t input = 0, output = 0;
};

codegen::ElementKernel copy_kernel(DType dtype, const Shape& shape, std::vector<std::int64_t> from,
                                   std::vector<std::int64_t> to) {
    return {.op = "copy",
            .extents = shape.extents(),
            .operands = {{.dtype = dtype, .strides = std::move(from)}},
            .output = {.dtype = dtype, .strides = std::move(to)}};
}

/// Queues the copies one after another.
Launch launch_of_parts(Context& context, std::vector<CopiedPart> parts) {
    struct Loaded {
        std::shared_ptr<const GpuKernel> kernel;
        std::int64_t blocks;
        std::size_t input, output;
    };
    std::vector<Loaded> all;
    for (CopiedPart& part : parts) {
        const std::int64_t blocks = codegen::blocks_of(codegen::GridKernel{.name = "", .code = part.kernel});
        all.push_back({add_element_kernel(context, std::move(part.kernel)), blocks, part.input, part.output});
    }
    return [&context, all = std::move(all)](const Operands& operands) {
        for (const Loaded& part : all)
            launch(context, *part.kernel, part.blocks,
                   {address_of(operands.inputs[part.input]), address_of(operands.outputs[part.output])});
    };
}

int moved_axis(const Problem& problem) { return static_cast<int>(problem.attributes.integer("axis")); }

/// The elements before index `index` of an axis.
std::int64_t elements_before(const Type& whole, int axis, std::int64_t index) {
    return index * whole.shape.strides()[static_cast<std::size_t>(axis)];
}

Launch transposed(const Problem& problem, Context& context) {
    const std::vector<std::int64_t> dense = problem.inputs[0].shape.strides();
    std::vector<std::int64_t> from;
    for (const std::int64_t axis : problem.attributes.list("order"))
        from.push_back(dense[static_cast<std::size_t>(axis)]);
    const Shape& shape = problem.outputs[0].shape;
    return launch_of_parts(context,
                           {{copy_kernel(problem.inputs[0].dtype, shape, std::move(from), shape.strides())}});
}

Launch repeated(const Problem& problem, Context& context) {
    const Shape& shape = problem.outputs[0].shape;
    return launch_of_parts(
        context, {{copy_kernel(problem.inputs[0].dtype, shape, stretched(problem.inputs[0], shape).strides,
                               shape.strides())}});
}

Launch sliced(const Problem& problem, Context& context) {
    const Type &x = problem.inputs[0], &y = problem.outputs[0];
    CopiedPart part{copy_kernel(x.dtype, y.shape, x.shape.strides(), y.shape.strides())};
    part.kernel.operands[0].offset =
        elements_before(x, moved_axis(problem), problem.attributes.integer("start"));
    return launch_of_parts(context, {std::move(part)});
}

Launch split_up(const Problem& problem, Context& context) {
    const Type &x = problem.inputs[0], &y = problem.outputs[0];
    const int axis = moved_axis(problem);
    std::vector<CopiedPart> parts;
    for (std::size_t i = 0; i < problem.outputs.size(); ++i) {
        parts.push_back({copy_kernel(x.dtype, y.shape, x.shape.strides(), y.shape.strides()), 0, i});
        parts.back().kernel.operands[0].offset =
            elements_before(x, axis, static_cast<std::int64_t>(i) * y.shape[axis]);
    }
    return launch_of_parts(context, std::move(parts));
}

Launch put_together(const Problem& problem, Context& context) {
    const Type& y = problem.outputs[0];
    const int axis = moved_axis(problem);
    std::vector<CopiedPart> parts;
    std::int64_t before = 0;
    for (std::size_t i = 0; i < problem.inputs.size(); ++i) {
        const Shape& part = problem.inputs[i].shape;
        parts.push_back({copy_kernel(y.dtype, part, part.strides(), y.shape.strides()), i, 0});
        parts.back().kernel.output.offset = elements_before(y, axis, before);
        before += part[axis];
    }
    return launch_of_parts(context, std::move(parts));
}

Launch padded(const Problem& problem, Context& context) {
    const Type &x = problem.inputs[0], &y = problem.outputs[0];
    CopiedPart part{copy_kernel(x.dtype, x.shape, x.shape.strides(), y.shape.strides())};
    part.kernel.output.offset = elements_before(y, moved_axis(problem), problem.attributes.integer("before"));
    return [&context, copy = launch_of_parts(context, {std::move(part)}),
            bytes = static_cast<std::size_t>(y.bytes())](const Operands& operands) {
        queue_zeros(context, operands.outputs[0], bytes);
        copy(operands);
    };
}

/// x, part, start, or one for each index of axis 0. Where the output is x itself, only the part is touched.
Launch written_slice(const Problem& problem, Context& context) {
    const Type &x = problem.inputs[0], &part = problem.inputs[1];
    const int axis = moved_axis(problem);
    codegen::ElementKernel kernel = copy_kernel(x.dtype, part.shape, part.shape.strides(), x.shape.strides());
    std::vector<std::int64_t> along_starts(part.shape.extents().size(), 0);
    if (problem.inputs[2].shape.rank() > 0) along_starts[0] = 1;
    kernel.operands.push_back({.dtype = DType::i32, .strides = std::move(along_starts)});
    const std::int64_t starts = x.shape[axis] - part.shape[axis] + 1;
    kernel.indexed = {.by = 1,
                      .pitch = elements_before(x, axis, 1),
                      .limit = starts,
                      .report = context.report(fmt::format(
                          "write_slice: a part of {} that begins at {{}} is outside an axis of {}",
                          part.shape[axis], x.shape[axis]))};
    const std::int64_t blocks = codegen::blocks_of(codegen::GridKernel{.name = "", .code = kernel});
    return [&context, blocks, made = add_element_kernel(context, std::move(kernel)),
            bytes = static_cast<std::size_t>(x.bytes())](const Operands& operands) {
        if (operands.outputs[0] != operands.inputs[0])
            queue_copy(context, operands.outputs[0], operands.inputs[0], bytes);
        launch_reporting(context, *made, blocks,
                         {address_of(operands.inputs[1]), address_of(operands.inputs[2]),
                          address_of(operands.outputs[0])});
    };
}

Launch counted(const Problem& problem, Context& context) {
    const Type& y = problem.outputs[0];
    codegen::ElementKernel kernel{.op = "iota",
                                  .extents = y.shape.extents(),
                                  .operands = {},
                                  .output = {.dtype = y.dtype, .strides = y.shape.strides()}};
    kernel.counter.assign(y.shape.extents().size(), 0);
    kernel.counter[static_cast<std::size_t>(moved_axis(problem))] = 1;
    return launch_of_elements(context, std::move(kernel));
}

}  // namespace

void add_movement_kernels(KernelTable& table, Context& context) {
    const auto add = [&](const char* op, const char* name, Launch (*prepare)(const Problem&, Context&)) {
        table[op].push_back(
            {.name = name, .prepare = [&context, prepare](const Problem& problem) {
                 return Expected(PreparedKernel{
                     .launch = prepare(problem, context),
                     // A concatenation copies each operand, a split each result.
                     .launches = static_cast<std::int64_t>(std::max(
                         problem.outputs.size(), problem.op.name == "concat" ? problem.inputs.size() : 1))});
             }});
    };
    add("transpose", "strided copy", transposed);
    add("broadcast", "strided copy", repeated);
    add("slice", "strided copy", sliced);
    add("split", "strided copy", split_up);
    add("concat", "strided copy", put_together);
    add("pad", "strided copy", padded);
    add("write_slice", "strided copy", written_slice);
    table["iota"].push_back(
        {.name = "counter", .prepare = [&context](const Problem& problem) -> Expected<PreparedKernel> {
             const DType dtype = problem.outputs[0].dtype;
             if (dtype != DType::i32 && dtype != DType::f32) return Unexpected{"it counts in i32 and f32"};
             return PreparedKernel{.launch = counted(problem, context)};
         }});
}

}  // namespace mantissa::on_cuda
