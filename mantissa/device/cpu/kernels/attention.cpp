// Binds attention and its gradient.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/function_ref.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/attention/attention.h"
#include "mantissa/device/cpu/attention/cached.h"
#include "mantissa/device/cpu/attention/places.h"
#include "mantissa/device/cpu/kernels/attention_score.h"
#include "mantissa/device/cpu/kernels/attention_time.h"
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

/// Facts of the problem that a launch needs beside the addresses. The tensors of queries, keys and values
/// stand from operand `first` on.
struct Prepared {
    AttentionSize size;
    AttentionExtents extents;
    Place q, k, v;  ///< among the tensors of queries, keys and values
    Place o;
    std::size_t tensors = 0;
    std::shared_ptr<const BoundScore> score = {};  ///< null: plain

    Prepared(const Problem& problem, std::size_t first) {
        const AttentionLayout layout = attention_layout(problem.attributes);
        tensors = layout.operands.size();
        const auto operands = std::span<const Type>(problem.inputs).subspan(first, tensors);
        const AttentionExtents e = extents = attention_extents(layout, operands);
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

/// Calls run with the score of a launch, or with null; the score's workspace lies behind the kernel's own.
/// `first`: of the score's operands.
void with_score(const Prepared& at, const Operands& o, std::size_t first, std::size_t first_gradient,
                std::int64_t own_workspace, ThreadPool& pool, FunctionRef<void(const Score*)> run) {
    if (!at.score) return run(nullptr);
    at.score->launch(o.inputs.subspan(first), o.outputs.subspan(first_gradient), o.workspace + own_workspace,
                     pool, [&](const Score& score) { run(&score); });
}

PreparedKernel forward_kernel(const Prepared& at, const AttentionKernels& kernels, ThreadPool& pool) {
    const Score* const sizes = at.score ? &at.score->sizes() : nullptr;
    const std::int64_t own = in_lines(attention_workspace(kernels, at.size, pool.threads(), sizes));
    const auto launch = [&kernels, &pool, at, own](const Operands& o) {
        with_score(at, o, at.tensors, 2, own, pool, [&](const Score* score) {
            attention(kernels,
                      {.size = at.size,
                       .q = at.q.in(o.inputs),
                       .k = at.k.in(o.inputs),
                       .v = at.v.in(o.inputs),
                       .o = at.o.in(o.outputs),
                       .lse = o.output<float>(1),
                       .workspace = reinterpret_cast<float*>(o.workspace),
                       .score = score},
                      pool);
        });
    };
    return {.launch = launch, .workspace = own + (at.score ? at.score->workspace() : 0)};
}

/// do, the tensors of q, k and v, the operands of the score, then o, the log-sum-exp, and its gradient where
/// there is one.
PreparedKernel gradient_kernel(const Prepared& at, std::size_t of_score, bool of_lse,
                               const AttentionKernels& kernels, ThreadPool& pool) {
    const Score* const sizes = at.score ? &at.score->sizes() : nullptr;
    const std::int64_t own = in_lines(attention_grad_workspace(kernels, at.size, pool.threads(), sizes));
    const auto launch = [&kernels, &pool, at, own, of_score, of_lse](const Operands& o) {
        const std::span<const std::byte* const> operands = o.inputs;
        const auto tensors = operands.subspan(1), results = tensors.subspan(at.tensors + of_score);
        const std::size_t lse = 2 + at.tensors + of_score;
        with_score(at, o, 1 + at.tensors, at.tensors, own, pool, [&](const Score* score) {
            attention_grad(kernels,
                           {.size = at.size,
                            .d_o = at.o.in(operands),
                            .q = at.q.in(tensors),
                            .k = at.k.in(tensors),
                            .v = at.v.in(tensors),
                            .o = at.o.in(results),
                            .lse = o.input<float>(lse),
                            .d_lse = of_lse ? o.input<float>(lse + 1) : nullptr,
                            .dq = at.q.in(o.outputs),
                            .dk = at.k.in(o.outputs),
                            .dv = at.v.in(o.outputs),
                            .workspace = reinterpret_cast<float*>(o.workspace),
                            .score = score},
                           pool);
        });
    };
    return {.launch = launch, .workspace = own + (at.score ? at.score->workspace() : 0)};
}

/// The kernel of a node that `refusal` lets through; `first` as there.
Expected<PreparedKernel> prepared(const Problem& problem, std::size_t first, const AttentionKernels& kernels,
                                  ThreadPool& pool, codegen::Compiler& compiler) {
    Prepared at(problem, first);
    const auto of_score = attention_score(problem.attributes).operands.size();
    const auto operands = std::span<const Type>(problem.inputs).subspan(first + at.tensors, of_score);
    const auto score = BoundScore::of({.attributes = problem.attributes,
                                       .size = at.size,
                                       .extents = at.extents,
                                       .operands = {operands.begin(), operands.end()},
                                       .pass = first == 0 ? ScorePass::forward : ScorePass::backward},
                                      compiler, pool);
    if (!score) return Unexpected{score.reason()};
    at.score = *score;
    const bool of_lse = problem.attributes.has("lse_gradient") && problem.attributes.flag("lse_gradient");
    PreparedKernel made =
        first == 0 ? forward_kernel(at, kernels, pool) : gradient_kernel(at, of_score, of_lse, kernels, pool);
    made.time = attention_time(kernels, at.size, at.score ? at.score->fixed_table() : BlockTable{},
                               first == 0 ? AttentionPass::forward : AttentionPass::backward);
    return made;
}

CachedAttention kept_of(const Problem& problem) {
    const Shape &q = problem.inputs[0].shape, &k = problem.inputs[1].shape;
    // One row of positions for all sequences makes them more heads of one.
    const bool own_positions = problem.inputs[3].shape.rank() == 2;
    return {.sequences = own_positions ? q[0] : 1,
            .heads = q[0] * q[1],
            .queries = q[2],
            .keys = k[2],
            .head_size = q[3],
            .dtype = problem.inputs[0].dtype,
            .scale = static_cast<float>(problem.attributes.number("scale")),
            .group = q[1] / k[1],
            .window = problem.attributes.has("window") ? problem.attributes.integer("window") : 0,
            .cap = static_cast<float>(problem.attributes.has("cap") ? problem.attributes.number("cap") : 0)};
}

CachedAttention placed(CachedAttention kept, const Operands& o) {
    kept.q = o.inputs[0];
    kept.k = o.inputs[1];
    kept.v = o.inputs[2];
    kept.positions = o.input<std::int32_t>(3);
    kept.o = o.outputs[0];
    kept.workspace = reinterpret_cast<float*>(o.workspace);
    return kept;
}

/// Queries one after another, as a prompt's: the last sees the last key. `size.keys` is the most.
struct PromptAttention {
    const AttentionKernels& kernels;
    AttentionSize size;

    std::int64_t lse_bytes() const {
        return in_lines(size.sequences * size.heads * size.queries *
                        static_cast<std::int64_t>(sizeof(float)));
    }
    std::int64_t workspace(int threads) const {
        return lse_bytes() + attention_workspace(kernels, size, threads);
    }
    void launch(const Operands& o, std::int64_t keys, ThreadPool& pool) const {
        const std::int64_t kept = size.keys, D = size.head_size, H = size.heads;
        const HeadStrides of_q = dense_strides(H, size.queries, D);
        const HeadStrides of_k = dense_strides(H / size.group, kept, D);
        AttentionSize visible = size;
        visible.keys = keys;
        attention(kernels,
                  {.size = visible,
                   .q = {o.inputs[0], of_q},
                   .k = {o.inputs[1], of_k},
                   .v = {o.inputs[2], of_k},
                   .o = {o.outputs[0], of_q},
                   .lse = reinterpret_cast<float*>(o.workspace),
                   .workspace = reinterpret_cast<float*>(o.workspace + lse_bytes())},
                  pool);
    }
};

/// The number of keys that the last query sees, where queries of one sequence stand one after another and see
/// all existing keys before them; else 0.
std::int64_t keys_of_prompt(const CachedAttention& p) {
    if (p.sequences != 1 || p.positions[0] < 0 || p.positions[0] + p.queries > p.keys) return 0;
    if (p.window > 0 && p.window < p.positions[0] + p.queries) return 0;
    for (std::int64_t t = 1; t < p.queries; ++t)
        if (p.positions[t] != p.positions[0] + t) return 0;
    return p.positions[0] + p.queries;
}

/// A prompt of more queries than this is attention's: it reads keys and values fewer times.
constexpr std::int64_t max_single_queries = 8;

PreparedKernel prompt_kernel(const CachedAttention& fixed, const AttentionKernels& kernels, Isa isa,
                             ThreadPool& pool) {
    const PromptAttention prompt{kernels,
                                 {.sequences = fixed.sequences,
                                  .heads = fixed.heads / fixed.sequences,
                                  .queries = fixed.queries,
                                  .keys = fixed.keys,
                                  .head_size = fixed.head_size,
                                  .causal = true,
                                  .scale = fixed.scale,
                                  .dtype = fixed.dtype,
                                  .group = fixed.group}};
    const auto launch = [fixed, prompt, isa, &pool](const Operands& o) {
        const CachedAttention kept = placed(fixed, o);
        if (const std::int64_t keys = keys_of_prompt(kept); keys > 0)
            prompt.launch(o, keys, pool);
        else
            cached_attention(kept, pool, isa);
    };
    return {.launch = launch,
            .workspace = std::max(prompt.workspace(pool.threads()),
                                  cached_attention_workspace(fixed, pool.threads()))};
}

/// q, k, v, positions.
Kernel kept_kernel(const Context& context) {
    const auto refuse = [](const Problem& problem) -> std::string {
        const Type& q = problem.inputs[0];
        if (q.dtype != DType::f32 && q.dtype != DType::bf16)
            return fmt::format("it is written for f32 and bf16, got {}", q.text());
        if (q.shape.elements() == 0) return "it needs one element or more";
        return "";
    };
    const auto prepare = [=, isa = context.isa,
                          &pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        if (std::string reason = refuse(problem); !reason.empty()) return Unexpected{reason};
        const CachedAttention fixed = kept_of(problem);
        const AttentionKernels* const of_unit =
            fixed.dtype == DType::bf16 ? attention_kernels(bf16_unit(isa)) : nullptr;
        const AttentionKernels& kernels =
            of_unit && fixed.head_size % of_unit->head_unit == 0 ? *of_unit : attention_kernels(isa);
        // A sequence's positions are its own only where it has them.
        if (fixed.queries > max_single_queries && fixed.sequences == 1 && fixed.cap == 0)
            return prompt_kernel(fixed, kernels, isa, pool);
        const auto launch = [fixed, isa, &pool](const Operands& o) {
            cached_attention(placed(fixed, o), pool, isa);
        };
        return PreparedKernel{.launch = launch,
                              .workspace = cached_attention_workspace(fixed, pool.threads())};
    };
    return {.name = fmt::format("kept attention {}", instructions_of(context.isa)), .prepare = prepare};
}

}  // namespace

void add_attention_kernels(KernelTable& table, const Context& context, codegen::Compiler& compiler) {
    const auto add = [&](const AttentionKernels& kernels, DType dtype, const std::string& how) {
        const std::string name =
            fmt::format("attention {0}*{0}+f32 {1}{2}", mantissa::name_of(dtype), kernels.name, how);
        const Arithmetic arithmetic{.multiply = std::string(mantissa::name_of(dtype)),
                                    .unit = std::string(kernels.name)};
        for (const std::size_t first : {0u, 1u}) {  // where the tensors of queries, keys and values stand
            const auto prepare = [&kernels, &pool = context.pool, &compiler, first,
                                  dtype](const Problem& problem) -> Expected<PreparedKernel> {
                if (std::string reason = refusal(problem, first, dtype, kernels); !reason.empty())
                    return Unexpected{reason};
                return prepared(problem, first, kernels, pool, compiler);
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
    table["cached_attention"].push_back(kept_kernel(context));
}

}  // namespace mantissa::on_cpu
