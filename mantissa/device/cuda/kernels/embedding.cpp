// Rows of a table by ids, and the table's gradient, whose rows are added up in the order of the tokens.
#include <fmt/format.h>

#include "mantissa/device/cuda/kernels/elements.h"

namespace mantissa::inline v0::on_cuda {

namespace {

std::int32_t report_of_ids(Context& context, std::int64_t rows) {
    return context.report(fmt::format("embedding: id {{}} is outside a table of {} rows", rows));
}

/// table [V, C], ids [...].
Launch rows_of_ids(const Problem& problem, Context& context) {
    const Shape &table = problem.inputs[0].shape, &ids = problem.inputs[1].shape;
    const std::int64_t tokens = ids.elements(), columns = table[1];
    const DType dtype = problem.inputs[0].dtype;
    codegen::ElementKernel kernel{
        .op = "copy",
        .extents = {tokens, columns},
        .operands = {{.dtype = dtype, .strides = {0, 1}}, {.dtype = DType::i32, .strides = {1, 0}}},
        .output = {.dtype = dtype, .strides = {columns, 1}}};
    kernel.indexed = {.by = 1,
                      .operand = 0,
                      .pitch = columns,
                      .limit = table[0],
                      .report = report_of_ids(context, table[0])};
    const std::int64_t blocks = codegen::blocks_of(codegen::GridKernel{.name = "", .code = kernel});
    return
        [&context, blocks, made = add_element_kernel(context, std::move(kernel))](const Operands& operands) {
            launch_reporting(context, *made, blocks,
                             {address_of(operands.inputs[0]), address_of(operands.inputs[1]),
                              address_of(operands.outputs[0])});
        };
}

/// dy [..., C], ids [...], perhaps an addend [rows, C].
OrReason<PreparedKernel> gradient_of_rows(const Problem& problem, Context& context) {
    const Type& table = problem.outputs[0];
    const std::int64_t tokens = problem.inputs[1].shape.elements();
    codegen::EmbeddingGradientKernel rows{.tokens = tokens,
                                          .columns = table.shape[1],
                                          .rows = table.shape[0],
                                          .dtype = table.dtype,
                                          .report = report_of_ids(context, table.shape[0])};
    if (tokens * 2 > std::int64_t{1} << 31) return NoValue{"it counts tokens in i32"};
    codegen::EmbeddingGradientKernel next{.next = true, .tokens = tokens};
    const codegen::GridKernel first{.name = "embedding_next", .code = next},
        second{.name = fmt::format("embedding_grad_{}", name_of(table.dtype)), .code = rows};
    const bool has_addend = problem.inputs.size() == 3;
    const auto queue = [&context, has_addend, bytes = static_cast<std::size_t>(table.bytes()),
                        next_blocks = codegen::blocks_of(first), next_kernel = context.modules.add(first),
                        blocks = codegen::blocks_of(second),
                        kernel = context.modules.add(second)](const Operands& operands) {
        if (!has_addend)
            queue_zeros(context, operands.outputs[0], bytes);
        else if (operands.outputs[0] != operands.inputs[2])
            queue_copy(context, operands.outputs[0], operands.inputs[2], bytes);
        const std::uint64_t ids = address_of(operands.inputs[1]), chain = address_of(operands.workspace);
        launch(context, *next_kernel, next_blocks, {ids, chain});
        launch_reporting(context, *kernel, blocks,
                         {address_of(operands.inputs[0]), ids, chain, address_of(operands.outputs[0])});
    };
    return PreparedKernel{.launch = queue,
                          .workspace = 2 * tokens * static_cast<std::int64_t>(sizeof(std::int32_t)),
                          .launches = 3};
}

}  // namespace

void add_embedding_kernels(KernelTable& table, Context& context) {
    table["embedding"].push_back({.name = "rows by ids", .prepare = [&context](const Problem& problem) {
                                      return OrReason(
                                          PreparedKernel{.launch = rows_of_ids(problem, context)});
                                  }});
    table["embedding_grad"].push_back(
        {.name = "chains of equal ids",
         .prepare = [&context](const Problem& problem) { return gradient_of_rows(problem, context); }});
}

}  // namespace mantissa::on_cuda
