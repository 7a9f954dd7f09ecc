#include "mantissa/train/loss_scale.h"

#include <fmt/format.h>

#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

namespace {

constexpr const char* scale_name = "loss_scale.scale";

/// Scales that FP32 can hold, and their reciprocals, which multiply gradients: the reciprocals of 2^127 and
/// 2^128 are subnormal and flushed to 0.
constexpr double min_scale = 0x1p-100, max_scale = 0x1p100;

Tensor scalar_state(Graph& graph, const std::string& name, DType dtype, double start) {
    return {graph, graph.add_state({.kind = State::Kind::optimizer,
                                    .name = name,
                                    .type = {dtype, {}},
                                    .initializer = {.kind = Initializer::Kind::constant, .mean = start}})};
}

void update(Graph& graph, const std::string& name, Tensor value) {
    graph.add_update(graph.find_state(name), value.value());
}

}  // namespace

void validate(const LossScaleOptions& options) {
    if (options.kind == LossScaleOptions::Kind::none || options.kind == LossScaleOptions::Kind::by_policy)
        return;
    const auto require = [](bool holds, const char* what, double got) {
        if (!holds) throw UserError(fmt::format("{}, got {}", what, got));
    };
    require(options.initial >= min_scale && options.initial <= max_scale,
            "the loss scale must lie between 2^-100 and 2^100", options.initial);
    if (options.kind == LossScaleOptions::Kind::fixed) return;
    require(options.growth >= 1 && std::isfinite(options.growth),
            "the growth of the loss scale must be 1 or more", options.growth);
    require(options.backoff > 0 && options.backoff < 1,
            "the backoff of the loss scale must lie between 0 and 1", options.backoff);
    require(options.floor >= min_scale && options.floor <= options.initial,
            "the floor of the loss scale must be 2^-100 or more and not above the initial scale",
            options.floor);
    require(options.interval >= 1, "the interval of the loss scale must be 1 step or more",
            static_cast<double>(options.interval));
}

LossScaleOptions default_loss_scale(const Policy& policy) {
    return {.kind =
                policy.needs_loss_scale() ? LossScaleOptions::Kind::dynamic : LossScaleOptions::Kind::none};
}

Tensor loss_scale(Graph& graph, const LossScaleOptions& options) {
    validate(options);
    switch (options.kind) {
        case LossScaleOptions::Kind::by_policy:
        case LossScaleOptions::Kind::none:
            return {};
        case LossScaleOptions::Kind::fixed:
            return constant(graph, options.initial);
        case LossScaleOptions::Kind::dynamic:
            break;
    }
    if (const int known = graph.find_state(scale_name); known >= 0)
        return {graph, {graph.state(known).node, 0}};
    return scalar_state(graph, scale_name, DType::f32, options.initial);
}

void update_loss_scale(Graph& graph, Tensor applied, const LossScaleOptions& options) {
    if (options.kind != LossScaleOptions::Kind::dynamic) return;
    const Tensor scale = loss_scale(graph, options);
    const Tensor good = scalar_state(graph, "loss_scale.good_steps", DType::f64, 0);
    const Tensor skipped = scalar_state(graph, "loss_scale.skipped", DType::f64, 0);
    const Tensor zero = constant(graph, 0.0, DType::f64);

    const Tensor lowered = maximum(scale * options.backoff, constant(graph, options.floor));
    const Tensor next_good = good + 1.0;
    // A run that continues with a shorter interval may have counted past it.
    const Tensor is_due =
        less_equal(constant(graph, static_cast<double>(options.interval), DType::f64), next_good);
    // At the end of its range the scale stays as it is.
    const Tensor raised = scale * options.growth;
    const Tensor fits = less_equal(raised, constant(graph, max_scale));
    const Tensor grown = select(logical_and(is_due, fits), raised, scale);
    update(graph, scale_name, select(applied, grown, lowered));
    update(graph, "loss_scale.good_steps", select(applied, select(is_due, zero, next_good), zero));
    update(graph, "loss_scale.skipped", select(applied, skipped, skipped + 1.0));
}

}  // namespace mantissa
