// Layer normalisation, RMS normalisation and softmax, each over the last axis, and their gradients.
#include <limits>

#include "mantissa/graph/call.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

/// All axes but the last.
Shape rows_of(const Type& type) {
    std::vector<std::int64_t> extents = type.shape.extents();
    extents.pop_back();
    return Shape(extents);
}

/// The type that statistics of a tensor have: FP32, or FP64 where the tensor is.
DType statistics_dtype(const Type& type) { return type.dtype == DType::f64 ? DType::f64 : DType::f32; }

/// [rows] -> [rows, 1], to stand beside [rows, C].
Tensor column(Tensor x) {
    std::vector<std::int64_t> extents = x.shape().extents();
    extents.push_back(1);
    return reshape(x, Shape(extents));
}

void expect_channels(const OpCall& call, std::size_t index, const Type& x) {
    expect_shape(call, index, {x.shape[-1]});
}

std::vector<Type> layer_norm_types(const OpCall& call) {
    const Type& x = call.inputs[0];
    expect_floating(call, 0);
    expect(x.shape.rank() >= 1, "a scalar has no axis to normalise");
    expect_channels(call, 1, x);
    expect_channels(call, 2, x);
    const Type statistics{statistics_dtype(x), rows_of(x)};
    return {x, statistics, statistics};
}

/// y, mean, 1/sigma.
std::vector<Tensor> layer_norm_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]);
    const Tensor row_mean = mean(x, {-1});
    const Tensor centered = x - column(row_mean);
    const Tensor variance = mean(centered * centered, {-1});
    const Tensor reciprocal = rsqrt(variance + call.attributes.number("epsilon"));
    const Tensor y = centered * column(reciprocal) * as_f32(call.inputs[1]) + as_f32(call.inputs[2]);
    return {cast(y, call.inputs[0].dtype()), row_mean, reciprocal};
}

std::vector<Tensor> layer_norm_gradient(const GradientCall& c) {
    check(!c.cotangents[1] && !c.cotangents[2], "the statistics of layer_norm are not differentiated");
    return call(c.graph, "layer_norm_grad",
                std::vector{c.cotangents[0], c.inputs[0], c.inputs[1], c.outputs[1], c.outputs[2]},
                c.attributes);
}

/// dy, x, gamma, mean, 1/sigma -> dx, dgamma, dbeta.
std::vector<Type> layer_norm_grad_types(const OpCall& call) {
    const Type& x = call.inputs[1];
    expect_shape(call, 0, x.shape);
    expect_channels(call, 2, x);
    expect_shape(call, 3, rows_of(x));
    expect_shape(call, 4, rows_of(x));
    return {x, call.inputs[2], call.inputs[2]};
}

std::vector<Tensor> layer_norm_grad_definition(const DefinitionCall& call) {
    const Tensor dy = call.inputs[0], x = call.inputs[1], gamma = call.inputs[2];
    const Tensor beta =
        constant(call.graph, 0.0, gamma.dtype(), gamma.shape());  // its value changes no gradient
    return differentiate_definition({.op = "layer_norm",
                                     .inputs = {x, gamma, beta},
                                     .cotangents = {dy, {}, {}},
                                     .saved = {{1, call.inputs[3]}, {2, call.inputs[4]}}},
                                    call.graph, call.attributes);
}

std::vector<Type> rms_norm_types(const OpCall& call) {
    const Type& x = call.inputs[0];
    expect_floating(call, 0);
    expect(x.shape.rank() >= 1, "a scalar has no axis to normalise");
    expect_channels(call, 1, x);
    return {x, {statistics_dtype(x), rows_of(x)}};
}

/// y, 1 / sqrt(mean(x^2) + epsilon).
std::vector<Tensor> rms_norm_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]);
    const Tensor reciprocal = rsqrt(mean(x * x, {-1}) + call.attributes.number("epsilon"));
    return {cast(x * column(reciprocal) * as_f32(call.inputs[1]), call.inputs[0].dtype()), reciprocal};
}

