// Binds attention and its gradient.
#include <fmt/format.h>

#include "mantissa/device/cpu/attention/attention.h"
#include "mantissa/device/cpu/attention/kept.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/graph/attention_layout.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Where heads lie in one of several tensors.
struct Place {
    std::size_t tensor = 0;
    std::int64_t start = 0;  ///< bytes
    HeadStrides strides = {};

    ConstHeads in(std::span<const std::byte* const> tensors) const {
        return {tensors[tensor] + start, strides};
    }
    Heads in(std::span<std::byte* const> tensors) const { return {tensors[tensor] + start, strides}; }
};

/// What a launch must know of the problem beside the addresses. The tensors of queries, keys and values stand
/// from operand `first` on.
struct Prepared {
    AttentionSize size;
    Place q, k, v;  ///< among the tensors of queries, keys and values
    Place o;
    std::size_t tensors = 0;

    Prepared(const Problem& problem, std::size_t first) {
        const AttentionLayout layout = attention_layout(problem.attributes);
        tensors = layout.operands.size();
        const auto operands = std::span<const Type>(problem.inputs).subspan(first, tensors);
        const AttentionExtents e = attention_extents(layout, operands);
        size = {.sequences = e.sequences,
                .heads = e.heads,
                .queries = e.queries,
                .keys = e.keys,
                .head_size = e.head_size,
                .causal = problem.attributes.flag("causal"),
                .scale = static_cast<float>(problem.attributes.number("scale")),
                .dtype = operands[0].dtype,
                .group = e.key_heads == 0 ? 1 : e.heads / e.key_heads};
        const auto place = [&](char name) {
            const AttentionPart part = part_of(layout, name);
            const std::string& axes = layout.operands[part.tensor].axes;
            return place_at(part.tensor, strides_of(axes, operands[part.tensor].shape, part.index));
        };
        q = place('q'), k = place('k'), v = place('v');
        const Shape heads{e.sequences, e.heads, e.queries, e.head_size};
        o = place_at(0, strides_of(layout.result, stored_shape(layout.result, heads)));
    }

  private:
    Place place_at(std::size_t tensor, const AttentionStrides& strides) const {
        return {.tensor = tensor,
                .start = strides.start * static_cast<std::int64_t>(mantissa::size_of(size.dtype)),
                .strides = {strides.sequence, strides.head, strides.position}};
    }
};

std::string refusal(const Problem& problem, std::size_t first, DType operands,
                    const AttentionKernels& kernels) {
    const Type& one = problem.inputs[first];
    if (one.dtype != operands)
        return fmt::format("it is written for {}, got {}", mantissa::name_of(operands), one.text());
    const AttentionSize size = Prepared(problem, first).size;
    if (size.sequences * size.heads * size.queries * size.head_size == 0)
        return "it needs one element or more";
    return refusal(kernels, size);
}

PreparedKernel forward_kernel(const Prepared& at, const AttentionKernels& kernels, ThreadPool& pool) {
    const auto launch = [&kernels, &pool, at](const Operands& o) {
        attention(kernels,
                  {.size = at.size,
                   .q = at.q.in(o.inputs),
                   .k = at.k.in(o.inputs),
                   .v = at.v.in(o.inputs),
                   .o = at.o.in(o.outputs),
                   .lse = o.output<float>(1),
                   .workspace = reinterpret_cast<float*>(o.workspace)},
                  pool);
    };
    return {.launch = launch, .workspace = attention_workspace(kernels, at.size, pool.threads())};
}

/// do, the tensors of q, k and v, then o and the log-sum-exp.
PreparedKernel gradient_kernel(const Prepared& at, const AttentionKernels& kernels, ThreadPool& pool) {
    const auto launch = [&kernels, &pool, at](const Operands& o) {
        const std::span<const std::byte* const> operands = o.inputs;
        const auto tensors = operands.subspan(1);
        attention_grad(kernels,
                       {.size = at.size,
                        .d_o = at.o.in(operands),
                        .q = at.q.in(tensors),
                        .k = at.k.in(tensors),
                        .v = at.v.in(tensors),
                        .o = at.o.in(tensors.subspan(at.tensors)),
                        .lse = o.input<float>(at.tensors + 2),
                        .dq = at.q.in(o.outputs),
                        .dk = at.k.in(o.outputs),
                        .dv = at.v.in(o.outputs),
                        .workspace = reinterpret_cast<float*>(o.workspace)},
                       pool);
    };
    return {.launch = launch, .workspace = attention_grad_workspace(kernels, at.size, pool.threads())};
}

KeptAttention kept_of(const Problem& problem) {
    const Shape &q = problem.inputs[0].shape, &k = problem.inputs[1].shape;
    return {.heads = q[0] * q[1],
            .queries = q[2],
            .keys = k[2],
            .head_size = q[3],
            .dtype = problem.inputs[0].dtype,
            .scale = static_cast<float>(problem.attributes.number("scale")),
            .group = q[1] / k[1]};
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
    const auto prepare = [=, isa = context.isa,
                          &pool = context.pool](const Problem& problem) -> OrReason<PreparedKernel> {
        if (std::string reason = refuse(problem); !reason.empty()) return NoValue{reason};
        const KeptAttention fixed = kept_of(problem);
        const auto launch = [fixed, isa, &pool](const Operands& o) {
            KeptAttention kept = fixed;
            kept.q = o.inputs[0];
            kept.k = o.inputs[1];
            kept.v = o.inputs[2];
            kept.positions = o.input<std::int32_t>(3);
            kept.o = o.outputs[0];
            kept.workspace = reinterpret_cast<float*>(o.workspace);
            kept_attention(kept, pool, isa);
        };
        return PreparedKernel{.launch = launch, .workspace = kept_attention_workspace(fixed, pool.threads())};
    };
    return {.name = fmt::format("kept attention {}", name_of(context.isa)), .prepare = prepare};
}

}  // namespace

void add_attention_kernels(KernelTable& table, const Context& context) {
    const auto add = [&](const AttentionKernels& kernels, DType dtype, const std::string& how) {
        const std::string name =
            fmt::format("attention {0}*{0}+f32 {1}{2}", mantissa::name_of(dtype), kernels.name, how);
        const Arithmetic arithmetic{.multiply = std::string(mantissa::name_of(dtype)),
                                    .unit = std::string(kernels.name)};
        for (const std::size_t first : {0u, 1u}) {  // where the tensors of queries, keys and values stand
            const auto prepare = [&kernels, &pool = context.pool, first,
                                  dtype](const Problem& problem) -> OrReason<PreparedKernel> {
                if (std::string reason = refusal(problem, first, dtype, kernels); !reason.empty())
                    return NoValue{reason};
                const Prepared at(problem, first);
                return first == 0 ? forward_kernel(at, kernels, pool) : gradient_kernel(at, kernels, pool);
            };
            table[first == 0 ? "attention" : "attention_grad"].push_back(
                {.name = name, .arithmetic = arithmetic, .prepare = prepare});
        }
    };
    if (const AttentionKernels* const of_unit = attention_kernels(bf16_unit(context.isa)))
        add(*of_unit, DType::bf16, "");
    const AttentionKernels& kernels = attention_kernels(context.isa);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        add(kernels, dtype, dtype == DType::f32 ? "" : ", widened");
    table["kept_attention"].push_back(kept_kernel(context));
}

}  // namespace mantissa::on_cpu
