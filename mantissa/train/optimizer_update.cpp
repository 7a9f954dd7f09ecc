#include "mantissa/train/optimizer_update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/name_pattern.h"
#include "mantissa/graph/call.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/running_statistics.h"

namespace mantissa::inline v0 {

namespace {

/// The factor of gradients, and their norm. Gradients are read with the loss scale in them and divided by it
/// once, together with the clipping.
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

Tensor added_state(Graph& graph, State state) {
    state.kind = State::Kind::optimizer;
    return {graph, graph.add_state(std::move(state))};
}

const State& state_of(const Graph& graph, const ParameterGradient& parameter) {
    return graph.state(parameter.state);
}

/// Norm of all gradients, and whether every element is finite.
std::vector<Tensor> norm_of_gradients(Graph& graph, const std::vector<ParameterGradient>& gradients,
                                      const Distribution& distribution) {
    std::vector<Tensor> all;
    std::vector<std::int64_t> elements;
    for (const ParameterGradient& parameter : gradients) {
        all.push_back(parameter.gradient);
        elements.push_back(parameter.is_shard ? state_of(graph, parameter).type.shape.elements() : 0);
    }
    if (std::ranges::all_of(elements, [](std::int64_t of) { return of == 0; }))
        return call(graph, "global_norm", all);
    return call(graph, "norm_of_parts", all,
                {{"ranks", std::int64_t{distribution.ranks}}, {"elements", std::move(elements)}});
}

/// Updates every parameter by `update`, or each rank its part, which the ranks then gather.
template <class Update>
void update_all(Graph& graph, const std::vector<ParameterGradient>& gradients,
                const Distribution& distribution, Update&& update) {
    std::vector<int> cut;
    std::vector<Tensor> parts;
    std::vector<Shape> shapes;
    for (const ParameterGradient& parameter : gradients) {
        const State state = state_of(graph, parameter);
        const OriginScope scope(graph, state.name);
        const Tensor whole(graph, {state.node, 0});
        if (!parameter.is_shard) {
            graph.add_update(parameter.state,
                             update(UpdatedParameter{state, whole, parameter.gradient}).value());
            continue;
        }
        const Tensor part = call1("own_shard", {whole}, {{"ranks", std::int64_t{distribution.ranks}}});
        cut.push_back(parameter.state);
        parts.push_back(update(UpdatedParameter{state, part, parameter.gradient}));
        shapes.push_back(state.type.shape);
    }
    const std::vector<Tensor> wholes = all_gathered(graph, parts, shapes, distribution);
    for (std::size_t i = 0; i < cut.size(); ++i) graph.add_update(cut[i], wholes[i].value());
}

void require_clip(double clip) {
    require_option(clip == 0 || is_positive_in_fp32(clip),
                   "clip must be 0 (off), or positive and finite in FP32", clip);
}

void require_group(const ParameterGroup& group) {
    const auto fits = [](double number) { return number >= 0 && std::isfinite(static_cast<float>(number)); };
    if (!fits(group.learning_rate_factor))
        throw UserError(
            fmt::format("group '{}': the factor of the learning rate must be 0 or more and finite in FP32, "
                        "got {}",
                        group.pattern, group.learning_rate_factor));
    if (group.weight_decay && !fits(*group.weight_decay))
        throw UserError(fmt::format("group '{}': weight decay must be 0 or more and finite in FP32, got {}",
                                    group.pattern, *group.weight_decay));
}

/// The groups of one graph: their parameters and rates.
class Groups {
  public:
    Groups(const std::vector<ParameterGroup>& groups, Tensor learning_rate)
        : groups_(groups), has_some_(groups.size()) {
        for (const ParameterGroup& group : groups)
            rates_.push_back(group.learning_rate_factor == 1 ? learning_rate
                                                             : learning_rate * group.learning_rate_factor);
    }

    /// Applies the settings of the parameter's group to the parameter and its step.
    void apply(UpdatedParameter& parameter, OptimizerStep& step) {
        const auto is_named = [&](const ParameterGroup& group) {
            return matches(group.pattern, parameter.state.name);
        };
        const auto found = std::ranges::find_if(groups_, is_named);
        if (found == groups_.end()) return;
        const auto index = static_cast<std::size_t>(found - groups_.begin());
        has_some_[index] = true;
        parameter.weight_decay = found->weight_decay;
        step.learning_rate = rates_[index];
    }

    void require_all_used() const {
        for (std::size_t i = 0; i < groups_.size(); ++i)
            if (!has_some_[i])
                throw UserError(fmt::format(
                    "group '{}': no parameter that is trained belongs to it, and to no group before it",
                    groups_[i].pattern));
    }

  private:
    const std::vector<ParameterGroup>& groups_;
    std::vector<Tensor> rates_;
    std::vector<bool> has_some_;
};

}  // namespace

Optimizer grouped(Optimizer optimizer, std::vector<ParameterGroup> groups) {
    for (const ParameterGroup& group : groups) require_group(group);
    optimizer.groups = std::move(groups);
    return optimizer;
}

Optimizer clipped(Optimizer optimizer, double norm) {
    require_clip(norm);
    optimizer.clip = norm;
    return optimizer;
}

TraceUpdate optimizer_update(const Optimizer& optimizer, const LossScaleOptions& scaling,
                             const Distribution& distribution) {
    require_clip(optimizer.clip);
    validate(scaling);
    return [=](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        const OriginScope update(graph, Origin{.scope = "", .stage = Stage::update});
        const std::string steps = optimizer.name + ".step";
        OptimizerStep shared{.learning_rate = {graph, graph.add_input("learning_rate", {DType::f32, {}})}};
        const Tensor done =
            optimizer.counts_steps
                ? added_state(graph, {.name = steps, .type = {DType::f64, {}}, .initializer = {}})
                : Tensor();
        const auto norm = norm_of_gradients(graph, gradients, distribution);
        shared.apply = logical_and(norm[1], is_finite(loss));
        const GradientScale scaled = gradient_scale(norm[0], optimizer.clip, scaling);
        shared.gradient_scale = scaled.scale;
        if (done) shared.step = done + 1.0;
        Groups groups(optimizer.groups, shared.learning_rate);
        update_all(graph, gradients, distribution, [&](UpdatedParameter parameter) {
            OptimizerStep step = shared;
            groups.apply(parameter, step);
            return optimizer.update(graph, parameter, step);
        });
        groups.require_all_used();
        if (done) graph.add_update(graph.find_state(steps), select(shared.apply, shared.step, done).value());
        apply_running_statistics(graph, shared.apply);
        update_loss_scale(graph, shared.apply, scaling);
        graph.add_result("loss", loss.value());
        // A result is a computed value, which keeps its place until it is read.
        graph.add_result("gradient_norm", scaled.norm.value());
        graph.add_result("applied", shared.apply.value());
    };
}

Tensor optimizer_state(Graph& graph, const std::string& prefix, const UpdatedParameter& parameter) {
    State state{.name = prefix + "." + parameter.state.name,
                .type = {parameter.state.type.dtype, parameter.value.shape()},
                .initializer = {}};
    if (parameter.is_shard()) state.shard_of = parameter.state.type.shape;
    return added_state(graph, std::move(state));
}

double WeightDecay::of(const UpdatedParameter& parameter) const {
    if (parameter.weight_decay) return *parameter.weight_decay;
    return matrices_only && parameter.state.type.shape.rank() < 2 ? 0.0 : rate;
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
