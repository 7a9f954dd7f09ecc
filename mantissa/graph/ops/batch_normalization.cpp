// Batch normalisation: channels, the last axis, normalised by their mean and variance over all other axes,
// and its gradient. Also its two halves: statistics, and normalisation by given statistics.
//
// Operands that are images may be of 16 bits, as they come; statistics are FP32, as scales are.
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

/// The statistics of a tensor's channels: FP32, or FP64 where the tensor is.
Type statistics_of(const Type& x) { return {x.dtype == DType::f64 ? DType::f64 : DType::f32, {x.shape[-1]}}; }

void expect_channels(const OpCall& call, std::size_t x) {
    expect_floating(call, x);
    expect(call.inputs[x].shape.rank() >= 1, "a scalar has no channels to normalise");
    const double epsilon = call.attributes.number("epsilon");
    expect(epsilon >= 0, "epsilon must not be negative, got {}", epsilon);
}

void expect_scale(const OpCall& call, std::size_t index, const Type& x) {
    expect_floating(call, index);
    expect_shape(call, index, {x.shape[-1]});
}

std::vector<std::int64_t> all_axes_but_last(const Tensor& x) {
    std::vector<std::int64_t> axes;
    for (int axis = 0; axis + 1 < x.rank(); ++axis) axes.push_back(axis);
    return axes;
}

std::vector<Type> moments_types(const OpCall& call) {
    expect_channels(call, 0);
    return std::vector<Type>(3, statistics_of(call.inputs[0]));
}

/// The origin of a definition's nodes in a later walk over its operands. Each walk begins with the operands
/// as they are stored: FP32 images, centered or not, are never in memory.
Origin in_walk(const Graph& graph, std::string_view rule) {
    Origin origin = graph.origin;
    origin.rule = rule;
    return origin;
}

/// x -> mean, variance, 1/sigma. From centered values, so that nothing cancels where the mean is large. The
/// variance does not change with the mean that is subtracted (its derivative is the sum of all centered
/// values, 0), so none is taken.
std::vector<Tensor> moments_definition(const DefinitionCall& call) {
    const std::vector<std::int64_t> axes = all_axes_but_last(call.inputs[0]);
    const Tensor channel_mean = mean(as_f32(call.inputs[0]), axes);
    const OriginScope scope(call.graph, in_walk(call.graph, second_walk_rule));
    const Tensor centered = as_f32(call.inputs[0]) - stop_gradient(channel_mean);
    const Tensor variance = mean(centered * centered, axes);
    return {channel_mean, variance, rsqrt(variance + call.attributes.number("epsilon"))};
}

std::vector<Tensor> moments_gradient(const GradientCall& c) {
    return differentiate_definition({.op = "moments",
                                     .inputs = {c.inputs[0]},
                                     .cotangents = {c.cotangents.begin(), c.cotangents.end()},
                                     .saved = {{0, c.outputs[0]}, {1, c.outputs[1]}, {2, c.outputs[2]}}},
                                    c.graph, c.attributes);
}

Tensor normalized(Tensor x, Tensor gamma, Tensor beta, Tensor mean, Tensor reciprocal) {
    const Tensor y = (as_f32(x) - mean) * (reciprocal * as_f32(gamma)) + as_f32(beta);
    return cast(y, x.dtype());
}

/// x, gamma, beta -> y, mean, variance, 1/sigma.
std::vector<Type> batch_norm_types(const OpCall& call) {
    const Type& x = call.inputs[0];
    expect_channels(call, 0);
    for (std::size_t i : {1u, 2u}) expect_scale(call, i, x);
    return {x, statistics_of(x), statistics_of(x), statistics_of(x)};
}

std::vector<Tensor> batch_norm_definition(const DefinitionCall& call) {
    const std::vector<Tensor> moments =
        mantissa::call(call.graph, "moments", call.inputs.first(1), call.attributes);
    const OriginScope scope(call.graph, in_walk(call.graph, third_walk_rule));
    const Tensor y = normalized(call.inputs[0], call.inputs[1], call.inputs[2], moments[0], moments[2]);
    return {y, moments[0], moments[1], moments[2]};
}

