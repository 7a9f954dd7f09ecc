// Operations that move elements and compute nothing. Some are views: the memory plan gives them no memory of
// their own.
#include <algorithm>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

int axis_of(const OpCall& call) {
    const std::int64_t axis = call.attributes.integer("axis");
    expect(axis >= 0 && axis < call.inputs[0].shape.rank(), "axis {} is outside {}", axis,
           call.inputs[0].text());
    return static_cast<int>(axis);
}

std::vector<Type> reshape_types(const OpCall& call) {
    const Shape shape = shape_attribute(call.attributes);
    expect_extents(shape);
    expect(shape.elements() == call.inputs[0].shape.elements(), "{} has {} elements, {} has {}",
           call.inputs[0].text(), call.inputs[0].shape.elements(), shape.text(), shape.elements());
    return {{call.inputs[0].dtype, shape}};
}

std::vector<Type> transpose_types(const OpCall& call) {
    const Shape& shape = call.inputs[0].shape;
    const auto& order = call.attributes.list("order");
    std::vector<bool> seen(shape.rank());
    std::vector<std::int64_t> extents;
    for (std::int64_t axis : order) {
        expect(axis >= 0 && axis < shape.rank() && !seen[axis],
               "the order must name each axis of {} once, got {}", call.inputs[0].text(),
               Shape(order).text());
        seen[axis] = true;
        extents.push_back(shape[static_cast<int>(axis)]);
    }
    expect(static_cast<int>(order.size()) == shape.rank(), "the order must name each axis of {} once, got {}",
           call.inputs[0].text(), Shape(order).text());
    return {{call.inputs[0].dtype, Shape(extents)}};
}

std::vector<Type> broadcast_types(const OpCall& call) {
    const Shape shape = shape_attribute(call.attributes);
    expect_extents(shape);
    expect(broadcast_shape(call.inputs[0].shape, shape) == shape, "{} cannot be stretched to {}",
           call.inputs[0].text(), shape.text());
    return {{call.inputs[0].dtype, shape}};
}

std::vector<Type> slice_types(const OpCall& call) {
    const int axis = axis_of(call);
    const std::int64_t start = call.attributes.integer("start"), stop = call.attributes.integer("stop");
    Type type = call.inputs[0];
    expect(0 <= start && start <= stop && stop <= type.shape[axis], "[{}, {}) is outside axis {} of {}",
           start, stop, axis, type.text());
    type.shape[axis] = stop - start;
    return {type};
}

std::vector<Type> pad_types(const OpCall& call) {
    const int axis = axis_of(call);
    const std::int64_t before = call.attributes.integer("before"), after = call.attributes.integer("after");
    constexpr std::int64_t most = std::int64_t{1} << 40;  // far beyond any memory; its sums fit 64 bits
    expect(before >= 0 && after >= 0 && before <= most && after <= most,
           "padding must be 0 to 2^40, got {} and {}", before, after);
    Type type = call.inputs[0];
    type.shape[axis] += before + after;
    return {type};
}

std::vector<Type> split_types(const OpCall& call) {
    const int axis = axis_of(call);
    const std::int64_t parts = call.attributes.integer("parts");
    Type type = call.inputs[0];
    expect(parts > 0 && type.shape[axis] % parts == 0, "axis {} of {} cannot be cut into {} equal parts",
           axis, type.text(), parts);
    type.shape[axis] /= parts;
    return std::vector<Type>(static_cast<std::size_t>(parts), type);
}

std::vector<Type> concat_types(const OpCall& call) {
    const int axis = axis_of(call);
    Type type = call.inputs[0];
    for (std::size_t i = 1; i < call.inputs.size(); ++i) {
        Type other = call.inputs[i];
        expect(other.dtype == type.dtype && other.shape.rank() == type.shape.rank(), "{} and {} do not fit",
               call.inputs[0].text(), other.text());
        const std::int64_t extent = other.shape[axis];
        other.shape[axis] = type.shape[axis];
        expect(other.shape == type.shape, "{} and {} differ in more than axis {}", call.inputs[0].text(),
               call.inputs[i].text(), axis);
        type.shape[axis] += extent;
    }
    return {type};
}

/// x, part, start: x with `part` written over it from index `start` of the axis on. `start` is an i32 scalar,
/// or one for each index of axis 0, where the axis is another.
std::vector<Type> write_slice_types(const OpCall& call) {
    const int axis = axis_of(call);
    const Type& x = call.inputs[0];
    Type part = call.inputs[1];
    expect(part.dtype == x.dtype && part.shape.rank() == x.shape.rank() && part.shape[axis] <= x.shape[axis],
           "{} is no part of {}", part.text(), x.text());
    part.shape[axis] = x.shape[axis];
    expect(part.shape == x.shape, "{} and {} differ in more than axis {}", call.inputs[1].text(), x.text(),
           axis);
    expect_dtype(call, 2, DType::i32);
    if (call.inputs[2].shape.rank() > 0) {
        expect(axis > 0, "starts of their own belong to axis 0, which {} is written along", x.text());
        expect_shape(call, 2, {x.shape[0]});
    }
    return {x};
}

