// Sorting and the greatest few along an axis: an order, and the values in it. Gradients go where the values
// came from. Also rows in the order of the experts that they are given to.
#include <fmt/format.h>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0::ops {

namespace {

/// The axes of x but one, which comes last; the order is its own inverse.
std::vector<std::int64_t> with_axis_last(int rank, int axis) {
    std::vector<std::int64_t> order;
    for (int i = 0; i < rank; ++i) order.push_back(i == axis ? rank - 1 : i == rank - 1 ? axis : i);
    return order;
}

int axis_from_front(std::string_view op, const Tensor& x, int axis) {
    const int front = axis < 0 ? axis + x.rank() : axis;
    if (front < 0 || front >= x.rank())
        refuse(op, x.graph().origin, fmt::format("{} has no axis {}", x.type().text(), axis));
    return front;
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
    const int front = axis_from_front("argsort", x, axis);
    return order_along(x, front, x.dim(front), order);
}

Sorted sort(Tensor x, int axis, Order order, Where at) {
    const LineScope line(x.graph(at), at);
    const int front = axis_from_front("sort", x, axis);
    const Tensor indices = order_along(x, front, x.dim(front), order);
    return {gather(x, front, indices), indices};
}

Sorted top_k(Tensor x, std::int64_t count, int axis, Where at) {
    const LineScope line(x.graph(at), at);
    const int front = axis_from_front("top_k", x, axis);
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