std::vector<Tensor> rms_norm_gradient(const GradientCall& c) {
    check(!c.cotangents[1], "the statistics of rms_norm are not differentiated");
    return call(c.graph, "rms_norm_grad",
                std::vector{c.cotangents[0], c.inputs[0], c.inputs[1], c.outputs[1]}, c.attributes);
}

/// dy, x, gamma, 1 / sqrt(mean(x^2) + epsilon) -> dx, dgamma.
std::vector<Type> rms_norm_grad_types(const OpCall& call) {
    const Type& x = call.inputs[1];
    expect_shape(call, 0, x.shape);
    expect_channels(call, 2, x);
    expect_shape(call, 3, rows_of(x));
    return {x, call.inputs[2]};
}

std::vector<Tensor> rms_norm_grad_definition(const DefinitionCall& call) {
    return differentiate_definition({.op = "rms_norm",
                                     .inputs = {call.inputs[1], call.inputs[2]},
                                     .cotangents = {call.inputs[0], {}},
                                     .saved = {{1, call.inputs[3]}}},
                                    call.graph, call.attributes);
}

std::vector<Type> softmax_types(const OpCall& call) {
    expect_floating(call, 0);
    expect(call.inputs[0].shape.rank() >= 1, "a scalar has no axis to normalise");
    return {call.inputs[0]};
}

/// The maximum is subtracted so that nothing overflows; the result does not depend on it, so neither does the
/// gradient. Where the attribute asks for it, a row of -infinity only has neither maximum nor sum.
std::vector<Tensor> softmax_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]);
    Tensor highest = stop_gradient(max(x, {-1}, KeepAxes::yes)), none;
    const auto number = [&](double value) { return constant(call.graph, value, x.dtype()); };
    if (call.attributes.has("zero_rows")) {
        none = equal(highest, number(-std::numeric_limits<double>::infinity()));
        highest = select(none, number(0), highest);
    }
    const Tensor e = exp(x - highest);
    Tensor total = sum(e, {-1}, KeepAxes::yes);
    if (none) total = select(none, number(1), total);
    return {cast(e / total, call.inputs[0].dtype())};
}

std::vector<Tensor> softmax_gradient(const GradientCall& c) {
    return {call1("softmax_grad", {c.cotangents[0], c.outputs[0]})};
}

/// dy, y -> dx.
std::vector<Type> softmax_grad_types(const OpCall& call) {
    expect_shape(call, 0, call.inputs[1].shape);
    return {call.inputs[1]};
}

/// Written by hand: the gradient made by the machine would need x, which nothing else keeps, where y is
/// enough.
std::vector<Tensor> softmax_grad_definition(const DefinitionCall& call) {
    const Tensor dy = as_f32(call.inputs[0]), y = as_f32(call.inputs[1]);
    return {cast(y * (dy - sum(dy * y, {-1}, KeepAxes::yes)), call.inputs[1].dtype())};
}

}  // namespace

std::span<const Op> normalization_ops() {
    // Flops per element: the arithmetic of the definitions; an exponential counts ten.
    static const std::vector<Op> rows = {
        {.name = "layer_norm",
         .min_inputs = 3,
         .types = layer_norm_types,
         .gradient = layer_norm_gradient,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<8>,
         .definition = layer_norm_definition},
        {.name = "layer_norm_grad",
         .min_inputs = 5,
         .types = layer_norm_grad_types,
         .no_gradient = no_second_derivative,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<13>,
         .definition = layer_norm_grad_definition},
        {.name = "rms_norm",
         .min_inputs = 2,
         .types = rms_norm_types,
         .gradient = rms_norm_gradient,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<4>,
         .definition = rms_norm_definition},
        {.name = "rms_norm_grad",
         .min_inputs = 4,
         .types = rms_norm_grad_types,
         .no_gradient = no_second_derivative,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<10>,
         .definition = rms_norm_grad_definition},
        {.name = "softmax",
         .types = softmax_types,
         .gradient = softmax_gradient,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<14>,
         .definition = softmax_definition},
        {.name = "softmax_grad",
         .min_inputs = 2,
         .types = softmax_grad_types,
         .no_gradient = no_second_derivative,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<4>,
         .definition = softmax_grad_definition},
    };
    return rows;
}

}  // namespace mantissa
