// Rotary positions: pairs of a head's elements turned by angles that grow with the position (Su et al. 2021).
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

/// x [B, T, H, D], cosines and sines [T, D/2] -> as x.
std::vector<Type> rotary_types(const OpCall& call) {
    const Type& x = call.inputs[0];
    expect_floating(call, 0);
    expect(x.shape.rank() == 4, "heads must be [B, T, H, D], got {}", x.text());
    expect(x.shape[3] % 2 == 0, "heads are turned in pairs of elements, got {}", x.text());
    const DType tables = x.dtype == DType::f64 ? DType::f64 : DType::f32;
    for (const std::size_t table : {1u, 2u}) {
        expect_dtype(call, table, tables);
        expect_shape(call, table, {x.shape[1], x.shape[3] / 2});
    }
    return {x};
}

/// y_i = x_i cos - x_j sin, y_j = x_j cos + x_i sin, for j = i + D/2.
std::vector<Tensor> rotary_definition(const DefinitionCall& call) {
    const Tensor x = as_f32(call.inputs[0]);
    const std::int64_t T = x.dim(1), half = x.dim(3) / 2;
    const Tensor cosine = reshape(call.inputs[1], {T, 1, half}), sine = reshape(call.inputs[2], {T, 1, half});
    const Tensor first = slice(x, 3, 0, half), second = slice(x, 3, half, 2 * half);
    const std::vector<Tensor> turned{first * cosine - second * sine, second * cosine + first * sine};
    return {cast(concat(turned, 3), call.inputs[0].dtype())};
}

/// A turn back, by the same angles. Learned tables have the definition's gradient.
std::vector<Tensor> rotary_gradient(const GradientCall& c) {
    std::vector<Tensor> gradients(3);
    if (c.wanted[1] || c.wanted[2])
        gradients = differentiate_definition({.op = "rotary",
                                              .inputs = {c.inputs.begin(), c.inputs.end()},
                                              .cotangents = {c.cotangents[0]},
                                              .saved = {}},
                                             c.graph, c.attributes);
    gradients[0] = rotary(c.cotangents[0], c.inputs[1], -c.inputs[2]);
    return gradients;
}

}  // namespace

std::span<const Op> position_ops() {
    static const std::vector<Op> rows = {
        {.name = "rotary",
         .min_inputs = 3,
         .types = rotary_types,
         .gradient = rotary_gradient,
         .flops = flops_per_input<3>,
         .definition = rotary_definition,
         .in_place = {0}},
    };
    return rows;
}

}  // namespace mantissa
