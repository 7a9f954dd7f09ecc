// Functions of tensors along an axis, made of other operations: cuts with steps, padding by existing
// elements, sums up to each element, places of the greatest, reading and adding by indices, and sorting.
// Gradients go where the values came from. And rows in the order of the experts that they are given to.
#include <fmt/format.h>

#include <limits>

#include "mantissa/base/whole_units.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0::ops {

namespace {

/// A tensor as [outer, extent, inner] around one axis.
struct AroundAxis {
    std::int64_t outer = 1, extent = 1, inner = 1;
    int axis = 0;

    AroundAxis(std::string_view op, const Tensor& x, int from)
        : axis(static_cast<int>(axis_from_front(op, x, from))) {
        for (int i = 0; i < x.rank(); ++i) (i < axis ? outer : i == axis ? extent : inner) *= x.dim(i);
    }

    Shape flat() const { return {outer, extent, inner}; }
};

Shape with_extents(const Shape& shape, int axis, std::vector<std::int64_t> extents) {
    std::vector<std::int64_t> all = shape.extents();
    all.erase(all.begin() + axis);
    all.insert(all.begin() + axis, extents.begin(), extents.end());
    return Shape(std::move(all));
}

/// So many parts of x of one element each, from `first` down.
std::vector<Tensor> flipped(const Tensor& x, int axis, std::int64_t first, std::int64_t count) {
    std::vector<Tensor> parts;
    for (std::int64_t i = 0; i < count; ++i) parts.push_back(slice(x, axis, first - i, first - i + 1));
    return parts;
}

/// The number of the element of x for each index [outer, K, inner], -1 where there is none.
Tensor element_numbers(std::string_view op, const Tensor& x, int axis, const Tensor& index) {
    const AroundAxis at(op, x, axis);
    Graph& graph = x.graph();
    const std::int64_t elements = x.shape().elements();
    if (index.dtype() != DType::i32 || index.rank() != x.rank() ||
        with_extents(index.shape(), at.axis, {at.extent}) != x.shape())
        refuse(op, graph.origin,
               fmt::format("indices must be i32 of the shape of {} but along axis {}, got {}",
                           x.type().text(), at.axis, index.type().text()));
    if (elements > std::numeric_limits<std::int32_t>::max())
        refuse(op, graph.origin, fmt::format("{} has more elements than i32 counts", x.type().text()));
    const Shape shape{at.outer, index.dim(at.axis), at.inner};
    const auto number = [&](std::int64_t value) {
        return constant(graph, static_cast<double>(value), DType::i32);
    };
    const Tensor flat = reshape(index, shape);
    const Tensor there = logical_and(less_equal(number(0), flat), less(flat, number(at.extent)));
    Tensor numbers = flat * number(at.inner);
    numbers = numbers + iota(graph, shape, 0) * number(at.extent * at.inner) + iota(graph, shape, 2);
    return select(there, numbers, number(-1));
}

}  // namespace

Tensor slice(Tensor x, int axis, std::int64_t start, std::int64_t stop, std::int64_t step, Where at) {
    const LineScope line(x.graph(), at);
    const AroundAxis of("slice", x, axis);
    if (step < 1) refuse("slice", x.graph().origin, fmt::format("a step must be 1 or more, got {}", step));
    if (step == 1 || start < 0 || stop < start || stop > of.extent) return slice(x, of.axis, start, stop);
    const std::int64_t count = ceil_div(stop - start, step), whole = start + count * step;
    Tensor cut = slice(x, of.axis, start, std::min(whole, of.extent));
    if (whole > of.extent) cut = pad(cut, of.axis, 0, whole - of.extent);
    cut = slice(reshape(cut, with_extents(cut.shape(), of.axis, {count, step})), of.axis + 1, 0, 1);
    return reshape(cut, with_extents(x.shape(), of.axis, {count}));
}

Tensor roll(Tensor x, int axis, std::int64_t shift, Where at) {
    const LineScope line(x.graph(), at);
    const AroundAxis of("roll", x, axis);
    if (of.extent == 0) return x;
    const std::int64_t first = ((-shift % of.extent) + of.extent) % of.extent;
    if (first == 0) return x;
    return concat(std::vector{slice(x, of.axis, first, of.extent), slice(x, of.axis, 0, first)}, of.axis);
}