std::vector<Type> embedding_types(const OpCall& call) {
    expect_dtype(call, 1, DType::i32);
    const Type& table = call.inputs[0];
    expect(table.shape.rank() == 2, "the table must be [V, C], got {}", table.text());
    expect(is_floating(table.dtype) || table.dtype == DType::i32,
           "the table must be floating or i32, got {}; cast it", table.text());
    std::vector<std::int64_t> extents = call.inputs[1].shape.extents();
    extents.push_back(table.shape[1]);
    return {{table.dtype, Shape(extents)}};
}

/// dy [..., C], ids [...] and perhaps the addend that the sum begins with, [rows, C].
std::vector<Type> embedding_grad_types(const OpCall& call) {
    expect_dtype(call, 1, DType::i32);
    const Shape& dy = call.inputs[0].shape;
    expect(dy.rank() >= 1 && dy.elements() == call.inputs[1].shape.elements() * dy[-1],
           "gradient {} and ids {} do not fit", call.inputs[0].text(), call.inputs[1].text());
    const Type table{call.inputs[0].dtype, {call.attributes.integer("rows"), dy[-1]}};
    if (call.inputs.size() == 3)
        expect(call.inputs[2] == table, "the addend must be {}, got {}", table.text(), call.inputs[2].text());
    return {table};
}

std::vector<Tensor> reshape_gradient(const GradientCall& c) {
    return {reshape(c.cotangents[0], c.inputs[0].shape())};
}

std::vector<Tensor> transpose_gradient(const GradientCall& c) {
    const auto& order = c.attributes.list("order");
    std::vector<std::int64_t> inverse(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<std::int64_t>(i);
    return {transpose(c.cotangents[0], inverse)};
}

std::vector<Tensor> broadcast_gradient(const GradientCall& c) {
    return {reduce_to(c.cotangents[0], c.inputs[0].shape())};
}

std::vector<Tensor> slice_gradient(const GradientCall& c) {
    const int axis = static_cast<int>(c.attributes.integer("axis"));
    const std::int64_t after = c.inputs[0].dim(axis) - c.attributes.integer("stop");
    return {pad(c.cotangents[0], axis, c.attributes.integer("start"), after)};
}

std::vector<Tensor> pad_gradient(const GradientCall& c) {
    const int axis = static_cast<int>(c.attributes.integer("axis"));
    const std::int64_t before = c.attributes.integer("before");
    return {slice(c.cotangents[0], axis, before, before + c.inputs[0].dim(axis))};
}

std::vector<Tensor> split_gradient(const GradientCall& c) {
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < c.outputs.size(); ++i) {
        const Tensor zero = constant(c.graph, 0.0, c.outputs[i].dtype());
        parts.push_back(c.cotangents[i] ? c.cotangents[i] : broadcast_to(zero, c.outputs[i].shape()));
    }
    return {concat(parts, static_cast<int>(c.attributes.integer("axis")))};
}

std::vector<Tensor> concat_gradient(const GradientCall& c) {
    const int axis = static_cast<int>(c.attributes.integer("axis"));
    std::vector<Tensor> gradients;
    std::int64_t start = 0;
    for (const Tensor& input : c.inputs) {
        gradients.push_back(slice(c.cotangents[0], axis, start, start + input.dim(axis)));
        start += input.dim(axis);
    }
    return gradients;
}

/// Rows of one id are added in FP32.
std::vector<Tensor> embedding_gradient(const GradientCall& c) {
    const Tensor dy = as_f32(c.cotangents[0]);
    const Tensor sums = call1("embedding_grad", {dy, c.inputs[1]}, {{"rows", c.inputs[0].dim(0)}});
    return {cast(sums, c.inputs[0].dtype()), Tensor{}};
}

/// The gradient of a part is the row of its id; the gradient of the addend is all rows.
std::vector<Tensor> embedding_grad_gradient(const GradientCall& c) {
    const Tensor dtable = c.cotangents[0];
    std::vector<Tensor> gradients(c.inputs.size());
    if (c.wanted[0]) gradients[0] = reshape(embedding(dtable, c.inputs[1]), c.inputs[0].shape());
    if (c.inputs.size() == 3) gradients[2] = dtable;
    return gradients;
}

/// Whether a cut along the node's axis is one piece of memory: nothing but extents of 1 lies outside of it.
bool cuts_one_piece(const Graph& graph, const Node& node) {
    const Shape& shape = graph.type(node.inputs[0]).shape;
    for (int axis = 0; axis < node.attributes.integer("axis"); ++axis)
        if (shape[axis] != 1) return false;
    return true;
}

std::optional<std::int64_t> view_slice(const Graph& graph, const Node& node, int) {
    if (!cuts_one_piece(graph, node)) return std::nullopt;
    const Type& type = graph.type(node.inputs[0]);
    const std::int64_t extent = type.shape[static_cast<int>(node.attributes.integer("axis"))];
    return extent == 0 ? 0 : type.bytes() / extent * node.attributes.integer("start");
}

