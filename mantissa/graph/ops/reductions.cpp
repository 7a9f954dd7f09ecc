// Reductions over any set of axes.
#include <algorithm>

#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

std::vector<Type> reduction_types(const OpCall& call) {
    expect_floating(call, 0);
    const Shape& shape = call.inputs[0].shape;
    const auto& axes = call.attributes.list("axes");
    std::vector<std::int64_t> extents;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        if (std::find(axes.begin(), axes.end(), axis) == axes.end())
            extents.push_back(shape[axis]);
        else if (call.attributes.flag("keep"))
            extents.push_back(1);
    }
    for (std::int64_t axis : axes) {
        expect(axis >= 0 && axis < shape.rank(), "axis {} is outside {}", axis, call.inputs[0].text());
        expect(std::count(axes.begin(), axes.end(), axis) == 1, "axis {} is named twice", axis);
    }
    return {{call.inputs[0].dtype, Shape(extents)}};
}

/// A sum may be written in FP32 where its terms are shorter.
std::vector<Type> sum_types(const OpCall& call) {
    std::vector<Type> types = reduction_types(call);
    if (!call.attributes.has("output")) return types;
    const DType output = call.attributes.dtype("output");
    expect(output == DType::f32 && size_of(types[0].dtype) < size_of(output),
           "a sum of {} cannot be written as {}", name_of(types[0].dtype), name_of(output));
    types[0].dtype = output;
    return types;
}

/// A value of the reduced shape, with the reduced axes put back at extent 1.
Tensor with_axes(const GradientCall& c, Tensor reduced) {
    Shape shape = c.inputs[0].shape();
    for (std::int64_t axis : c.attributes.list("axes")) shape[static_cast<int>(axis)] = 1;
    return reshape(reduced, shape);
}

std::vector<Tensor> sum_gradient(const GradientCall& c) {
    const Tensor dy = cast(c.cotangents[0], c.inputs[0].dtype());
    return {broadcast_to(with_axes(c, dy), c.inputs[0].shape())};
}

/// The gradient is shared equally by all elements that equal the maximum.
std::vector<Tensor> max_gradient(const GradientCall& c) {
    const Tensor x = c.inputs[0];
    const Tensor is_maximum = cast(equal(x, with_axes(c, c.outputs[0])), x.dtype());
    const Tensor count = sum(is_maximum, c.attributes.list("axes"), KeepAxes::yes);
    return {is_maximum * (with_axes(c, c.cotangents[0]) / count)};
}

std::optional<LongerOutputs> pass_sum(const LongerOperands& x) {
    int axis = x.axes[0];
    for (const std::int64_t summed : x.node.attributes.list("axes")) {
        if (summed == x.axes[0]) return LongerOutputs{{-1}, x.node.attributes};
        if (summed < x.axes[0] && !x.node.attributes.flag("keep")) --axis;
    }
    return LongerOutputs{{axis}, x.node.attributes};
}

}  // namespace

std::span<const Op> reduction_ops() {
    static const std::vector<Op> rows = {
        {.name = "sum",
         .types = sum_types,
         .gradient = sum_gradient,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<1>,
         .padding = pass_sum},
        {.name = "max",
         .types = reduction_types,
         .gradient = max_gradient,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<1>},
    };
    return rows;
}

}  // namespace mantissa