Tensor pad(Tensor x, int axis, std::int64_t before, std::int64_t after, Edges edges, Where at) {
    const LineScope line(x.graph(), at);
    const AroundAxis of("pad", x, axis);
    const std::int64_t n = of.extent, most = edges == Edges::reflected ? n - 1 : n == 0 ? 0 : INT64_MAX;
    if (before < 0 || after < 0 || before > most || after > most)
        refuse("pad", x.graph().origin,
               fmt::format("{} cannot be padded by {} and {} along axis {} from its edges", x.type().text(),
                           before, after, of.axis));
    std::vector<Tensor> parts{x};
    const auto repeated = [&](std::int64_t place, std::int64_t count) {
        return broadcast_to(slice(x, of.axis, place, place + 1), with_extents(x.shape(), of.axis, {count}));
    };
    if (edges == Edges::reflected) {
        parts = flipped(x, of.axis, before, before);
        parts.push_back(x);
        const std::vector<Tensor> behind = flipped(x, of.axis, n - 2, after);
        parts.insert(parts.end(), behind.begin(), behind.end());
    } else {
        if (before > 0) parts.insert(parts.begin(), repeated(0, before));
        if (after > 0) parts.push_back(repeated(n - 1, after));
    }
    return parts.size() == 1 ? x : concat(parts, of.axis);
}

Tensor cumsum(Tensor x, int axis, Where at) {
    const LineScope line(x.graph(), at);
    const AroundAxis of("cumsum", x, axis);
    if (x.shape().elements() == 0) return x;
    Tensor terms = cast(x, DType::f32);
    if (of.inner > 1) terms = transpose(reshape(terms, of.flat()), {0, 2, 1});
    terms = reshape(terms, {of.outer * of.inner, of.extent});
    Tensor sums = call1("cumsum", {terms}, {{"from_end", false}});
    if (of.inner > 1) sums = transpose(reshape(sums, {of.outer, of.inner, of.extent}), {0, 2, 1});
    return cast(reshape(sums, x.shape()), x.dtype());
}

Tensor argmax(Tensor x, int axis, Where at) {
    Graph& graph = x.graph();
    const LineScope line(graph, at);
    const AroundAxis of("argmax", x, axis);
    constexpr std::int64_t most = 1 << 24;  // places are compared in FP32
    if (of.extent == 0 || of.extent > most)
        refuse("argmax", graph.origin,
               fmt::format("an axis must have 1 to {} elements, got {}", most, x.type().text()));
    const Tensor values = stop_gradient(x);
    const Tensor greatest = max(values, {of.axis}, KeepAxes::yes);
    const Tensor is_number = equal(values, values);
    const Tensor found = select(is_number, equal(values, greatest), logical_not(is_number));
    const Tensor place = iota(graph, x.shape(), of.axis, DType::f32);
    const Tensor none = constant(graph, -static_cast<double>(most));
    return cast(-max(select(found, -place, none), {of.axis}), DType::i32);
}

Tensor gather(Tensor x, int axis, Tensor index, Where at) {
    const LineScope line(x.graph(), at);
    const Tensor numbers = element_numbers("gather", x, axis, index);
    const Tensor elements = reshape(x, {x.shape().elements(), 1});
    return reshape(embedding(elements, numbers), index.shape());
}

Tensor take(Tensor x, int axis, Tensor index, Where at) {
    Graph& graph = x.graph();
    const LineScope line(graph, at);
    const AroundAxis of("take", x, axis);
    const std::int64_t count = index.shape().elements();
    Tensor rows = reshape(index, {1, count});
    if (of.outer != 1) {
        const auto number = [&](std::int64_t value) {
            return constant(graph, static_cast<double>(value), DType::i32);
        };
        const Tensor there = logical_and(less_equal(number(0), rows), less(rows, number(of.extent)));
        const Tensor first = iota(graph, {of.outer, count}, 0) * number(of.extent);
        rows = select(there, rows + first, number(-1));
    }
    const Tensor parts = embedding(reshape(x, {of.outer * of.extent, of.inner}), rows);
    return reshape(parts, with_extents(x.shape(), of.axis, index.shape().extents()));
}

