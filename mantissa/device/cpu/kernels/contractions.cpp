// Binds the contraction to `matmul`.
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/kernels/kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// One operand of a batch of matrices, stored densely.
MatrixLayout dense_layout(const Type& type, bool transposed) {
    const std::int64_t matrix = type.shape[-1] * type.shape[-2];
    return {.dtype = type.dtype,
            .transpose = transposed ? Transpose::yes : Transpose::no,
            .leading = type.shape[-1],
            .batch_stride = {0, matrix}};
}

Kernel make_kernel(const Context& context, const ContractionUnit& unit) {
    const auto contraction_of = [multiply = unit.multiply](const Problem& problem) {
        ContractionProblem contraction = contraction_problem(problem);
        contraction.multiply = multiply;
        return contraction;
    };
    const auto bytes = [=, isa = unit.isa, threads = context.pool.threads()](const Problem& problem) {
        const PreparedContraction contraction = prepare_contraction(contraction_of(problem), isa);
        return static_cast<std::int64_t>(contraction.workspace_bytes(threads));
    };
    const auto refuse = [=](const Problem& problem) {
        const std::string reason = unit.refusal(problem);
        return reason.empty() ? refusal(contraction_of(problem), unit.isa) : reason;
    };
    const auto prepare = [=, isa = unit.isa, &pool = context.pool](const Problem& problem) -> Launch {
        return [contraction = prepare_contraction(contraction_of(problem), isa), &pool](const Operands& o) {
            contract(contraction,
                     {.a = o.inputs[0],
                      .b = o.inputs[1],
                      .out = o.outputs[0],
                      .bias = contraction.problem.epilogue.bias ? o.inputs[2] : nullptr},
                     {o.workspace, contraction.workspace_bytes(pool.threads())}, pool);
        };
    };
    return {.name = unit.name, .refusal = refuse, .prepare = prepare, .workspace = bytes};
}

}  // namespace

ContractionProblem contraction_problem(const Problem& problem) {
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

std::string ContractionUnit::refusal(const Problem& problem) const {
    for (const Type& type : problem.inputs)
        if (is_floating(type.dtype) && type.shape.rank() > 0 && type.dtype != operands)
            return fmt::format("it multiplies {}, got {}", mantissa::name_of(operands), type.text());
    const bool as_tf32 = multiply == Multiply::tf32;
    const bool wants_tf32 = problem.attributes.has("multiply");
    if (wants_tf32 && !as_tf32)
        return fmt::format("it multiplies {} as it is stored, asked for {}", mantissa::name_of(operands),
                           problem.attributes.word("multiply"));
    if (as_tf32 && !wants_tf32) return "it multiplies f32 as tf32, which was not asked for";
    return as_tf32 ? tf32_refusal() : "";
}

/// NVIDIA's libraries run FP32 where it is 0; here nothing runs under the name of TF32.
std::string tf32_refusal() {
    const char* const value = std::getenv("NVIDIA_TF32_OVERRIDE");
    return value && std::string_view(value) == "0" ? "NVIDIA_TF32_OVERRIDE=0 forbids TF32" : "";
}

std::vector<ContractionUnit> contraction_units(Isa best) {
    // Levels from the CPU's best to plain C++: the plan shows the first that can, and why those before it
    // cannot.
    std::vector<ContractionUnit> units;
    for (int level = static_cast<int>(best); level >= 0; --level) {
        const Isa isa = static_cast<Isa>(level);
        const std::string_view unit = mantissa::on_cpu::name_of(bf16_unit(isa));
        const bool tiles = isa == Isa::amx;  // they take 16 bits; FP32 as it is stored is for the level below
        const auto add = [&](DType operands, Multiply multiply, std::string name) {
            units.push_back({isa, operands, multiply, "gemm " + std::move(name)});
        };
        if (!tiles) add(DType::f32, Multiply::as_stored, fmt::format("f32*f32+f32 {}", name_of(isa)));
        add(DType::f32, Multiply::tf32,
            fmt::format("tf32*tf32+f32 {}, {}", name_of(isa), tiles ? "three products of bf16" : "rounded"));
        add(DType::bf16, Multiply::as_stored,
            unit.empty() ? fmt::format("bf16*bf16+f32 {}, widened", name_of(isa))
                         : fmt::format("bf16*bf16+f32 {}", unit));
        add(DType::f16, Multiply::as_stored,
            fmt::format("f16*f16+f32 {}, {}", name_of(isa), tiles ? "four products of bf16" : "widened"));
    }
    return units;
}

void add_contraction_kernels(KernelTable& table, const Context& context) {
    for (const ContractionUnit& unit : contraction_units(context.isa))
        table["matmul"].push_back(make_kernel(context, unit));
}

}  // namespace mantissa::on_cpu
