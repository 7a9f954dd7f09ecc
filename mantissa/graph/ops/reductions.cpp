// Reductions over any set of axes, and sums up to each element.
#include <algorithm>

#include "mantissa/base/whole_units.h"
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

/// x [..., T], FP32: its last axis is summed up to each element, or from each to the end.
std::vector<Type> cumsum_types(const OpCall& call) {
    expect_dtype(call, 0, DType::f32);
    expect(call.inputs[0].shape.rank() > 0, "expected an axis to sum along, got {}", call.inputs[0].text());
    return {call.inputs[0]};
}

std::vector<Tensor> cumsum_gradient(const GradientCall& c) {
    return {call1("cumsum", {c.cotangents[0]}, {{"from_end", !c.attributes.flag("from_end")}})};
}

/// Prefix sums within blocks, then over the blocks' totals. A block fills sixteen lanes.
Tensor sums_up_to(const Tensor& x, bool from_end) {
    constexpr std::int64_t block = 16;
    Graph& graph = x.graph();
    const std::int64_t R = x.dim(0), T = x.dim(1), blocks = ceil_div(T, block);
    const std::int64_t width = blocks > 1 ? block : T;
    Tensor cut = blocks * width == T ? x : pad(x, 1, 0, blocks * width - T);
    cut = reshape(cut, {R * blocks, 1, width});
    const Shape pairs{width, width};
    const Tensor term = iota(graph, pairs, 1), place = iota(graph, pairs, 0);
    const Tensor counts = from_end ? less_equal(place, term) : less_equal(term, place);
    Tensor sums = sum(select(counts, cut, constant(graph, 0.0)), {2});  // [R blocks, width]
    if (blocks == 1) return sums;
    const std::int64_t whole = from_end ? 0 : width - 1;  // the element that has the block's sum
    const Tensor totals = sums_up_to(reshape(slice(sums, 1, whole, whole + 1), {R, blocks}), from_end);
    const Tensor others =
        from_end ? pad(slice(totals, 1, 1, blocks), 1, 0, 1) : pad(slice(totals, 1, 0, blocks - 1), 1, 1, 0);
    sums = reshape(sums + reshape(others, {R * blocks, 1}), {R, blocks * width});
    return blocks * width == T ? sums : slice(sums, 1, 0, T);
}

std::vector<Tensor> cumsum_definition(const DefinitionCall& call) {
    const Tensor x = call.inputs[0];
    if (x.shape().elements() == 0) return {x};
    const Tensor sums = sums_up_to(reshape(x, {-1, x.dim(-1)}), call.attributes.flag("from_end"));
    return {reshape(sums, x.shape())};
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
        {.name = "cumsum",
         .types = cumsum_types,
         .gradient = cumsum_gradient,
         .autocast = AutocastClass::fp32,
         .flops = flops_per_output<1>,
         .definition = cumsum_definition},
        {.name = "max",
         .types = reduction_types,
         .gradient = max_gradient,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<1>},
    };
    return rows;
}

}  // namespace mantissa
