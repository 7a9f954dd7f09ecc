// Shared by the rows of the op table: checks of operands, with messages "expected ..., got ...".
#pragma once

#include <fmt/format.h>

#include <span>
#include <string_view>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/op.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0::rules {

/// The elements that an element of a result is made from, and their function as the meaning of an operation.
using Numbers = std::span<const double>;
template <double (*function)(double)>
double of_number(Numbers x) {
    return function(x[0]);
}

template <class... Args>
void expect(bool holds, fmt::format_string<Args...> message, Args&&... args) {
    if (!holds) throw UserError(fmt::format(message, std::forward<Args>(args)...));
}

inline void expect_floating(const OpCall& call, std::size_t index) {
    expect(is_floating(call.inputs[index].dtype), "operand {} must be floating-point, got {}", index,
           call.inputs[index].text());
}

/// Why gradients have no gradient themselves.
inline constexpr std::string_view no_second_derivative = "second derivatives are not taken";

inline void expect_dtype(const OpCall& call, std::size_t index, DType dtype) {
    expect(call.inputs[index].dtype == dtype, "operand {} must be {}, got {}", index, name_of(dtype),
           call.inputs[index].text());
}

inline void expect_shape(const OpCall& call, std::size_t index, const Shape& shape) {
    expect(call.inputs[index].shape == shape, "operand {} must have shape {}, got {}", index, shape.text(),
           call.inputs[index].text());
}

/// FP32 operands may be multiplied as TF32; all others are multiplied as they are stored.
inline void expect_multiply(const OpCall& call, DType operands) {
    if (!call.attributes.has("multiply")) return;
    const std::string& multiply = call.attributes.word("multiply");
    expect(multiply == "tf32" && operands == DType::f32, "{} operands cannot be multiplied as {}",
           name_of(operands), multiply);
}

inline void expect_extents(const Shape& shape) {
    for (std::int64_t extent : shape.extents())
        expect(extent >= 0, "extents must not be negative, got {}", shape.text());
}

inline Shape shape_attribute(const Attributes& attributes) { return Shape(attributes.list("shape")); }

/// Elements of the first output times `each`.
template <int each>
std::int64_t flops_per_output(std::span<const Type>, std::span<const Type> outputs, const Attributes&) {
    return each * outputs[0].shape.elements();
}

/// Elements of the first input times `each`.
template <int each>
std::int64_t flops_per_input(std::span<const Type> inputs, std::span<const Type>, const Attributes&) {
    return each * inputs[0].shape.elements();
}

/// The view rule of an operation that renames the memory of its operand.
inline std::optional<std::int64_t> whole_operand(const Graph&, const Node&, int) { return 0; }

/// Whether `scalar` is an FP32 number beside a tensor of a shorter format, which it does not widen.
inline bool is_number_beside(const Type& scalar, const Type& tensor) {
    return scalar.dtype == DType::f32 && scalar.shape.rank() == 0 && tensor.shape.rank() > 0 &&
           is_floating(tensor.dtype) && size_of(tensor.dtype) < size_of(DType::f32);
}

/// The one type of two operands.
inline DType common_dtype(const OpCall& call, std::size_t a, std::size_t b) {
    const Type &x = call.inputs[a], &y = call.inputs[b];
    if (is_number_beside(x, y)) return y.dtype;
    if (is_number_beside(y, x)) return x.dtype;
    expect(x.dtype == y.dtype, "operands must have one type, got {} and {}", x.text(), y.text());
    return x.dtype;
}

/// Sums a gradient back to the shape of operand `index`, in its type.
inline Tensor onto(const GradientCall& call, std::size_t index, Tensor gradient) {
    return cast(reduce_to(gradient, call.inputs[index].shape()), call.inputs[index].dtype());
}

/// An operand as composites compute with it: in FP32, or FP64 where it has that type.
inline Tensor as_f32(Tensor x) { return x.dtype() == DType::f64 ? x : cast(x, DType::f32); }

/// The gradient of an operand has its type. For a parameter that was only cast for this contraction, it has
/// the parameter's: written in FP32, as it is summed, and rounded nowhere.
inline DType gradient_dtype(const Tensor& operand) {
    const Graph& graph = operand.graph();
    const Node& node = graph.node(operand.value().node);
    if (node.op->name == "cast" && graph.state_of(node.inputs[0].node) >= 0 &&
        size_of(graph.type(node.inputs[0]).dtype) >= size_of(operand.dtype()))
        return graph.type(node.inputs[0]).dtype;
    return operand.dtype();
}

}  // namespace mantissa::rules
