#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/train/optimizer_update.h"

namespace mantissa::inline v0 {

namespace {

void validate(const SgdOptions& options) {
    require_option(options.momentum == 0 ||
                       (is_positive_in_fp32(options.momentum) && static_cast<float>(options.momentum) < 1),
                   "momentum must be 0 (off), or lie in (0, 1) in FP32", options.momentum);
    require_option(options.dampening >= 0 && options.dampening <= 1, "dampening must lie in [0, 1]",
                   options.dampening);
    require_option(options.dampening == 0 || options.momentum > 0,
                   "dampening is of the momentum, which is 0: dampening must be 0", options.dampening);
    if (options.nesterov) {
        require_option(options.momentum > 0, "Nesterov's momentum needs a momentum above 0",
                       options.momentum);
        require_option(options.dampening == 0, "Nesterov's momentum needs a dampening of 0",
                       options.dampening);
    }
    require_weight_decay(options.weight_decay);
}

Tensor update_parameter(Graph& graph, const UpdatedParameter& parameter, const OptimizerStep& step,
                        const SgdOptions& options) {
    const WeightDecay decay{.rate = options.weight_decay, .matrices_only = options.decay_matrices_only};
    std::vector<Tensor> operands = {parameter.value, parameter.gradient, step.learning_rate,
                                    step.gradient_scale, step.apply};
    Tensor buffer;
    if (options.momentum > 0) {
        buffer = optimizer_state(graph, "sgd.momentum", parameter);
        operands.push_back(buffer);
        operands.push_back(step.step);
    }
    const auto updated = call(graph, "sgd", operands,
                              {{"momentum", options.momentum},
                               {"dampening", options.dampening},
                               {"nesterov", options.nesterov},
                               {"weight_decay", decay.of(parameter)}});
    if (buffer) graph.add_update(graph.state_of(buffer.value().node), updated[1].value());
    return updated[0];
}

}  // namespace

Optimizer sgd(const SgdOptions& options) {
    validate(options);
    return {.name = "sgd",
            .configuration = {{"momentum", options.momentum},
                              {"dampening", options.dampening},
                              {"nesterov", options.nesterov},
                              {"weight_decay", options.weight_decay},
                              {"decay_matrices_only", options.decay_matrices_only}},
            .counts_steps = options.momentum > 0,
            .update = [options](Graph& graph, const UpdatedParameter& parameter, const OptimizerStep& step) {
                return update_parameter(graph, parameter, step, options);
            }};
}

}  // namespace mantissa
