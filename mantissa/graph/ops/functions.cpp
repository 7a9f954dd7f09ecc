// Functions of numbers, element by element, without a kernel written by hand: the generator makes them, on
// every device (codegen/llvm/lanes.cpp). They take FP32, BF16 and FP16, or i32 where that is said.
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>

#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

void expect_lanes(const OpCall& call, std::size_t index) {
    const DType dtype = call.inputs[index].dtype;
    expect(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16,
           "operand {} must be f32, bf16 or f16, got {}", index, call.inputs[index].text());
}

std::vector<Type> function_types(const OpCall& call) {
    expect_lanes(call, 0);
    return {call.inputs[0]};
}

Shape common_shape(const OpCall& call) { return broadcast_shape(call.inputs[0].shape, call.inputs[1].shape); }

std::vector<Type> function_of_two_types(const OpCall& call) {
    expect_lanes(call, 0);
    return {{common_dtype(call, 0, 1), common_shape(call)}};
}

std::vector<Type> of_integers(const OpCall& call) {
    expect_dtype(call, 0, DType::i32);
    expect_dtype(call, 1, DType::i32);
    return {{DType::i32, common_shape(call)}};
}

std::vector<Tensor> log1p_gradient(const GradientCall& c) { return {c.cotangents[0] / (c.inputs[0] + 1.0)}; }
std::vector<Tensor> expm1_gradient(const GradientCall& c) { return {c.cotangents[0] * (c.outputs[0] + 1.0)}; }

std::vector<Tensor> atan_gradient(const GradientCall& c) {
    return {c.cotangents[0] / (c.inputs[0] * c.inputs[0] + 1.0)};
}

std::vector<Tensor> erfc_gradient(const GradientCall& c) {
    const Tensor x = c.inputs[0];
    return {c.cotangents[0] * (exp(-(x * x)) * (-2 * std::numbers::inv_sqrtpi))};
}

/// A step function does not change between its steps.
std::vector<Tensor> step_gradient(const GradientCall&) { return {Tensor{}}; }

/// x^0 and 0^y do not change with x and y.
std::vector<Tensor> pow_gradient(const GradientCall& c) {
    const Tensor dy = as_f32(c.cotangents[0]), x = as_f32(c.inputs[0]), y = as_f32(c.inputs[1]);
    const Tensor zero = constant(c.graph, 0.0);
    std::vector<Tensor> gradients(2);
    if (c.wanted[0]) gradients[0] = onto(c, 0, select(equal(y, zero), zero, dy * (y * pow(x, y - 1.0))));
    if (c.wanted[1]) {
        const Tensor stays = logical_and(equal(x, zero), less_equal(zero, y));
        gradients[1] = onto(c, 1, select(stays, zero, dy * (as_f32(c.outputs[0]) * log(x))));
    }
    return gradients;
}

/// x - floor(x / y) y.
std::vector<Tensor> remainder_gradient(const GradientCall& c) {
    const Tensor dy = c.cotangents[0];
    const Tensor quotient = (c.inputs[0] - c.outputs[0]) / c.inputs[1];
    return {onto(c, 0, dy), onto(c, 1, -(dy * quotient))};
}

/// |x| with the sign of y: the derivative by x is the product of both signs, the derivative by y is 0.
std::vector<Tensor> copysign_gradient(const GradientCall& c) {
    const Tensor x = c.inputs[0], y = c.inputs[1];
    const Tensor dx = c.cotangents[0] * (copysign(sign(x), y) * sign(x));
    return {onto(c, 0, dx), broadcast_to(constant(c.graph, 0.0, y.dtype()), y.shape())};
}

double remainder_of(Numbers x) {
    const double rest = std::fmod(x[0], x[1]);
    return rest != 0 && (rest < 0) != (x[1] < 0) ? rest + x[1] : rest;
}

double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

Op function_row(std::string_view name, ElementMeaning meaning, GradientRule gradient, int instructions) {
    return {.name = name,
            .types = function_types,
            .gradient = gradient,
            .fuser = FuserClass::elementwise,
            .flops = flops_per_output<1>,
            .meaning = meaning,
            .instructions = instructions,
            .in_place = {0}};
}

/// With a polynomial.
Op long_function(Op row) {
    row.autocast = AutocastClass::fp32;
    row.flops = flops_per_output<15>;
    return row;
}

Op of_two_row(Op row, TypeRule types) {
    row.min_inputs = row.max_inputs = 2;
    row.types = types;
    row.autocast = AutocastClass::widest;
    return row;
}

/// Bit by bit, as two's complement has them.
template <class Function>
double of_bits(Numbers x) {
    return Function{}(static_cast<std::int32_t>(x[0]), static_cast<std::int32_t>(x[1]));
}

Op integer_row(std::string_view name, ElementMeaning meaning, int instructions = 40) {
    Op row = of_two_row(function_row(name, meaning, nullptr, instructions), of_integers);
    row.no_gradient = "its operands are whole numbers";
    return row;
}

}  // namespace

std::span<const Op> function_ops() {
    static const std::vector<Op> rows = {
        function_row("floor", of_number<std::floor>, step_gradient, 1),
        function_row("ceil", of_number<std::ceil>, step_gradient, 1),
        function_row("round", of_number<std::nearbyint>, step_gradient, 1),
        function_row("trunc", of_number<std::trunc>, step_gradient, 1),
        function_row("sign", of_number<sign_of>, step_gradient, 4),
        long_function(function_row("log1p", of_number<std::log1p>, log1p_gradient, 25)),
        long_function(function_row("expm1", of_number<std::expm1>, expm1_gradient, 20)),
        long_function(function_row("atan", of_number<std::atan>, atan_gradient, 25)),
        long_function(function_row("erfc", of_number<std::erfc>, erfc_gradient, 45)),
        long_function(of_two_row(function_row(
                                     "pow", [](Numbers x) { return std::pow(x[0], x[1]); }, pow_gradient, 80),
                                 function_of_two_types)),
        of_two_row(function_row("remainder", remainder_of, remainder_gradient, 20), function_of_two_types),
        of_two_row(function_row(
                       "copysign", [](Numbers x) { return std::copysign(x[0], x[1]); }, copysign_gradient, 3),
                   function_of_two_types),
        integer_row("integer_remainder", [](Numbers x) { return x[1] == 0 ? 0 : remainder_of(x); }),
        integer_row("integer_division", [](Numbers x) { return x[1] == 0 ? 0 : std::floor(x[0] / x[1]); }),
        integer_row("bit_and", of_bits<std::bit_and<>>, 1),
        integer_row("bit_or", of_bits<std::bit_or<>>, 1),
        integer_row("bit_xor", of_bits<std::bit_xor<>>, 1),
    };
    return rows;
}

}  // namespace mantissa
