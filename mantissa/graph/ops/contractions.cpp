// Contractions.
#include "mantissa/graph/ops/rules.h"

namespace mantissa {

namespace {

using namespace rules;

/// The extent of an operand's row or column axis as it is multiplied, after its transposition.
std::int64_t extent(const Type& type, bool transposed, int axis) {
    return type.shape[transposed ? (axis == -1 ? -2 : -1) : axis];
}

std::vector<Type> matmul_types(const OpCall& call) {
    const Type &a = call.inputs[0], &b = call.inputs[1];
    expect_floating(call, 0);
    expect(a.dtype == b.dtype, "operands must have one type, got {} and {}", a.text(), b.text());
    expect(a.shape.rank() >= 2 && a.shape.rank() == b.shape.rank(),
           "operands must be matrices or equal batches of matrices, got {} and {}", a.text(), b.text());
    const bool ta = call.attributes.flag("transpose_a"), tb = call.attributes.flag("transpose_b");
    Shape shape = a.shape;
    for (int axis = 0; axis < shape.rank() - 2; ++axis)
        expect(a.shape[axis] == b.shape[axis], "batches differ: {} and {}", a.text(), b.text());
    expect(extent(a, ta, -1) == extent(b, tb, -2), "inner extents differ: {} of {}{} and {} of {}{}",
           extent(a, ta, -1), a.text(), ta ? " transposed" : "", extent(b, tb, -2), b.text(),
           tb ? " transposed" : "");
    shape[-2] = extent(a, ta, -2);
    shape[-1] = extent(b, tb, -1);
    if (call.inputs.size() == 3) {
        expect(call.inputs[2].dtype == a.dtype, "the bias must be {}, got {}", name_of(a.dtype),
               call.inputs[2].text());
        expect_shape(call, 2, {shape[-1]});
    }
    return {{a.dtype, shape}};
}

std::int64_t matmul_flops(std::span<const Type> inputs, std::span<const Type> outputs,
                          const Attributes& attributes) {
    return 2 * outputs[0].shape.elements() * extent(inputs[0], attributes.flag("transpose_a"), -1);
}

/// With A' and B' the operands as multiplied: dA' = dY B'^T and dB' = A'^T dY, each written in the way its
/// operand is stored.
std::vector<Tensor> matmul_gradient(const GradientCall& c) {
    const Tensor a = c.inputs[0], b = c.inputs[1], dy = c.cotangents[0];
    const bool ta = c.attributes.flag("transpose_a"), tb = c.attributes.flag("transpose_b");
    const Tensor da =
        ta ? matmul(b, dy, {.transpose_a = tb, .transpose_b = true}) : matmul(dy, b, {.transpose_b = !tb});
    const Tensor db =
        tb ? matmul(dy, a, {.transpose_a = true, .transpose_b = ta}) : matmul(a, dy, {.transpose_a = !ta});
    if (c.inputs.size() == 2) return {da, db};
    return {da, db, reduce_to(dy, c.inputs[2].shape())};
}

}  // namespace

std::span<const Op> contraction_ops() {
    static const std::vector<Op> rows = {
        {.name = "matmul",
         .least_inputs = 2,
         .most_inputs = 3,
         .types = matmul_types,
         .gradient = matmul_gradient,
         .autocast = AutocastClass::lower,
         .fuser = FuserClass::contraction,
         .flops = matmul_flops},
    };
    return rows;
}

}  // namespace mantissa
