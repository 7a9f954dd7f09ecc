// Element-wise primitives. Two and three operands broadcast; operands of one node have one floating-point
// type.
#include <cmath>
#include <functional>
#include <numbers>

#include "mantissa/graph/call.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

std::vector<Type> unary(const OpCall& call) {
    expect_floating(call, 0);
    return {call.inputs[0]};
}

/// Any type of number, as `neg`, `add` and the like take.
void expect_number(const OpCall& call, std::size_t index) {
    expect(call.inputs[index].dtype != DType::boolean, "operand {} must be a number, got {}", index,
           call.inputs[index].text());
}

std::vector<Type> arithmetic(const OpCall& call) {
    expect_number(call, 0);
    return {{common_dtype(call, 0, 1), broadcast_shape(call.inputs[0].shape, call.inputs[1].shape)}};
}

/// Division of integers is left out: it has no one meaning, and nothing asks for it.
std::vector<Type> division(const OpCall& call) {
    expect_floating(call, 0);
    return arithmetic(call);
}

/// x [..., C], bias [C] -> as x.
std::vector<Type> add_bias_types(const OpCall& call) {
    expect_floating(call, 0);
    expect_dtype(call, 1, call.inputs[0].dtype);
    expect_shape(call, 1, {call.inputs[0].shape[-1]});
    return {call.inputs[0]};
}

std::vector<Tensor> add_bias_definition(const DefinitionCall& call) {
    const Tensor x = call.inputs[0];
    return {cast(as_f32(x) + as_f32(call.inputs[1]), x.dtype())};
}

/// As a contraction's bias: its gradient is summed and kept in the parameter's format.
std::vector<Tensor> add_bias_gradient(const GradientCall& c) {
    const Tensor dy = c.cotangents[0], bias = c.inputs[1];
    return {dy, reduce_to(dy, bias.shape(), gradient_dtype(bias))};
}

std::vector<Type> comparison(const OpCall& call) { return {{DType::boolean, arithmetic(call)[0].shape}}; }

std::vector<Type> logical(const OpCall& call) {
    expect_dtype(call, 0, DType::boolean);
    expect_dtype(call, 1, DType::boolean);
    return {{DType::boolean, broadcast_shape(call.inputs[0].shape, call.inputs[1].shape)}};
}

std::vector<Type> select_types(const OpCall& call) {
    expect_dtype(call, 0, DType::boolean);
    const DType dtype = common_dtype(call, 1, 2);
    const Shape values = broadcast_shape(call.inputs[1].shape, call.inputs[2].shape);
    return {{dtype, broadcast_shape(call.inputs[0].shape, values)}};
}

/// a b + c, rounded once.
std::vector<Type> fma_types(const OpCall& call) {
    const Shape product = broadcast_shape(call.inputs[0].shape, call.inputs[1].shape);
    expect_floating(call, 0);
    common_dtype(call, 0, 1);
    return {{common_dtype(call, 1, 2), broadcast_shape(product, call.inputs[2].shape)}};
}

std::vector<Type> is_finite_types(const OpCall& call) {
    expect_floating(call, 0);
    return {{DType::boolean, call.inputs[0].shape}};
}

/// The formats that contractions of other machines multiply.
std::vector<Type> round_to_types(const OpCall& call) {
    expect_dtype(call, 0, DType::f32);
    const std::string& format = call.attributes.word("format");
    expect(format == "tf32" || format == "bf16" || format == "f16",
           "numbers are rounded to tf32, bf16 or f16, got {}", format);
    return {call.inputs[0]};
}

std::vector<Type> cast_types(const OpCall& call) {
    return {{call.attributes.dtype("dtype"), call.inputs[0].shape}};
}

std::vector<Type> any_type(const OpCall& call) { return {call.inputs[0]}; }

