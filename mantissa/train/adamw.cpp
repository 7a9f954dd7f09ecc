#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/train/optimizer_update.h"

namespace mantissa::inline v0 {

namespace {

void validate(const AdamWOptions& options) {
    for (double beta : {options.beta1, options.beta2})
        require_option(beta >= 0 && static_cast<float>(beta) < 1, "betas must lie in [0, 1)", beta);
    require_option(is_positive_in_fp32(options.epsilon), "epsilon must be positive and finite in FP32",
                   options.epsilon);
    require_weight_decay(options.weight_decay);
}

Tensor update_parameter(Graph& graph, const UpdatedParameter& parameter, const OptimizerStep& step,
                        const AdamWOptions& options) {
    const Tensor m = optimizer_state(graph, "adamw.m", parameter);
    const Tensor v = optimizer_state(graph, "adamw.v", parameter);
    const WeightDecay decay{.rate = options.weight_decay, .matrices_only = options.decay_matrices_only};
    const auto updated = call(graph, "adamw",
                              std::vector{parameter.value, parameter.gradient, m, v, step.learning_rate,
                                          step.step, step.gradient_scale, step.apply},
                              {{"beta1", options.beta1},
                               {"beta2", options.beta2},
                               {"epsilon", options.epsilon},
                               {"weight_decay", decay.of(parameter)}});
    graph.add_update(graph.state_of(m.value().node), updated[1].value());
    graph.add_update(graph.state_of(v.value().node), updated[2].value());
    return updated[0];
}

}  // namespace

Optimizer adamw(const AdamWOptions& options) {
    validate(options);
    return {.name = "adamw",
            .configuration = {{"beta1", options.beta1},
                              {"beta2", options.beta2},
                              {"epsilon", options.epsilon},
                              {"weight_decay", options.weight_decay},
                              {"decay_matrices_only", options.decay_matrices_only}},
            .counts_steps = true,
            .update = [options](Graph& graph, const UpdatedParameter& parameter, const OptimizerStep& step) {
                return update_parameter(graph, parameter, step, options);
            }};
}

}  // namespace mantissa
