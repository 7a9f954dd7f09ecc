// Binds attention and its gradient.
#include <fmt/format.h>

#include "mantissa/device/cpu/attention/attention.h"
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

std::string refusal(const Problem& problem, std::size_t first, DType operands) {
    const Type& q = problem.inputs[first];
    if (q.dtype != operands)
        return fmt::format("it is written for {}, got {}", mantissa::name_of(operands), q.text());
    return q.shape.elements() == 0 ? "it needs one element or more" : "";
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
    const auto workspace = [threads = context.pool.threads()](const Problem& problem) {
        return attention_workspace(size_of(problem, 0), threads);
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
    const auto workspace = [threads = context.pool.threads()](const Problem& problem) {
        return attention_grad_workspace(size_of(problem, 1), threads);
    };
    return {.name = {}, .prepare = prepare, .workspace = workspace};
}

}  // namespace

void add_attention_kernels(KernelTable& table, const Context& context) {
    const AttentionKernels& kernels = attention_kernels(context.isa);
    const Kernel forward = forward_kernel(context, kernels), gradient = gradient_kernel(context, kernels);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        const std::string name = fmt::format("attention {0}*{0}+f32 {1}{2}", mantissa::name_of(dtype),
                                             kernels.name, dtype == DType::f32 ? "" : ", widened");
        const auto add = [&](const char* op, Kernel kernel, std::size_t first) {
            kernel.name = name;
            kernel.refusal = [=](const Problem& problem) { return refusal(problem, first, dtype); };
            table[op].push_back(std::move(kernel));
        };
        add("attention", forward, 0);
        add("attention_grad", gradient, 1);
    }
}

}  // namespace mantissa::cpu