std::vector<Tensor> batch_norm_gradient(const GradientCall& c) {
    expect(c.cotangents[0] && !c.cotangents[1] && !c.cotangents[2] && !c.cotangents[3],
           "a loss may depend on batch_norm's y; its statistics have no gradient: compute them once more, or "
           "put stop_gradient before their use");
    return call(c.graph, "batch_norm_grad",
                std::vector{c.cotangents[0], c.inputs[0], c.inputs[1], c.outputs[1], c.outputs[3]},
                c.attributes);
}

/// dy, x, gamma, mean, 1/sigma -> dx, dgamma, dbeta.
std::vector<Type> batch_norm_grad_types(const OpCall& call) {
    const Type& x = call.inputs[1];
    expect_channels(call, 1);
    expect_shape(call, 0, x.shape);
    expect_scale(call, 2, x);
    for (std::size_t i : {3u, 4u})
        expect(call.inputs[i] == statistics_of(x), "operand {} must be {}, got {}", i,
               statistics_of(x).text(), call.inputs[i].text());
    return {x, call.inputs[2], call.inputs[2]};
}

/// Written by hand, as softmax_grad is: the machine's own keeps centered and scaled values of every element
/// between the sums and dx, two images in FP32.
std::vector<Tensor> batch_norm_grad_definition(const DefinitionCall& call) {
    const Tensor mean = call.inputs[3], reciprocal = call.inputs[4];
    const auto dy = [&] { return as_f32(call.inputs[0]); };
    const auto x = [&] { return as_f32(call.inputs[1]); };
    const std::vector<std::int64_t> axes = all_axes_but_last(call.inputs[1]);
    const Tensor first = dy(), sum_dy = sum(first, axes), sum_dy_x = sum(first * (x() - mean), axes);
    const DType scale_dtype = call.inputs[2].dtype();
    const std::vector<Tensor> sums = {cast(sum_dy_x * reciprocal, scale_dtype), cast(sum_dy, scale_dtype)};
    const OriginScope scope(call.graph, in_walk(call.graph, second_walk_rule));
    const double share = 1.0 / static_cast<double>(first.shape().elements() / mean.dim(0));
    // Added, not subtracted: a product and a sum are rounded once together. Centered as above, so that fusion
    // finds the same value in the first walk, and does not let that walk write it.
    const Tensor slope = sum_dy_x * (reciprocal * reciprocal) * -share;
    const Tensor dx = (dy() - sum_dy * share + (x() - mean) * slope) * (as_f32(call.inputs[2]) * reciprocal);
    return {cast(dx, call.inputs[1].dtype()), sums[0], sums[1]};
}

/// x, gamma, beta, mean, variance -> y.
std::vector<Type> normalize_types(const OpCall& call) {
    const Type& x = call.inputs[0];
    expect_channels(call, 0);
    for (std::size_t i : {1u, 2u, 3u, 4u}) expect_scale(call, i, x);
    return {x};
}

std::vector<Tensor> normalize_definition(const DefinitionCall& call) {
    const Tensor variance = as_f32(call.inputs[4]);
    return {normalized(call.inputs[0], call.inputs[1], call.inputs[2], as_f32(call.inputs[3]),
                       rsqrt(variance + call.attributes.number("epsilon")))};
}

std::vector<Tensor> normalize_gradient(const GradientCall& c) {
    return differentiate_definition({.op = "normalize",
                                     .inputs = {c.inputs.begin(), c.inputs.end()},
                                     .cotangents = {c.cotangents[0]},
                                     .saved = {}},
                                    c.graph, c.attributes);
}

