// Movement: strided copies between parts of tensors, and counters.
#include <fmt/format.h>

#include "mantissa/device/bind/strided_axes.h"
#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

namespace {

int moved_axis(const Problem& problem) { return static_cast<int>(problem.attributes.integer("axis")); }

/// Queues the copies one after another.
Launch copied(const Problem& problem, Context& context) {
    struct Piece {
        SizedKernel made;
        std::size_t input, output;
    };
    const DType dtype = problem.inputs[0].dtype;
    std::vector<Piece> pieces;
    for (CopiedPiece& piece : copied_pieces(problem)) {
        codegen::ElementKernel kernel{.op = "copy",
                                      .extents = piece.shape.extents(),
                                      .operands = {{dtype, std::move(piece.from_strides), piece.from}},
                                      .output = {dtype, std::move(piece.to_strides), piece.to}};
        pieces.push_back({add_element_kernel(context, std::move(kernel)), piece.input, piece.output});
    }
    const std::int64_t zeros = problem.op.name == "pad" ? problem.outputs[0].bytes() : 0;
    return [&context, pieces, zeros](const Operands& operands) {
        queue_zeros(context, operands.outputs[0], static_cast<std::size_t>(zeros));
        for (const Piece& piece : pieces)
            launch(context, piece.made,
                   {address_of(operands.inputs[piece.input]), address_of(operands.outputs[piece.output])});
    };
}

/// x, part, start, or one for each index of axis 0. Where the output is x itself, only the part is touched.
Launch written_slice(const Problem& problem, Context& context) {
    const Type &x = problem.inputs[0], &part = problem.inputs[1];
    const int axis = moved_axis(problem);
    codegen::ElementKernel kernel{.op = "copy",
                                  .extents = part.shape.extents(),
                                  .operands = {{x.dtype, part.shape.strides()}},
                                  .output = {x.dtype, x.shape.strides()}};
    std::vector<std::int64_t> along_starts(part.shape.extents().size(), 0);
    if (problem.inputs[2].shape.rank() > 0) along_starts[0] = 1;
    kernel.operands.push_back({.dtype = DType::i32, .strides = std::move(along_starts)});
    const std::int64_t starts = x.shape[axis] - part.shape[axis] + 1;
    kernel.indexed = {.by = 1,
                      .pitch = x.shape.strides()[static_cast<std::size_t>(axis)],
                      .limit = starts,
                      .report = context.report(fmt::format(
                          "write_slice: a part of {} that begins at {{}} is outside an axis of {}",
                          part.shape[axis], x.shape[axis]))};
    return [&context, made = add_element_kernel(context, std::move(kernel)),
            bytes = static_cast<std::size_t>(x.bytes())](const Operands& operands) {
        if (operands.outputs[0] != operands.inputs[0])
            queue_copy(context, operands.outputs[0], operands.inputs[0], bytes);
        launch_reporting(context, made,
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
    const auto add = [&](const char* op, Launch (*prepare)(const Problem&, Context&)) {
        table[op].push_back(
            {.name = "strided copy", .prepare = [&context, prepare](const Problem& problem) {
                 return Expected(PreparedKernel{
                     .launch = prepare(problem, context),
                     // A concatenation copies each operand, a split each result.
                     .launches = static_cast<std::int64_t>(std::max(
                         problem.outputs.size(), problem.op.name == "concat" ? problem.inputs.size() : 1))});
             }});
    };
    for (const char* op : {"transpose", "broadcast", "slice", "split", "concat", "pad"}) add(op, copied);
    add("write_slice", written_slice);
    table["iota"].push_back(
        {.name = "counter", .prepare = [&context](const Problem& problem) -> Expected<PreparedKernel> {
             const DType dtype = problem.outputs[0].dtype;
             if (dtype != DType::i32 && dtype != DType::f32) return Unexpected{"it counts in i32 and f32"};
             return PreparedKernel{.launch = counted(problem, context)};
         }});
}

}  // namespace mantissa::on_cuda
