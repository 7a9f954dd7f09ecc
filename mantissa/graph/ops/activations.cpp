// Activations and dropout, and their gradients.
#include <cmath>
#include <numbers>

#include "mantissa/graph/call.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

// Names as template arguments, which must have linkage.
constexpr std::string_view gelu_name = "gelu", gelu_grad_name = "gelu_grad";
constexpr std::string_view erf_gelu_name = "erf_gelu", erf_gelu_grad_name = "erf_gelu_grad";
constexpr std::string_view relu_name = "relu";
constexpr std::string_view sigmoid_name = "sigmoid", sigmoid_grad_name = "sigmoid_grad";
constexpr std::string_view elu_name = "elu", elu_grad_name = "elu_grad";
constexpr std::string_view softplus_name = "softplus", softplus_grad_name = "softplus_grad";
constexpr std::string_view swish_name = "swish", swish_grad_name = "swish_grad";

/// x -> y, element by element.
std::vector<Type> activation_types(const OpCall& call) {
    expect_floating(call, 0);
    return {call.inputs[0]};
}

/// dy, x -> dx.
std::vector<Type> activation_grad_types(const OpCall& call) {
    expect_shape(call, 0, call.inputs[1].shape);
    return {call.inputs[1]};
}

/// The gradient of the activation whose gradient's name is `name`.
template <const std::string_view& name>
std::vector<Tensor> gradient_by_x(const GradientCall& c) {
    return {call1(name, {c.cotangents[0], c.inputs[0]}, c.attributes)};
}

/// dy, x -> dx: the definition of `name`, differentiated.
template <const std::string_view& name>
std::vector<Tensor> grad_definition(const DefinitionCall& call) {
    return differentiate_definition(
        {.op = name, .inputs = {call.inputs[1]}, .cotangents = {call.inputs[0]}, .saved = {}}, call.graph,
        call.attributes);
}

Tensor number(const DefinitionCall& call, double value, const Tensor& beside) {
    return constant(call.graph, value, beside.dtype());
}

/// NaN stays, since it is not less than anything.
std::vector<Tensor> relu_definition(const DefinitionCall& call) {
    const Tensor x = call.inputs[0], zero = number(call, 0.0, x);
    return {select(less_equal(x, zero), zero, x)};
}

/// The gradient of relu is the same at relu(x): y is 0 just where x is not above it. y is kept anyway, by its
/// readers.
std::vector<Tensor> relu_gradient(const GradientCall& c) {
    return {call1("relu_grad", {c.cotangents[0], c.outputs[0]})};
}

/// 1 / (1 + exp(-x)), for x below 0 as exp(x) / (1 + exp(x)): no exponential overflows, so that gradients
/// far out are 0 and not infinity times 0.
Tensor logistic(const DefinitionCall& call, Tensor x) {
    const Tensor is_negative = less(x, number(call, 0.0, x)), one = number(call, 1.0, x);
    const Tensor e = exp(select(is_negative, x, -x));
    return select(is_negative, e, one) / (e + 1.0);
}

std::vector<Tensor> sigmoid_definition(const DefinitionCall& call) {
    return {cast(logistic(call, as_f32(call.inputs[0])), call.inputs[0].dtype())};
}

std::vector<Tensor> swish_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]);
    return {cast(x * logistic(call, x), call.inputs[0].dtype())};
}

/// The operand of the exponential is selected first: where x is above 0 the gradient by it is 0 times a
/// finite number.
std::vector<Tensor> elu_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]), zero = number(call, 0.0, x);
    const Tensor is_positive = less(zero, x);
    const Tensor below = (exp(select(is_positive, zero, x)) - 1.0) * call.attributes.number("alpha");
    return {cast(select(is_positive, x, below), call.inputs[0].dtype())};
}

/// max(x, 0) + log(1 + exp(-|x|)).
std::vector<Tensor> softplus_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]), zero = number(call, 0.0, x);
    const Tensor is_positive = less(zero, x);
    const Tensor rest = log(exp(select(is_positive, -x, x)) + 1.0);
    return {cast(select(is_positive, x, zero) + rest, call.inputs[0].dtype())};
}

/// Its tanh form, as GPT-2 was trained with.
std::vector<Tensor> gelu_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]);
    const Tensor inner = (x + x * x * x * 0.044715) * std::sqrt(2.0 * std::numbers::inv_pi);
    return {cast(x * 0.5 * (tanh(inner) + 1.0), call.inputs[0].dtype())};
}

/// x Phi(x), as Hendrycks and Gimpel define it (2016).
std::vector<Tensor> erf_gelu_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]);
    return {cast(x * 0.5 * (erf(x * std::sqrt(0.5)) + 1.0), call.inputs[0].dtype())};
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

/// x, seed, step -> y. An element is kept if its random number reaches the rate.
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

template <const std::string_view& gradient>
Op activation(std::string_view name, Definition definition, CostRule flops) {
    return {.name = name,
            .types = activation_types,
            .gradient = gradient_by_x<gradient>,
            .fuser = FuserClass::elementwise,
            .flops = flops,
            .definition = definition};
}

template <const std::string_view& of>
Op gradient(std::string_view name, CostRule flops) {
    return {.name = name,
            .min_inputs = 2,
            .types = activation_grad_types,
            .no_gradient = no_second_derivative,
            .fuser = FuserClass::elementwise,
            .flops = flops,
            .definition = grad_definition<of>};
}

Op written_over_first(Op row) {
    row.in_place = {0};
    return row;
}

}  // namespace

std::span<const Op> activation_ops() {
    // Flops: an exponential counts ten, a logarithm twelve.
    static const std::vector<Op> rows = {
        activation<gelu_grad_name>(gelu_name, gelu_definition, flops_per_input<23>),
        gradient<gelu_name>(gelu_grad_name, flops_per_input<32>),
        activation<erf_gelu_grad_name>(erf_gelu_name, erf_gelu_definition, flops_per_input<19>),
        gradient<erf_gelu_name>(erf_gelu_grad_name, flops_per_input<32>),
        {.name = "relu",
         .types = activation_types,
         .gradient = relu_gradient,
         .fuser = FuserClass::elementwise,
         .flops = flops_per_input<1>,
         .definition = relu_definition,
         .in_place = {0}},
        written_over_first(gradient<relu_name>("relu_grad", flops_per_input<1>)),
        activation<sigmoid_grad_name>(sigmoid_name, sigmoid_definition, flops_per_input<13>),
        gradient<sigmoid_name>(sigmoid_grad_name, flops_per_input<17>),
        activation<elu_grad_name>(elu_name, elu_definition, flops_per_input<13>),
        gradient<elu_name>(elu_grad_name, flops_per_input<14>),
        activation<softplus_grad_name>(softplus_name, softplus_definition, flops_per_input<25>),
        gradient<softplus_name>(softplus_grad_name, flops_per_input<16>),
        activation<swish_grad_name>(swish_name, swish_definition, flops_per_input<14>),
        gradient<swish_name>(swish_grad_name, flops_per_input<19>),
        {.name = "dropout",
         .min_inputs = 3,
         .types = dropout_types,
         .gradient = dropout_gradient,
         .fuser = FuserClass::elementwise,
         .flops = flops_per_input<22>,
         .definition = dropout_definition},
    };
    return rows;
}

}  // namespace mantissa
