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

/// One level's kernel for operands of one type.
Kernel make_kernel(const Context& context, Isa isa, DType operands, std::string name) {
    const auto bytes = [isa, threads = context.pool.threads()](const Problem& problem) {
        return static_cast<std::int64_t>(workspace_bytes(contraction_of(problem), isa, threads));
    };
    const auto refuse = [isa, operands](const Problem& problem) {
        for (const Type& type : problem.inputs)
            if (type.dtype != operands)
                return fmt::format("it multiplies {}, got {}", mantissa::name_of(operands), type.text());
        if (problem.attributes.has("multiply"))
            return fmt::format("it multiplies {} as it is stored, asked for {}", mantissa::name_of(operands),
                               problem.attributes.word("multiply"));
        return refusal(contraction_of(problem), isa);
    };
    const auto prepare = [=, &pool = context.pool](const Problem& problem) -> Launch {
        return [contraction = contraction_of(problem), size = static_cast<std::size_t>(bytes(problem)), isa,
                &pool](const Operands& o) {
            contract(contraction,
                     {.a = o.inputs[0],
                      .b = o.inputs[1],
                      .out = o.outputs[0],
                      .bias = contraction.epilogue.bias ? o.inputs[2] : nullptr},
                     {o.workspace, size}, pool, isa);
        };
    };
    return {.name = std::move(name), .refusal = refuse, .prepare = prepare, .workspace = bytes};
}

}  // namespace

void add_contraction_kernels(KernelTable& table, const Context& context) {
    // Levels from the CPU's best to plain C++: the plan shows the first that can, and why those before it
    // cannot.
    for (int level = static_cast<int>(context.isa); level >= 0; --level) {
        const Isa isa = static_cast<Isa>(level);
        if (isa == Isa::amx) {  // tiles take 16 bits; FP32 is for the level below
            table["matmul"].push_back(make_kernel(context, isa, DType::bf16, "gemm bf16*bf16+f32 amx"));
            continue;
        }
        table["matmul"].push_back(
            make_kernel(context, isa, DType::f32, fmt::format("gemm f32*f32+f32 {}", name_of(isa))));
        const std::string_view unit = mantissa::cpu::name_of(bf16_unit(isa));
        table["matmul"].push_back(
            make_kernel(context, isa, DType::bf16,
                        unit.empty() ? fmt::format("gemm bf16*bf16+f32 {}, widened", name_of(isa))
                                     : fmt::format("gemm bf16*bf16+f32 {}", unit)));
    }
}

}  // namespace mantissa::cpu