std::vector<Tensor> neg_gradient(const GradientCall& c) { return {-c.cotangents[0]}; }
std::vector<Tensor> exp_gradient(const GradientCall& c) { return {c.cotangents[0] * c.outputs[0]}; }
std::vector<Tensor> log_gradient(const GradientCall& c) { return {c.cotangents[0] / c.inputs[0]}; }
std::vector<Tensor> tanh_gradient(const GradientCall& c) {
    const Tensor y = c.outputs[0];
    return {c.cotangents[0] * (-(y * y) + 1.0)};
}
std::vector<Tensor> erf_gradient(const GradientCall& c) {
    const Tensor x = c.inputs[0];
    return {c.cotangents[0] * (exp(-(x * x)) * (2.0 * std::numbers::inv_sqrtpi))};
}
std::vector<Tensor> sin_gradient(const GradientCall& c) { return {c.cotangents[0] * cos(c.inputs[0])}; }
std::vector<Tensor> cos_gradient(const GradientCall& c) { return {-(c.cotangents[0] * sin(c.inputs[0]))}; }
std::vector<Tensor> sqrt_gradient(const GradientCall& c) { return {c.cotangents[0] / (c.outputs[0] * 2.0)}; }
std::vector<Tensor> rsqrt_gradient(const GradientCall& c) {
    const Tensor y = c.outputs[0];
    return {c.cotangents[0] * (y * y * y * -0.5)};
}
std::vector<Tensor> cast_gradient(const GradientCall& c) {
    if (!is_floating(c.inputs[0].dtype())) return {Tensor{}};
    return {cast(c.cotangents[0], c.inputs[0].dtype())};
}
std::vector<Tensor> add_gradient(const GradientCall& c) {
    return {onto(c, 0, c.cotangents[0]), onto(c, 1, c.cotangents[0])};
}
std::vector<Tensor> sub_gradient(const GradientCall& c) {
    return {onto(c, 0, c.cotangents[0]), onto(c, 1, -c.cotangents[0])};
}
std::vector<Tensor> mul_gradient(const GradientCall& c) {
    return {onto(c, 0, c.cotangents[0] * c.inputs[1]), onto(c, 1, c.cotangents[0] * c.inputs[0])};
}
std::vector<Tensor> fma_gradient(const GradientCall& c) {
    const Tensor dy = c.cotangents[0];
    return {onto(c, 0, dy * c.inputs[1]), onto(c, 1, dy * c.inputs[0]), onto(c, 2, dy)};
}
std::vector<Tensor> div_gradient(const GradientCall& c) {
    const Tensor by_numerator = c.cotangents[0] / c.inputs[1];
    return {onto(c, 0, by_numerator), onto(c, 1, -(by_numerator * c.outputs[0]))};
}

/// The gradient goes to the operand that was taken; at a tie, half to each.
std::vector<Tensor> extremum_gradient(const GradientCall& c) {
    const Tensor dy = c.cotangents[0];
    const Tensor zero = constant(c.graph, 0.0, dy.dtype());
    const Tensor share = select(equal(c.inputs[0], c.inputs[1]), dy * 0.5, dy);
    const Tensor first = select(equal(c.outputs[0], c.inputs[0]), share, zero);
    const Tensor second = select(equal(c.outputs[0], c.inputs[1]), share, zero);
    return {onto(c, 0, first), onto(c, 1, second)};
}

std::vector<Tensor> select_gradient(const GradientCall& c) {
    const Tensor dy = c.cotangents[0];
    const Tensor zero = constant(c.graph, 0.0, dy.dtype());
    return {Tensor{}, onto(c, 1, select(c.inputs[0], dy, zero)), onto(c, 2, select(c.inputs[0], zero, dy))};
}

/// Zeros make zeros, whatever the axis.
std::optional<LongerOutputs> pass_zeros(const LongerOperands& x) {
    return LongerOutputs{{x.axes[0]}, x.node.attributes};
}

/// x times, or divided by, a number.
std::optional<LongerOutputs> pass_scaled_zeros(const LongerOperands& x) {
    const Node& by = x.graph.node(x.node.inputs[1].node);
    if (x.axes[0] < 0 || by.op->name != "constant" || by.outputs[0].shape.rank() != 0) return std::nullopt;
    const double number = by.attributes.number("value");
    if (!std::isfinite(number) || number == 0) return std::nullopt;
    return pass_zeros(x);
}

Op with_padding(Op row, PaddingRule rule) {
    row.padding = rule;
    return row;
}

/// The row with so many instructions in a nest.
Op taking(int instructions, Op row) {
    row.instructions = instructions;
    return row;
}

Op unary_row(std::string_view name, ElementMeaning meaning, GradientRule gradient, CostRule flops,
             AutocastClass autocast) {
    return {.name = name,
            .types = unary,
            .gradient = gradient,
            .autocast = autocast,
            .fuser = FuserClass::elementwise,
            .flops = flops,
            .meaning = meaning,
            .in_place = {0}};
}

Op binary_row(std::string_view name, ElementMeaning meaning, TypeRule types, GradientRule gradient,
              std::string_view no_gradient = {}) {
    Op row{.name = name,
           .min_inputs = 2,
           .types = types,
           .gradient = gradient,
           .no_gradient = no_gradient,
           .autocast = AutocastClass::widest,
           .fuser = FuserClass::elementwise,
           .flops = flops_per_output<1>,
           .meaning = meaning};
    if (types == arithmetic || types == division) row.in_place = {0};
    return row;
}

template <class Function>
double of_two(Numbers x) {
    return static_cast<double>(Function{}(x[0], x[1]));
}

double negative(double x) { return -x; }
double reciprocal_root(double x) { return 1.0 / std::sqrt(x); }

