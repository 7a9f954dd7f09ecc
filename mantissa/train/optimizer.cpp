#include "mantissa/train/optimizer.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/train/running_statistics.h"

namespace mantissa::inline v0 {

namespace {

/// What gradients are multiplied by, and their norm. They are read with the loss scale in them and divided by
/// it once, together with the clipping.
struct GradientScale {
    Tensor scale, norm;
};

GradientScale gradient_scale(Tensor stored_norm, double clip, const LossScaleOptions& scaling) {
    Graph& graph = stored_norm.graph();
    const Tensor one = constant(graph, 1.0), loss_scale = mantissa::loss_scale(graph, scaling);
    const Tensor unscale = loss_scale ? one / loss_scale : one;
    const Tensor norm = loss_scale ? stored_norm * unscale : stored_norm;
    const Tensor clipped = clip > 0 ? minimum(one, constant(graph, clip) / (norm + 1e-6)) : one;
    return {.scale = loss_scale ? clipped * unscale : clipped, .norm = norm};
}

void require_clip(double clip) {
    require_option(clip == 0 || is_positive_in_fp32(clip),
                   "clip must be 0 (off), or positive and finite in FP32", clip);
}

}  // namespace

Optimizer clipped(Optimizer optimizer, double norm) {
    require_clip(norm);
    optimizer.clip = norm;
    return optimizer;
}

TraceUpdate optimizer_update(const Optimizer& optimizer, const LossScaleOptions& scaling) {
    require_clip(optimizer.clip);
    validate(scaling);
    return [optimizer, scaling](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        const OriginScope update(graph, Origin{.scope = "", .stage = Stage::update});
        const std::string steps = optimizer.name + ".step";
        OptimizerStep shared{.learning_rate = {graph, graph.add_input("learning_rate", {DType::f32, {}})}};
        const Tensor done =
            optimizer.counts_steps ? optimizer_state(graph, steps, {DType::f64, {}}) : Tensor();
        std::vector<Tensor> all;
        for (const ParameterGradient& parameter : gradients) all.push_back(parameter.gradient);
        const auto norm = call(graph, "global_norm", all);
        shared.apply = logical_and(norm[1], is_finite(loss));
        const GradientScale scaled = gradient_scale(norm[0], optimizer.clip, scaling);
        shared.gradient_scale = scaled.scale;
        if (done) shared.step = done + 1.0;
        for (const ParameterGradient& parameter : gradients) {
            const std::string name = graph.states()[static_cast<std::size_t>(parameter.state)].name;
            const OriginScope scope(graph, name);
            optimizer.update(graph, parameter, shared);
        }
        if (done) graph.add_update(graph.find_state(steps), select(shared.apply, shared.step, done).value());
        apply_running_statistics(graph, shared.apply);
        update_loss_scale(graph, shared.apply, scaling);
        graph.add_result("loss", loss.value());
        // A result is a computed value, which keeps its place until it is read.
        graph.add_result("gradient_norm", scaled.norm.value());
        graph.add_result("applied", shared.apply.value());
    };
}

Tensor optimizer_state(Graph& graph, const std::string& name, Type type) {
    return {graph,
            graph.add_state(
                {.kind = State::Kind::optimizer, .name = name, .type = std::move(type), .initializer = {}})};
}

double WeightDecay::of(const State& parameter) const {
    return matrices_only && parameter.type.shape.rank() < 2 ? 0.0 : rate;
}

bool is_positive_in_fp32(double number) {
    const auto single = static_cast<float>(number);
    return single >= std::numeric_limits<float>::min() && std::isfinite(single);
}

void require_option(bool holds, const char* what, double got) {
    if (!holds) throw UserError(fmt::format("{}, got {}", what, got));
}

/// An infinity times 0 is a NaN in every parameter.
void require_weight_decay(double rate) {
    require_option(rate >= 0 && std::isfinite(static_cast<float>(rate)),
                   "weight decay must be 0 or more and finite in FP32", rate);
}

}  // namespace mantissa