std::optional<std::int64_t> view_split(const Graph& graph, const Node& node, int output) {
    if (!cuts_one_piece(graph, node)) return std::nullopt;
    return output * node.outputs[0].bytes();
}

/// Zeros behind the rows of a state that keeps as many there.
std::optional<std::int64_t> view_pad(const Graph& graph, const Node& node, int) {
    const int state = graph.state_of(node.inputs[0].node);
    if (state < 0 || node.attributes.integer("axis") != 0 || node.attributes.integer("before") != 0 ||
        node.attributes.integer("after") > graph.state(state).zero_rows)
        return std::nullopt;
    return 0;
}

std::optional<LongerOutputs> pass_reshape(const LongerOperands& x) {
    const Shape &from = x.type(0).shape, &to = x.node.outputs[0].shape;
    std::int64_t before = 1, passed = 1;
    for (int axis = 0; axis < x.axes[0]; ++axis) before *= from[axis];
    for (int axis = 0; axis < to.rank(); passed *= to[axis++]) {
        if (passed != before || to[axis] != x.rows) continue;
        Shape longer = to;
        longer[axis] += x.zero_rows;
        return LongerOutputs{{axis}, x.node.attributes.with("shape", longer.extents())};
    }
    return std::nullopt;
}

std::optional<LongerOutputs> pass_transpose(const LongerOperands& x) {
    const auto& order = x.node.attributes.list("order");
    const auto axis = std::find(order.begin(), order.end(), x.axes[0]) - order.begin();
    return LongerOutputs{{static_cast<int>(axis)}, x.node.attributes};
}

}  // namespace

/// Bytes that are cut out are read and written.
std::int64_t slice_bytes(std::span<const Type>, std::span<const Type> outputs, const Attributes&) {
    return 2 * outputs[0].bytes();
}

/// Bytes of the part, which is read and written, and of its place.
std::int64_t write_slice_bytes(std::span<const Type> inputs, std::span<const Type>, const Attributes&) {
    return 2 * inputs[1].bytes() + inputs[2].bytes();
}

/// Bytes of the rows of the table that are asked for.
std::int64_t embedding_bytes(std::span<const Type> inputs, std::span<const Type> outputs, const Attributes&) {
    return inputs[1].bytes() + 2 * outputs[0].bytes();
}

/// Bytes of the rows of the table that something is added to, but for the zeros that it begins with where
/// nothing was in it.
std::int64_t embedding_grad_bytes(std::span<const Type> inputs, std::span<const Type> outputs,
                                  const Attributes&) {
    const std::int64_t rows = std::min(inputs[0].bytes(), outputs[0].bytes());
    return inputs[0].bytes() + inputs[1].bytes() + 2 * rows + (inputs.size() == 3 ? 0 : outputs[0].bytes());
}

std::span<const Op> movement_ops() {
    static const std::vector<Op> rows = {
        {.name = "reshape",
         .types = reshape_types,
         .gradient = reshape_gradient,
         .fuser = FuserClass::movement,
         .view = whole_operand,
         .padding = pass_reshape},
        {.name = "transpose",
         .types = transpose_types,
         .gradient = transpose_gradient,
         .fuser = FuserClass::movement,
         .padding = pass_transpose},
        {.name = "broadcast",
         .types = broadcast_types,
         .gradient = broadcast_gradient,
         .fuser = FuserClass::movement},
        {.name = "slice",
         .types = slice_types,
         .gradient = slice_gradient,
         .fuser = FuserClass::movement,
         .bytes = slice_bytes,
         .view = view_slice},
        {.name = "pad",
         .types = pad_types,
         .gradient = pad_gradient,
         .fuser = FuserClass::movement,
         .view = view_pad},
        {.name = "split",
         .types = split_types,
         .gradient = split_gradient,
         .fuser = FuserClass::movement,
         .view = view_split},
        {.name = "concat",
         .max_inputs = 1 << 16,
         .types = concat_types,
         .gradient = concat_gradient,
         .autocast = AutocastClass::widest,
         .fuser = FuserClass::movement},
        {.name = "write_slice",
         .min_inputs = 3,
         .types = write_slice_types,
         .no_gradient = "it writes what is kept from run to run, through which nothing is differentiated",
         .fuser = FuserClass::movement,
         .bytes = write_slice_bytes,
         .in_place = {0}},
        {.name = "embedding",
         .min_inputs = 2,
         .types = embedding_types,
         .gradient = embedding_gradient,
         .bytes = embedding_bytes},
        {.name = "embedding_grad",
         .min_inputs = 2,
         .max_inputs = 3,
         .types = embedding_grad_types,
         .gradient = embedding_grad_gradient,
         .autocast = AutocastClass::fp32,
         .flops = flops_per_input<1>,
         .bytes = embedding_grad_bytes,
         .in_place = {2}},
    };
    return rows;
}

}  // namespace mantissa
