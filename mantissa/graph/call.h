// Operations by name, for code that goes by the table of operations; models use the functions of tensor.h.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

/// Adds an operation by name.
std::vector<Tensor> call(Graph& graph, std::string_view op, std::span<const Tensor> inputs,
                         Attributes attributes = {}, Where at = {});
Tensor call1(std::string_view op, std::initializer_list<Tensor> inputs, Attributes attributes = {},
             Where at = {});

/// An axis counted from the front. Throws UserError, with the axis as it was given, if it is not there.
std::int64_t axis_from_front(std::string_view op, const Tensor& x, std::int64_t axis, Where at = {});

/// Sums x over the axes along which `shape` was broadcast to x's shape: the gradient of broadcasting. The
/// result is written as `output`, which is x's type or a wider one.
Tensor reduce_to(Tensor x, const Shape& shape, DType output);
Tensor reduce_to(Tensor x, const Shape& shape);

}  // namespace mantissa
