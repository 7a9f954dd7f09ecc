// Binds attention and its gradient.
#include <fmt/format.h>

#include "mantissa/device/cpu/attention/attention.h"
#include "mantissa/device/cpu/attention/kept.h"
#include "mantissa/device/cpu/kernels/kernels.h"

namespace mantissa::cpu {

namespace {

/// q and k stand beside one another among the operands, q at `first`.
AttentionSize size_of(const Problem& problem, std::size_t first) {
    const Type &q = problem.inputs[first], &k = problem.inputs[first + 1];
    return {.heads = q.shape[0] * q.shape[1],
            .queries = q.shape[2],
            .keys = k.shape[2],
            .head_size = q.shape[3],
            .causal = problem.attributes.flag("causal"),
            .scale = static_cast<float>(problem.attributes.number("scale")),
            .dtype = q.dtype};
}

std::string refusal(const Problem& problem, std::size_t first, DType operands,
                    const AttentionKernels& kernels) {
    const Type& q = problem.inputs[first];
    if (q.dtype != operands)
        return fmt::format("it is written for {}, got {}", mantissa::name_of(operands), q.text());
    if (q.shape.elements() == 0) return "it needs one element or more";
    return refusal(kernels, size_of(problem, first));
}

Kernel forward_kernel(const Context& context, const AttentionKernels& kernels) {
    const auto prepare = [&kernels, &pool = context.pool](const Problem& problem) -> Launch {
        return [&kernels, &pool, size = size_of(problem, 0)](const Operands& o) {
            attention(kernels,
                      {.size = size,
                       .q = o.inputs[0],
                       .k = o.inputs[1],
                       .v = o.inputs[2],
                       .o = o.outputs[0],
                       .lse = o.output<float>(1),
                       .workspace = reinterpret_cast<float*>(o.workspace)},
                      pool);
        };
    };
    const auto workspace = [&kernels, threads = context.pool.threads()](const Problem& problem) {
        return attention_workspace(kernels, size_of(problem, 0), threads);
    };
    return {.name = {}, .prepare = prepare, .workspace = workspace};
}

/// do, q, k, v, o, log-sum-exp.
Kernel gradient_kernel(const Context& context, const AttentionKernels& kernels) {
    const auto prepare = [&kernels, &pool = context.pool](const Problem& problem) -> Launch {
        return [&kernels, &pool, size = size_of(problem, 1)](const Operands& o) {
            attention_grad(kernels,
                           {.size = size,
                            .d_o = o.inputs[0],
                            .q = o.inputs[1],
                            .k = o.inputs[2],
                            .v = o.inputs[3],
                            .o = o.inputs[4],
                            .lse = o.input<float>(5),
                            .dq = o.outputs[0],
                            .dk = o.outputs[1],
                            .dv = o.outputs[2],
                            .workspace = reinterpret_cast<float*>(o.workspace)},
                           pool);
        };
    };
    const auto workspace = [&kernels, threads = context.pool.threads()](const Problem& problem) {
        return attention_grad_workspace(kernels, size_of(problem, 1), threads);
    };
    return {.name = {}, .prepare = prepare, .workspace = workspace};
}

KeptAttention kept_of(const Problem& problem) {
    const Shape &q = problem.inputs[0].shape, &k = problem.inputs[1].shape;
    return {.heads = q[0] * q[1],
            .queries = q[2],
            .keys = k[2],
            .head_size = q[3],
            .dtype = problem.inputs[0].dtype,
            .scale = static_cast<float>(problem.attributes.number("scale"))};
}

/// q, k, v, positions.
Kernel kept_kernel(const Context& context) {
    const auto refuse = [](const Problem& problem) -> std::string {
        // Above so many, products of matrices read keys and values fewer times.
        constexpr std::int64_t most_queries = 8;
        const Type& q = problem.inputs[0];
        if (q.dtype != DType::f32 && q.dtype != DType::bf16)
            return fmt::format("it is written for f32 and bf16, got {}", q.text());
        if (q.shape[2] > most_queries)
            return fmt::format("it takes {} queries at most, got {}", most_queries, q.text());
        return "";
    };
    const auto workspace = [threads = context.pool.threads()](const Problem& problem) {
        return kept_attention_workspace(kept_of(problem), threads);
    };
    const auto prepare = [isa = context.isa, &pool = context.pool](const Problem& problem) -> Launch {
        return [fixed = kept_of(problem), isa, &pool](const Operands& o) {
            KeptAttention kept = fixed;
            kept.q = o.inputs[0];
            kept.k = o.inputs[1];
            kept.v = o.inputs[2];
            kept.positions = o.input<std::int32_t>(3);
            kept.o = o.outputs[0];
            kept.workspace = reinterpret_cast<float*>(o.workspace);
            kept_attention(kept, pool, isa);
        };
    };
    return {.name = fmt::format("kept attention {}", name_of(context.isa)),
            .refusal = refuse,
            .prepare = prepare,
            .workspace = workspace};
}

}  // namespace

void add_attention_kernels(KernelTable& table, const Context& context) {
    const auto add = [&](const AttentionKernels& kernels, DType dtype, const std::string& how) {
        const std::string name =
            fmt::format("attention {0}*{0}+f32 {1}{2}", mantissa::name_of(dtype), kernels.name, how);
        Kernel both[] = {forward_kernel(context, kernels), gradient_kernel(context, kernels)};
        for (const std::size_t first : {0u, 1u}) {  // where q stands
            both[first].name = name;
            both[first].refusal = [&kernels, first, dtype](const Problem& problem) {
                return refusal(problem, first, dtype, kernels);
            };
            table[first == 0 ? "attention" : "attention_grad"].push_back(std::move(both[first]));
        }
    };
    if (const AttentionKernels* const of_unit = attention_kernels(bf16_unit(context.isa)))
        add(*of_unit, DType::bf16, "");
    const AttentionKernels& kernels = attention_kernels(context.isa);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        add(kernels, dtype, dtype == DType::f32 ? "" : ", widened");
    table["kept_attention"].push_back(kept_kernel(context));
}

}  // namespace mantissa::cpu
