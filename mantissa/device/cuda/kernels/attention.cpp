// Attention and its gradient on the matrix units: kernels of our own, one forward and two backward.
#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/graph/attention_layout.h"

namespace mantissa::inline v0::on_cuda {

namespace {

using codegen::AttentionKernel;

/// What the graph says of it: which operand holds each of q, k and v, and the kernels' common part.
struct DescribedAttention {
    AttentionKernel kernel;
    std::size_t tensors = 0;          ///< operands that hold q, k and v
    std::size_t q = 0, k = 0, v = 0;  ///< among them

    /// The tensors of q, k and v stand from operand `first` on.
    DescribedAttention(const Problem& problem, std::size_t first) {
        const AttentionLayout layout = attention_layout(problem.attributes);
        tensors = layout.operands.size();
        const auto operands = problem.inputs.subspan(first, tensors);
        const AttentionExtents e = attention_extents(layout, operands);
        kernel.dtype = operands[0].dtype;
        kernel.sequences = e.sequences;
        kernel.heads = e.heads;
        kernel.queries = e.queries;
        kernel.keys = e.keys;
        kernel.head_size = e.head_size;
        kernel.group = e.key_heads == 0 ? 1 : e.heads / e.key_heads;
        kernel.causal = problem.attributes.flag("causal");
        kernel.scale = problem.attributes.number("scale");
        const auto take = [&](char name, std::size_t& tensor, codegen::HeadPlaces& places) {
            const AttentionPart part = part_of(layout, name);
            tensor = part.tensor;
            places = places_of(strides_of(layout.operands[tensor].axes, operands[tensor].shape, part.index));
        };
        take('q', q, kernel.q);
        take('k', k, kernel.k);
        take('v', v, kernel.v);
        const Shape heads{e.sequences, e.heads, e.queries, e.head_size};
        kernel.o = places_of(strides_of(layout.result, stored_shape(layout.result, heads)));
    }

  private:
    static codegen::HeadPlaces places_of(const AttentionStrides& strides) {
        return {strides.start, strides.sequence, strides.head, strides.position};
    }
};

/// A kernel and how it is launched.
struct BoundAttention {
    std::shared_ptr<const GpuKernel> kernel;
    std::int64_t blocks = 0;
    int threads = 0;
    bool moves_whole_rows = false;

    BoundAttention(Context& context, AttentionKernel made, AttentionKernel::Makes makes, const char* name) {
        made.makes = makes;
        moves_whole_rows = codegen::moves_whole_rows(made);
        codegen::GridKernel named{.name = fmt::format("{}_{}", name, name_of(made.dtype)), .code = made};
        blocks = codegen::blocks_of(named);
        threads = codegen::block_threads(named);
        kernel = context.modules.add(std::move(named));
    }

    void queue(const Context& context, std::vector<std::uint64_t> parameters) const {
        constexpr std::uint64_t at_a_time = 16;
        for (const std::uint64_t address : parameters)
            check(!moves_whole_rows || address % at_a_time == 0, "tensors begin at multiples of 16 bytes");
        launch(context, *kernel, blocks, std::move(parameters), threads);
    }
};

PreparedKernel forward_kernel(Context& context, const DescribedAttention& of) {
    const auto queue = [&context, of,
                        made = BoundAttention(context, of.kernel, AttentionKernel::Makes::output,
                                              "attention")](const Operands& operands) {
        const auto input = [&](std::size_t i) { return address_of(operands.inputs[i]); };
        made.queue(context, {input(of.q), input(of.k), input(of.v), address_of(operands.outputs[0]),
                             address_of(operands.outputs[1])});
    };
    return {.launch = queue};
}

/// do, the tensors of q, k and v, then o and the log-sum-exp.
PreparedKernel gradient_kernel(Context& context, const DescribedAttention& of, const Problem& problem) {
    using Makes = AttentionKernel::Makes;
    const auto queue =
        [&context, of,
         queries = BoundAttention(context, of.kernel, Makes::query_gradient, "attention_query_gradient"),
         keys = BoundAttention(context, of.kernel, Makes::key_gradients, "attention_key_gradients")](
            const Operands& operands) {
            const auto input = [&](std::size_t i) { return address_of(operands.inputs[i]); };
            const auto output = [&](std::size_t i) { return address_of(operands.outputs[i]); };
            const std::uint64_t d_o = input(0), q = input(1 + of.q), k = input(1 + of.k), v = input(1 + of.v),
                                rows = address_of(operands.workspace);
            queries.queue(context,
                          {d_o, q, k, v, input(1 + of.tensors), input(2 + of.tensors), output(of.q), rows});
            keys.queue(context, {d_o, q, k, v, rows, output(of.k), output(of.v)});
        };
    const std::int64_t workspace = 2 * of.kernel.sequences * of.kernel.heads * of.kernel.queries *
                                   static_cast<std::int64_t>(sizeof(float));
    // Seven products instead of five, and exponentials twice; do, q, k and v are read twice.
    const auto [flops, bytes] = problem.op.cost(problem.inputs, problem.outputs, problem.attributes);
    const std::int64_t D = of.kernel.head_size;
    std::int64_t more = 2 * workspace + problem.inputs[0].bytes();
    for (const Type& type : problem.inputs.subspan(1, of.tensors)) more += type.bytes();
    return {.launch = queue,
            .workspace = workspace,
            .launches = 2,
            .cost = Cost{flops / (10 * D + 14) * (14 * D + 28), bytes + more}};
}

}  // namespace

void add_attention_kernels(KernelTable& table, Context& context) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
        const std::string name =
            fmt::format("attention {0}*{0}+f32 {1}", name_of(dtype), context.matrix_unit);
        for (const std::size_t first : {0u, 1u}) {  // where the tensors of queries, keys and values stand
            const auto prepare = [&context, first,
                                  dtype](const Problem& problem) -> OrReason<PreparedKernel> {
                const Type& one = problem.inputs[first];
                if (one.dtype != dtype)
                    return NoValue{fmt::format("it is written for {}, got {}", name_of(dtype), one.text())};
                if (problem.attributes.has("score") || problem.attributes.has("lse_gradient"))
                    return NoValue{"it takes scores as they are, and no gradient of the log-sum-exp"};
                const DescribedAttention described(problem, first);
                if (std::string reason = codegen::refuse_attention(described.kernel); !reason.empty())
                    return NoValue{std::move(reason)};
                return first == 0 ? forward_kernel(context, described)
                                  : gradient_kernel(context, described, problem);
            };
            table[first == 0 ? "attention" : "attention_grad"].push_back(
                {.name = name,
                 .arithmetic = {.multiply = std::string(name_of(dtype)), .unit = context.matrix_unit},
                 .prepare = prepare});
        }
    }
}

}  // namespace mantissa::on_cuda
