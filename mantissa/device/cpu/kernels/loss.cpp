// Binds the fused linear cross-entropy of a linear layer's logits.

#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/loss/linear_cross_entropy.h"
#include "mantissa/graph/ignored_targets.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// x, w, targets, and a seed or two where there are gradients.
LinearCrossEntropy loss_of(const Problem& problem, const ContractionUnit& unit) {
    const Type& x = problem.inputs[0];
    const std::int64_t columns = problem.inputs[1].shape[0];
    return {.rows = x.shape[0],
            .channels = x.shape[1],
            .classes = problem.attributes.has("classes") ? problem.attributes.integer("classes") : columns,
            .columns = columns,
            .dtype = x.dtype,
            .multiply = unit.multiply,
            .gradients = problem.inputs.size() > 3,
            .frozen = problem.attributes.has("frozen"),
            .ignore_negative = ignores_negative(problem.attributes),
            .by_rows = gives_rows(problem.attributes),
            .threads = unit.threads};
}

Kernel joint_loss_kernel(const Context& context, const ContractionUnit& unit) {
    const auto refuse = [unit](const Problem& problem) {
        const std::string reason = unit.refusal(problem);
        return reason.empty() ? refusal(loss_of(problem, unit)) : reason;
    };
    const auto prepare = [=, &pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        if (std::string reason = refuse(problem); !reason.empty()) return Unexpected{reason};
        const auto loss = prepare_linear_cross_entropy(loss_of(problem, unit), unit.isa);
        const auto launch = [loss, &pool](const Operands& o) {
            LinearCrossEntropyArguments arguments{.x = o.inputs[0],
                                                  .w = o.inputs[1],
                                                  .targets = o.input<std::int32_t>(2),
                                                  .loss = o.output<float>(0)};
            if (loss.problem.gradients) {
                if (loss.problem.by_rows) {
                    arguments.seeds = o.input<float>(3);
                    arguments.lse_seeds = o.input<float>(4);
                } else {
                    arguments.seed = *o.input<float>(3);
                }
                arguments.dx = o.outputs[1];
                if (!loss.problem.frozen) arguments.dw = o.output<float>(2);
            }
            if (loss.problem.by_rows) arguments.lse = o.output<float>(o.outputs.size() - 1);
            linear_cross_entropy(loss, arguments, {o.workspace, loss.workspace_bytes(pool.threads())}, pool);
        };
        return PreparedKernel{.launch = launch,
                              .workspace = static_cast<std::int64_t>(loss.workspace_bytes(pool.threads()))};
    };
    return {.name = "fused linear cross-entropy, " + unit.name,
            .arithmetic = unit.arithmetic,
            .prepare = prepare};
}

}  // namespace

void add_loss_kernels(KernelTable& table, const Context& context) {
    for (const ContractionUnit& unit : contraction_units(context.isa, context.threads))
        table["linear_cross_entropy"].push_back(joint_loss_kernel(context, unit));
}

}  // namespace mantissa::on_cpu
