#include "mantissa/train/adamw.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "mantissa/base/error.h"

namespace mantissa {

namespace {

/// The update is computed in FP32, so what an option becomes there counts: an infinity times 0 is a NaN in
/// every parameter, and a subnormal number is flushed to the 0 that it is not.
void validate(const AdamWOptions& options) {
    constexpr float least = std::numeric_limits<float>::min();
    const auto require = [](bool holds, const char* what, double got) {
        if (!holds) throw UserError(fmt::format("{}, got {}", what, got));
    };
    for (double beta : {options.beta1, options.beta2})
        require(beta >= 0 && static_cast<float>(beta) < 1, "betas must lie in [0, 1)", beta);
    require(
        static_cast<float>(options.epsilon) >= least && std::isfinite(static_cast<float>(options.epsilon)),
        "epsilon must be positive and finite in FP32", options.epsilon);
    require(options.weight_decay >= 0 && std::isfinite(static_cast<float>(options.weight_decay)),
            "weight decay must be 0 or more and finite in FP32", options.weight_decay);
    require(options.clip == 0 || (static_cast<float>(options.clip) >= least &&
                                  std::isfinite(static_cast<float>(options.clip))),
            "clip must be 0 (off), or positive and finite in FP32", options.clip);
}

/// A state of the optimizer, starting at zero.
Tensor zero_state(Graph& graph, const std::string& name, Type type) {
    return {graph,
            graph.add_state(
                {.kind = State::Kind::optimizer, .name = name, .type = std::move(type), .initializer = {}})};
}

struct Shared {
    Tensor learning_rate, step, scale, apply;
};

void update_parameter(Graph& graph, const ParameterGradient& parameter, const Shared& shared,
                      const AdamWOptions& options) {
    const State state = graph.states()[static_cast<std::size_t>(parameter.state)];
    const OriginScope scope(graph, state.name);
    const Tensor p(graph, {state.node, 0});
    const Tensor m = zero_state(graph, "adamw.m." + state.name, state.type);
    const Tensor v = zero_state(graph, "adamw.v." + state.name, state.type);
    const bool decays = !options.decay_matrices_only || state.type.shape.rank() >= 2;
    const auto updated = call(graph, "adamw",
                              std::vector{p, parameter.gradient, m, v, shared.learning_rate, shared.step,
                                          shared.scale, shared.apply},
                              {{"beta1", options.beta1},
                               {"beta2", options.beta2},
                               {"epsilon", options.epsilon},
                               {"weight_decay", decays ? options.weight_decay : 0.0}});
    graph.add_update(parameter.state, updated[0].value());
    graph.add_update(graph.find_state("adamw.m." + state.name), updated[1].value());
    graph.add_update(graph.find_state("adamw.v." + state.name), updated[2].value());
}

}  // namespace

TraceUpdate adamw_update(const AdamWOptions& options, const LossScaleOptions& scaling) {
    validate(options);
    validate(scaling);
    return [options, scaling](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        const OriginScope update(graph, Origin{.scope = "", .stage = Stage::update});
        const Tensor rate(graph, graph.add_input("learning_rate", {DType::f32, {}}));
        const Tensor step = zero_state(graph, "adamw.step", {DType::f64, {}});
        std::vector<Tensor> all;
        for (const ParameterGradient& parameter : gradients) all.push_back(parameter.gradient);
        const auto norm = call(graph, "global_norm", all);
        const Tensor apply = logical_and(norm[1], is_finite(loss));
        // Gradients are read with the loss scale in them and divided by it once, together with the clipping.
        const Tensor one = constant(graph, 1.0), loss_scale = mantissa::loss_scale(graph, scaling);
        const Tensor unscale = loss_scale ? one / loss_scale : one;
        const Tensor length = loss_scale ? norm[0] * unscale : norm[0];
        const Tensor clipped =
            options.clip > 0 ? minimum(one, constant(graph, options.clip) / (length + 1e-6)) : one;
        const Tensor scale = loss_scale ? clipped * unscale : clipped;
        const Tensor next_step = step + 1.0;
        for (const ParameterGradient& parameter : gradients)
            update_parameter(graph, parameter, {rate, next_step, scale, apply}, options);
        graph.add_update(graph.find_state("adamw.step"), select(apply, next_step, step).value());
        update_loss_scale(graph, apply, scaling);
        graph.add_result("loss", loss.value());
        // A result is a computed value, which keeps its place until it is read.
        graph.add_result("gradient_norm", length.value());
        graph.add_result("applied", apply.value());
    };
}

}  // namespace mantissa
