// Binds the contraction to `matmul`.
#include <fmt/format.h>

#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/kernels/kernels.h"

namespace mantissa::cpu {

namespace {

/// One operand of a batch of matrices, stored densely.
MatrixLayout dense_layout(const Type& type, bool transposed) {
    const std::int64_t matrix = type.shape[-1] * type.shape[-2];
    return {.dtype = type.dtype,
            .transpose = transposed ? Transpose::yes : Transpose::no,
            .leading = type.shape[-1],
            .batch_stride = {0, matrix}};
}

ContractionProblem contraction_of(const Problem& problem) {
    const Type &a = problem.inputs[0], &y = problem.outputs[0];
    const bool transpose_a = problem.attributes.flag("transpose_a");
    ContractionProblem contraction{.m = y.shape[-2], .n = y.shape[-1], .k = a.shape[transpose_a ? -2 : -1]};
    for (int axis = 0; axis < y.shape.rank() - 2; ++axis) contraction.batch[1] *= y.shape[axis];
    contraction.a = dense_layout(a, transpose_a);
    contraction.b = dense_layout(problem.inputs[1], problem.attributes.flag("transpose_b"));
    contraction.out = dense_layout(y, false);
    if (problem.inputs.size() == 3) {
        contraction.epilogue.bias = true;
        contraction.epilogue.bias_dtype = problem.inputs[2].dtype;
    }
    return contraction;
}

}  // namespace

void add_contraction_kernels(KernelTable& table, const Context& context) {
    // Levels from the CPU's best to plain C++: the plan shows the first that can, and why those before it
    // cannot.
    for (int level = static_cast<int>(context.isa); level >= 0; --level) {
        const Isa isa = static_cast<Isa>(level);
        const auto bytes = [isa, threads = context.pool.threads()](const Problem& problem) {
            return static_cast<std::int64_t>(workspace_bytes(contraction_of(problem), isa, threads));
        };
        table["matmul"].push_back(
            {.name = fmt::format("gemm f32*f32+f32 {}", name_of(isa)),
             .refusal = [isa](const Problem& problem) { return refusal(contraction_of(problem), isa); },
             .prepare = [=](const Problem& problem) -> Launch {
                 return
                     [contraction = contraction_of(problem), size = static_cast<std::size_t>(bytes(problem)),
                      isa, &pool = context.pool](const Operands& operands) {
                         contract(contraction,
                                  {.a = operands.inputs[0],
                                   .b = operands.inputs[1],
                                   .out = operands.outputs[0],
                                   .bias = contraction.epilogue.bias ? operands.inputs[2] : nullptr},
                                  {operands.workspace, size}, pool, isa);
                     };
             },
             .workspace = bytes});
    }
}

}  // namespace mantissa::cpu