Tensor scatter_add(Tensor x, int axis, Tensor index, Tensor parts, Where at) {
    const LineScope line(x.graph(), at);
    const Tensor numbers = element_numbers("scatter_add", x, axis, index);
    if (parts.shape() != index.shape() || parts.dtype() != x.dtype())
        refuse("scatter_add", x.graph().origin,
               fmt::format("parts must be {} of the shape of the indices {}, got {}", name_of(x.dtype()),
                           index.shape().text(), parts.type().text()));
    const std::int64_t elements = x.shape().elements();
    const Tensor added = reshape(cast(parts, DType::f32), {parts.shape().elements(), 1});
    const Tensor table = reshape(cast(x, DType::f32), {elements, 1});
    const Tensor sums = call1("embedding_grad", {added, reshape(numbers, {parts.shape().elements()}), table},
                              {{"rows", elements}});
    return cast(reshape(sums, x.shape()), x.dtype());
}

namespace {

/// The axes of x but one, which comes last; the order is its own inverse.
std::vector<std::int64_t> with_axis_last(int rank, int axis) {
    std::vector<std::int64_t> order;
    for (int i = 0; i < rank; ++i) order.push_back(i == axis ? rank - 1 : i == rank - 1 ? axis : i);
    return order;
}

Tensor order_along(const Tensor& x, int axis, std::int64_t count, Order order) {
    const Attributes attributes{{"count", count}, {"descending", order == Order::descending}};
    if (axis == x.rank() - 1) return call1("argsort", {x}, attributes);
    const std::vector<std::int64_t> axes = with_axis_last(x.rank(), axis);
    return transpose(call1("argsort", {transpose(x, axes)}, attributes), axes);
}

}  // namespace

Tensor argsort(Tensor x, int axis, Order order, Where at) {
    const LineScope line(x.graph(at), at);
    const auto front = static_cast<int>(axis_from_front("argsort", x, axis));
    return order_along(x, front, x.dim(front), order);
}

Sorted sort(Tensor x, int axis, Order order, Where at) {
    const LineScope line(x.graph(at), at);
    const auto front = static_cast<int>(axis_from_front("sort", x, axis));
    const Tensor indices = order_along(x, front, x.dim(front), order);
    return {gather(x, front, indices), indices};
}

Sorted top_k(Tensor x, std::int64_t count, int axis, Where at) {
    const LineScope line(x.graph(at), at);
    const auto front = static_cast<int>(axis_from_front("top_k", x, axis));
    const Tensor indices = order_along(x, front, count, Order::descending);
    return {gather(x, front, indices), indices};
}

Tensor grouped_matmul(Tensor x, Tensor w, Tensor counts, GroupedWeights weights, Where at) {
    return call1("grouped_matmul", {x, w, counts}, {{"transpose_b", weights == GroupedWeights::transposed}},
                 at);
}

Routed route(Tensor scores, std::int64_t experts_of_row, Where at) {
    Graph& graph = scores.graph(at);
    const LineScope line(graph, at);
    if (scores.rank() != 2)
        refuse("route", graph.origin, fmt::format("scores must be [R, E], got {}", scores.type().text()));
    const std::int64_t R = scores.dim(0), E = scores.dim(1);
    const Tensor experts = order_along(scores, 1, experts_of_row, Order::descending);
    const Tensor all = reshape(experts, {R * experts_of_row});
    const Tensor order = argsort(all);
    const Tensor chosen = equal(reshape(all, {R * experts_of_row, 1}), iota(graph, {1, E}, 1));
    const Tensor counts = sum(select(chosen, constant(graph, 1.0), constant(graph, 0.0)), {0});
    return {.source = floor_divide(order, constant(graph, static_cast<double>(experts_of_row), DType::i32)),
            .counts = cast(counts, DType::i32),
            .place = reshape(argsort(order), {R, experts_of_row}),
            .experts = experts};
}

}  // namespace mantissa::ops