/// before [C], statistic [C], or both of any other shape -> (1 - momentum) before + momentum statistic. The
/// momentum is PyTorch's: 1 minus Keras'. Statistics [N, C] are taken one after another.
std::vector<Type> running_average_types(const OpCall& call) {
    for (std::size_t i : {0u, 1u}) expect_dtype(call, i, DType::f32);
    const Shape &before = call.inputs[0].shape, &statistic = call.inputs[1].shape;
    const bool in_rows = before.rank() == 1 && statistic.rank() == 2 && statistic[-1] == before[0];
    expect(statistic == before || in_rows,
           "statistics of {} must be of as many channels, in one row or several, got {}",
           call.inputs[0].text(), call.inputs[1].text());
    const double momentum = call.attributes.number("momentum");
    expect(momentum >= 0 && momentum <= 1, "the momentum must lie between 0 and 1, got {}", momentum);
    return {call.inputs[0]};
}

/// histories [C, L], the newest number last, numbers [C] or several rows of them.
std::vector<Type> running_history_types(const OpCall& call) {
    for (std::size_t i : {0u, 1u}) expect_dtype(call, i, DType::f32);
    const Shape &before = call.inputs[0].shape, &added = call.inputs[1].shape;
    expect(before.rank() == 2 && before[1] >= 1 && added.rank() >= 1 && added.rank() <= 2 &&
               added[-1] == before[0],
           "numbers for {} must be one a history, in one row or several, got {}", call.inputs[0].text(),
           call.inputs[1].text());
    return {call.inputs[0]};
}

std::vector<Tensor> running_history_definition(const DefinitionCall& call) {
    Tensor history = call.inputs[0];
    const std::int64_t C = history.dim(0), L = history.dim(1);
    const Tensor added = reshape(call.inputs[1], {call.inputs[1].shape().elements() / C, C});
    for (std::int64_t row = 0; row < added.dim(0); ++row) {
        const Tensor newest = reshape(slice(added, 0, row, row + 1), {C, 1});
        history = L == 1 ? newest : concat(std::vector{slice(history, 1, 1, L), newest}, 1);
    }
    return {history};
}

std::vector<Tensor> running_average_definition(const DefinitionCall& call) {
    const double momentum = call.attributes.number("momentum");
    const auto blended = [&](Tensor before, Tensor statistic) {
        return before * (1 - momentum) + statistic * momentum;
    };
    Tensor average = call.inputs[0];
    const Tensor statistics = call.inputs[1];
    if (statistics.shape() == average.shape()) return {blended(average, statistics)};
    for (std::int64_t row = 0; row < statistics.dim(0); ++row)
        average = blended(average, reshape(slice(statistics, 0, row, row + 1), average.shape()));
    return {average};
}

}  // namespace

std::span<const Op> batch_normalization_ops() {
    // Flops per element: the arithmetic of the definitions.
    static const std::vector<Op> rows = {
        {.name = "moments",
         .types = moments_types,
         .gradient = moments_gradient,
         .flops = flops_per_input<4>,
         .definition = moments_definition},
        {.name = "batch_norm",
         .min_inputs = 3,
         .types = batch_norm_types,
         .gradient = batch_norm_gradient,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<7>,
         .definition = batch_norm_definition},
        {.name = "batch_norm_grad",
         .min_inputs = 5,
         .types = batch_norm_grad_types,
         .no_gradient = no_second_derivative,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<10>,
         .definition = batch_norm_grad_definition},
        {.name = "normalize",
         .min_inputs = 5,
         .types = normalize_types,
         .gradient = normalize_gradient,
         .fuser = FuserClass::elementwise,
         .flops = flops_per_input<3>,
         .definition = normalize_definition},
        {.name = "running_average",
         .min_inputs = 2,
         .types = running_average_types,
         .no_gradient = "it is an update, through which nothing is differentiated",
         // No pass makes it part of another operation: it has the same bits wherever statistics come from.
         .flops = flops_per_input<3>,
         .definition = running_average_definition},
        {.name = "running_history",
         .min_inputs = 2,
         .types = running_history_types,
         .no_gradient = "it is an update, through which nothing is differentiated",
         .definition = running_history_definition},
    };
    return rows;
}

}  // namespace mantissa
