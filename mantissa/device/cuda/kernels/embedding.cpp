// Rows of a table by ids, and the table's gradient, whose rows are added up in the order of the tokens.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cuda/kernels/kernels.h"

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
    return [&context, made = add_element_kernel(context, std::move(kernel))](const Operands& operands) {
        launch_reporting(context, *made.kernel, made.blocks,
                         {address_of(operands.inputs[0]), address_of(operands.inputs[1]),
                          address_of(operands.outputs[0])});
    };
}

/// One block adds up the rows of an id in a stretch, and one adds up all stretches: as many rows as
/// stretches, for an id that is everywhere. Each stretch has a word for each row of the table.
std::int64_t tokens_of_stretch(std::int64_t tokens) {
    constexpr std::int64_t least = 32, max_stretches = 128;
    return std::max(least, ceil_div(tokens, max_stretches));
}

/// dy [..., C], ids [...], perhaps an addend [rows, C].
Expected<PreparedKernel> gradient_of_rows(const Problem& problem, Context& context) {
    const Type& table = problem.outputs[0];
    const std::int64_t tokens = problem.inputs[1].shape.elements();
    if (tokens >= std::int64_t{1} << 31) return Unexpected{"it counts tokens in i32"};
    using Kernel = codegen::EmbeddingGradientKernel;
    Kernel code{.tokens = tokens,
                .columns = table.shape[1],
                .rows = table.shape[0],
                .of_stretch = tokens_of_stretch(tokens),
                .dtype = table.dtype,
                .report = report_of_ids(context, table.shape[0])};
    const auto stage = [&](const char* name, Kernel::Stage which) {
        code.stage = which;
        return add_sized(context, {.name = fmt::format("{}_{}", name, name_of(table.dtype)), .code = code});
    };
    const SizedKernel firsts = stage("embedding_firsts", Kernel::Stage::firsts),
                      stretches = stage("embedding_stretches", Kernel::Stage::stretches),
                      rows = stage("embedding_rows", Kernel::Stage::rows);
    const bool has_addend = problem.inputs.size() == 3;
    const std::int64_t firsts_bytes =
                           code.rows * code.stretches() * static_cast<std::int64_t>(sizeof(std::int32_t)),
                       sums_at = align_up(firsts_bytes, 256);
    const auto queue = [&context, has_addend, bytes = static_cast<std::size_t>(table.bytes()), firsts,
                        stretches, rows, firsts_bytes, sums_at](const Operands& operands) {
        if (!has_addend)
            queue_zeros(context, operands.outputs[0], bytes);
        else if (operands.outputs[0] != operands.inputs[2])
            queue_copy(context, operands.outputs[0], operands.inputs[2], bytes);
        queue_zeros(context, operands.workspace, static_cast<std::size_t>(firsts_bytes));
        const std::uint64_t ids = address_of(operands.inputs[1]), first = address_of(operands.workspace),
                            sums = address_of(operands.workspace + sums_at);
        launch_reporting(context, *firsts.kernel, firsts.blocks, {ids, first});
        launch(context, *stretches.kernel, stretches.blocks,
               {address_of(operands.inputs[0]), ids, first, sums});
        launch(context, *rows.kernel, rows.blocks, {sums, ids, first, address_of(operands.outputs[0])});
    };
    return PreparedKernel{
        .launch = queue,
        .workspace = sums_at + tokens * code.columns * static_cast<std::int64_t>(size_of(code.sums())),
        .launches = 5};
}

}  // namespace

void add_embedding_kernels(KernelTable& table, Context& context) {
    table["embedding"].push_back({.name = "rows by ids", .prepare = [&context](const Problem& problem) {
                                      return Expected(
                                          PreparedKernel{.launch = rows_of_ids(problem, context)});
                                  }});
    table["embedding_grad"].push_back(
        {.name = "rows of equal ids",
         .prepare = [&context](const Problem& problem) { return gradient_of_rows(problem, context); }});
}

}  // namespace mantissa::on_cuda