/// NaN wins, as it does in the kernels.
double larger(Numbers x) { return std::isnan(x[0]) || x[0] > x[1] ? x[0] : x[1]; }
double smaller(Numbers x) { return std::isnan(x[0]) || x[0] < x[1] ? x[0] : x[1]; }

constexpr std::string_view gives_booleans = "its result is a boolean";

}  // namespace

std::span<const Op> elementwise_ops() {
    // Flops of functions: the length of the polynomials in numerics/, rounded.
    static const std::vector<Op> rows = {
        with_padding(
            unary_row("neg", of_number<negative>, neg_gradient, flops_per_output<1>, AutocastClass::same),
            pass_zeros),
        taking(12, unary_row("exp", of_number<std::exp>, exp_gradient, flops_per_output<10>,
                             AutocastClass::fp32)),
        taking(12, unary_row("log", of_number<std::log>, log_gradient, flops_per_output<12>,
                             AutocastClass::fp32)),
        taking(30, unary_row("tanh", of_number<std::tanh>, tanh_gradient, flops_per_output<15>,
                             AutocastClass::same)),
        taking(30, unary_row("erf", of_number<std::erf>, erf_gradient, flops_per_output<15>,
                             AutocastClass::same)),
        taking(25, unary_row("sin", of_number<std::sin>, sin_gradient, flops_per_output<15>,
                             AutocastClass::fp32)),
        taking(25, unary_row("cos", of_number<std::cos>, cos_gradient, flops_per_output<15>,
                             AutocastClass::fp32)),
        taking(5, unary_row("sqrt", of_number<std::sqrt>, sqrt_gradient, flops_per_output<1>,
                            AutocastClass::same)),
        taking(5, unary_row("rsqrt", of_number<reciprocal_root>, rsqrt_gradient, flops_per_output<2>,
                            AutocastClass::fp32)),
        {.name = "is_finite",
         .types = is_finite_types,
         .no_gradient = gives_booleans,
         .fuser = FuserClass::elementwise,
         .flops = flops_per_output<1>,
         .meaning = [](Numbers x) { return static_cast<double>(std::isfinite(x[0])); }},
        {.name = "cast",
         .types = cast_types,
         .gradient = cast_gradient,
         .fuser = FuserClass::elementwise,
         .padding = pass_zeros,
         .reads_codes = 1},
        {.name = "round_to",
         .types = round_to_types,
         .no_gradient = "it is made after differentiation",
         .flops = flops_per_output<1>},
        {.name = "stop_gradient",
         .types = any_type,
         .no_gradient = "that is what it is for",
         .fuser = FuserClass::movement,
         .view = whole_operand,
         .padding = pass_zeros},
        binary_row("add", of_two<std::plus<>>, arithmetic, add_gradient),
        binary_row("sub", of_two<std::minus<>>, arithmetic, sub_gradient),
        with_padding(binary_row("mul", of_two<std::multiplies<>>, arithmetic, mul_gradient),
                     pass_scaled_zeros),
        taking(5, with_padding(binary_row("div", of_two<std::divides<>>, division, div_gradient),
                               pass_scaled_zeros)),
        binary_row("maximum", larger, arithmetic, extremum_gradient),
        binary_row("minimum", smaller, arithmetic, extremum_gradient),
        binary_row("less", of_two<std::less<>>, comparison, nullptr, gives_booleans),
        binary_row("less_equal", of_two<std::less_equal<>>, comparison, nullptr, gives_booleans),
        binary_row("equal", of_two<std::equal_to<>>, comparison, nullptr, gives_booleans),
        binary_row("logical_and", of_two<std::logical_and<>>, logical, nullptr, gives_booleans),
        {.name = "add_bias",  // its own operation for autocast: a sum would be promoted to the bias's FP32
         .min_inputs = 2,
         .types = add_bias_types,
         .gradient = add_bias_gradient,
         .autocast = AutocastClass::lower,
         .fuser = FuserClass::elementwise,
         .flops = flops_per_output<1>,
         .definition = add_bias_definition},
        {.name = "select",
         .min_inputs = 3,
         .types = select_types,
         .gradient = select_gradient,
         .autocast = AutocastClass::widest,
         .fuser = FuserClass::elementwise,
         .meaning = [](Numbers x) { return x[0] != 0 ? x[1] : x[2]; },
         .in_place = {1}},
        {.name = "fma",
         .min_inputs = 3,
         .types = fma_types,
         .gradient = fma_gradient,
         .autocast = AutocastClass::widest,
         .fuser = FuserClass::elementwise,
         .flops = flops_per_output<2>,
         .meaning = [](Numbers x) { return std::fma(x[0], x[1], x[2]); },
         .in_place = {0}},
    };
    return rows;
}

}  // namespace mantissa
