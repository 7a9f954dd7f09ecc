// GELU and dropout, and their gradients.
#include <cmath>
#include <numbers>

#include "mantissa/graph/gradient.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

std::vector<Type> gelu_types(const OpCall& call) {
    expect_floating(call, 0);
    return {call.inputs[0]};
}

/// Its tanh form, as GPT-2 was trained with.
std::vector<Tensor> gelu_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]);
    const Tensor inner = (x + x * x * x * 0.044715) * std::sqrt(2.0 * std::numbers::inv_pi);
    return {cast(x * 0.5 * (tanh(inner) + 1.0), call.inputs[0].dtype())};
}

std::vector<Tensor> gelu_gradient(const GradientCall& c) {
    return {call1("gelu_grad", {c.cotangents[0], c.inputs[0]}, c.attributes)};
}

/// dy, x -> dx.
std::vector<Type> gelu_grad_types(const OpCall& call) {
    expect_shape(call, 0, call.inputs[1].shape);
    return {call.inputs[1]};
}

std::vector<Tensor> gelu_grad_definition(const DefinitionCall& call) {
    return differentiate_definition(
        {.op = "gelu", .inputs = {call.inputs[1]}, .cotangents = {call.inputs[0]}, .saved = {}}, call.graph,
        call.attributes);
}

std::vector<Type> dropout_types(const OpCall& call) {
    expect_floating(call, 0);
    const double rate = call.attributes.number("rate");
    expect(rate > 0 && rate < 1, "the rate must lie between 0 and 1, got {}", rate);
    for (std::size_t i : {1u, 2u}) {
        expect_dtype(call, i, DType::i64);
        expect_shape(call, i, {});
    }
    return {call.inputs[0]};
}

/// x, seed, step -> y. The kept elements are those whose random number reaches the rate.
std::vector<Tensor> dropout_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]);
    const double rate = call.attributes.number("rate");
    const Tensor random =
        random_uniform(call.inputs[1], call.inputs[2], call.attributes.integer("operation"), x.shape());
    const Tensor dropped = less(random, constant(call.graph, rate));
    const Tensor kept = x * (1.0 / (1.0 - rate));
    return {cast(select(dropped, constant(call.graph, 0.0, kept.dtype()), kept), call.inputs[0].dtype())};
}

/// Dropout is linear in x with the same mask: its gradient is itself.
std::vector<Tensor> dropout_gradient(const GradientCall& c) {
    return {call1("dropout", {c.cotangents[0], c.inputs[1], c.inputs[2]}, c.attributes), Tensor{}, Tensor{}};
}

}  // namespace

std::span<const Op> activation_ops() {
    static const std::vector<Op> rows = {
        {.name = "gelu",
         .types = gelu_types,
         .gradient = gelu_gradient,
         .fuser = FuserClass::elementwise,
         .flops = flops_per_input<23>,
         .definition = gelu_definition},
        {.name = "gelu_grad",
         .least_inputs = 2,
         .most_inputs = 2,
         .types = gelu_grad_types,
         .no_gradient = "second derivatives are not taken",
         .fuser = FuserClass::elementwise,
         .flops = flops_per_input<32>,
         .definition = gelu_grad_definition},
        {.name = "dropout",
         .least_inputs = 3,
         .most_inputs = 3,
         .types = dropout_types,
         .gradient = dropout_gradient,
         .fuser = FuserClass::elementwise,
         .flops = flops_per_input<22>,
         .definition = dropout_definition},
    };
    return rows;
}

}  // namespace mantissa
