// Contractions of rows that lie group by group, each group with a matrix of its own: the experts of a
// mixture. How many rows a group has is known when it runs.
#include "mantissa/graph/call.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

DType output_dtype(const OpCall& call, DType operands) {
    const DType output = call.attributes.has("output") ? call.attributes.dtype("output") : operands;
    expect(is_floating(output) && (output == operands || output == DType::f32),
           "the output must be f32 or the operands' {}, got {}", name_of(operands), name_of(output));
    return output;
}

void expect_two_of_one_type(const OpCall& call) {
    expect_floating(call, 0);
    expect(call.inputs[0].dtype == call.inputs[1].dtype, "operands must have one type, got {} and {}",
           call.inputs[0].text(), call.inputs[1].text());
    expect_dtype(call, 2, DType::i32);
    expect_multiply(call, call.inputs[0].dtype);
}

/// x [R, K], w [E, K, N], or [E, N, K] with `transpose_b`, counts i32 [E] -> [R, N].
std::vector<Type> grouped_matmul_types(const OpCall& call) {
    const Type &x = call.inputs[0], &w = call.inputs[1];
    expect_two_of_one_type(call);
    expect(x.shape.rank() == 2 && w.shape.rank() == 3,
           "expected rows [R, K] and matrices [E, K, N], got {} and {}", x.text(), w.text());
    const bool transposed = call.attributes.flag("transpose_b");
    expect(w.shape[transposed ? 2 : 1] == x.shape[1], "inner extents differ: {} and {}{}", x.text(), w.text(),
           transposed ? " transposed" : "");
    expect_shape(call, 2, {w.shape[0]});
    return {{output_dtype(call, x.dtype), {x.shape[0], w.shape[transposed ? 1 : 2]}}};
}

/// x [R, M], y [R, N], counts i32 [E] -> [E, M, N]: of each group the sum of x^T y over its rows.
std::vector<Type> grouped_outer_types(const OpCall& call) {
    const Type &x = call.inputs[0], &y = call.inputs[1];
    expect_two_of_one_type(call);
    expect(x.shape.rank() == 2 && y.shape.rank() == 2 && x.shape[0] == y.shape[0],
           "expected equally many rows of two kinds, got {} and {}", x.text(), y.text());
    expect(call.inputs[2].shape.rank() == 1, "counts must be [E], got {}", call.inputs[2].text());
    return {{output_dtype(call, x.dtype), {call.inputs[2].shape[0], x.shape[1], y.shape[1]}}};
}

/// FLOPs as if every row belonged to a group.
std::int64_t grouped_flops(std::span<const Type> inputs, std::span<const Type> outputs, const Attributes&) {
    const std::int64_t rows = inputs[0].shape[0];
    return 2 * rows * inputs[0].shape[1] * outputs[0].shape[-1];
}

std::size_t both_tensors(const Attributes&) { return 2; }

std::vector<Tensor> grouped_matmul_gradient(const GradientCall& c) {
    const Tensor x = c.inputs[0], w = c.inputs[1], dy = cast(c.cotangents[0], x.dtype());
    const bool transposed = c.attributes.flag("transpose_b");
    const auto attributes = [&](const Tensor& of) {
        Attributes own;
        if (c.attributes.has("multiply")) own = own.with("multiply", c.attributes.word("multiply"));
        const DType dtype = gradient_dtype(of);
        return dtype == x.dtype() ? own : own.with("output", dtype);
    };
    std::vector<Tensor> gradients(3);
    if (c.wanted[0])
        gradients[0] =
            call1("grouped_matmul", {dy, w, c.inputs[2]}, attributes(x).with("transpose_b", !transposed));
    if (c.wanted[1])
        gradients[1] = transposed ? call1("grouped_outer", {dy, x, c.inputs[2]}, attributes(w))
                                  : call1("grouped_outer", {x, dy, c.inputs[2]}, attributes(w));
    return gradients;
}

/// bool [R, 1], by group: whether a row belongs to it.
std::vector<Tensor> rows_of_groups(const Tensor& counts, std::int64_t rows) {
    Graph& graph = counts.graph();
    const Tensor row = iota(graph, {rows, 1}, 0);
    Tensor first = constant(graph, 0, DType::i32, {1});
    std::vector<Tensor> own;
    for (std::int64_t group = 0; group < counts.dim(0); ++group) {
        const Tensor end = first + slice(counts, 0, group, group + 1);
        own.push_back(logical_and(less_equal(first, row), less(row, end)));
        first = end;
    }
    return own;
}

/// The way to multiply, and the type of the result.
MatmulOptions as_asked(const Attributes& attributes) {
    MatmulOptions options;
    if (attributes.has("output")) options.output = attributes.dtype("output");
    if (attributes.has("multiply")) options.multiply = attributes.word("multiply");
    return options;
}

Tensor zero_like(const Tensor& x) { return constant(x.graph(), 0.0, x.dtype()); }

/// Each group's matrix meets all rows; the rows of other groups are left out of its sum.
std::vector<Tensor> grouped_matmul_definition(const DefinitionCall& call) {
    const Tensor x = call.inputs[0], w = call.inputs[1];
    MatmulOptions options = as_asked(call.attributes);
    options.transpose_b = call.attributes.flag("transpose_b");
    const Type result =
        grouped_matmul_types({find_op("grouped_matmul"),
                              std::vector{x.type(), w.type(), call.inputs[2].type()}, call.attributes})[0];
    Tensor y = constant(call.graph, 0.0, result.dtype, result.shape);
    const std::vector<Tensor> own = rows_of_groups(call.inputs[2], x.dim(0));
    for (std::size_t i = 0; i < own.size(); ++i) {
        const auto group = static_cast<std::int64_t>(i);
        const Tensor matrix = reshape(slice(w, 0, group, group + 1), {w.dim(1), w.dim(2)});
        y = select(own[i], matmul(x, matrix, options), y);
    }
    return {y};
}

std::vector<Tensor> grouped_outer_definition(const DefinitionCall& call) {
    const Tensor x = call.inputs[0], y = call.inputs[1];
    MatmulOptions options = as_asked(call.attributes);
    options.transpose_a = true;
    std::vector<Tensor> sums;
    for (const Tensor& own : rows_of_groups(call.inputs[2], x.dim(0))) {
        const Tensor sum = matmul(select(own, x, zero_like(x)), select(own, y, zero_like(y)), options);
        sums.push_back(reshape(sum, {1, x.dim(1), y.dim(1)}));
    }
    if (!sums.empty()) return {concat(sums, 0)};
    return {constant(call.graph, 0.0, options.output.value_or(x.dtype()), {0, x.dim(1), y.dim(1)})};
}

}  // namespace

std::span<const Op> grouped_contraction_ops() {
    static const std::vector<Op> rows = {
        {.name = "grouped_matmul",
         .min_inputs = 3,
         .types = grouped_matmul_types,
         .gradient = grouped_matmul_gradient,
         .autocast = AutocastClass::lower,
         .lowered = both_tensors,
         .flops = grouped_flops,
         .definition = grouped_matmul_definition},
        {.name = "grouped_outer",
         .min_inputs = 3,
         .types = grouped_outer_types,
         .no_gradient = no_second_derivative,
         .autocast = AutocastClass::lower,
         .lowered = both_tensors,
         .flops = grouped_flops,
         .definition = grouped_outer_definition},
    };
    return rows;
}

}  // namespace mantissa
