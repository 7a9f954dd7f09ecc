// Norms of groups of channels, weights that are a direction and a length, and bags of rows of a table: by
// other operations, which nests compute without keeping intermediate values.
#include <fmt/format.h>

#include <limits>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0::ops {

Tensor group_norm(Tensor x, std::int64_t groups, Tensor gamma, Tensor beta, double epsilon, Where at) {
    const LineScope line(x.graph(at), at);
    if (x.rank() < 2)
        refuse("group_norm", x.graph().origin, fmt::format("expected [N, ..., C], got {}", x.type().text()));
    const std::int64_t N = x.dim(0), C = x.dim(-1);
    if (groups < 1 || C % groups != 0)
        refuse("group_norm", x.graph().origin,
               fmt::format("{} channels are not cut into {} equal groups", C, groups));
    for (const Tensor& each : {gamma, beta})
        if (each.shape() != Shape{C})
            refuse("group_norm", x.graph().origin,
                   fmt::format("scale and shift must be [{}], got {}", C, each.type().text()));
    const std::int64_t pixels = N * C == 0 ? 0 : x.shape().elements() / (N * C);
    const Tensor by_group = reshape(cast(x, DType::f32), {N, pixels, groups, C / groups});
    const Tensor centered = by_group - mean(by_group, {1, 3}, KeepAxes::yes);
    const Tensor variance = mean(centered * centered, {1, 3}, KeepAxes::yes);
    const Tensor normed = reshape(centered * rsqrt(variance + epsilon), x.shape());
    return cast(normed * cast(gamma, DType::f32) + cast(beta, DType::f32), x.dtype());
}

Tensor instance_norm(Tensor x, Tensor gamma, Tensor beta, double epsilon, Where at) {
    const LineScope line(x.graph(at), at);
    return group_norm(x, x.rank() == 0 ? 0 : x.dim(-1), gamma, beta, epsilon, at);
}

Tensor weight_norm(Tensor direction, Tensor length, int axis, Where at) {
    const LineScope line(direction.graph(at), at);
    const auto front = static_cast<int>(axis_from_front("weight_norm", direction, axis));
    if (length.shape() != Shape{direction.dim(front)})
        refuse("weight_norm", direction.graph().origin,
               fmt::format("lengths must be [{}], one an index of axis {}, got {}", direction.dim(front),
                           front, length.type().text()));
    std::vector<std::int64_t> others, shape(static_cast<std::size_t>(direction.rank()), 1);
    for (int i = 0; i < direction.rank(); ++i)
        if (i != front) others.push_back(i);
    shape[static_cast<std::size_t>(front)] = direction.dim(front);
    const Tensor v = cast(direction, DType::f32), g = reshape(cast(length, DType::f32), Shape(shape));
    return cast(v * (g * rsqrt(sum(v * v, others, KeepAxes::yes))), direction.dtype());
}

Tensor embedding_bag(Tensor table, Tensor ids, const BagOptions& options, Where at) {
    const LineScope line(table.graph(at), at);
    Graph& graph = table.graph();
    if (ids.rank() != 2 || ids.dtype() != DType::i32 || table.rank() != 2)
        refuse("embedding_bag", graph.origin,
               fmt::format("expected a table [V, C] and ids i32 [bags, ids], got {} and {}",
                           table.type().text(), ids.type().text()));
    if (options.weights && (options.bag != Bag::sum || options.weights.shape() != ids.shape()))
        refuse("embedding_bag", graph.origin,
               fmt::format("weights, one an id, belong to sums: they must be {}, got {}", ids.shape().text(),
                           options.weights.type().text()));
    const std::int64_t B = ids.dim(0), L = ids.dim(1);
    Tensor kept, read = ids;
    if (options.ignore_id) {
        kept = logical_not(equal(ids, constant(graph, static_cast<double>(*options.ignore_id), DType::i32)));
        read = select(kept, ids, constant(graph, 0, DType::i32));
        kept = reshape(kept, {B, L, 1});
    }
    const auto kept_or = [&](const Tensor& x, double other) {
        return kept ? select(kept, x, constant(graph, other)) : x;
    };
    Tensor rows = cast(embedding(table, read), DType::f32);  // [B, L, C]
    if (options.bag == Bag::max) {
        constexpr double least = -std::numeric_limits<double>::infinity();
        const Tensor highest = max(kept_or(rows, least), {1});
        // An empty bag has no maximum.
        return cast(select(equal(highest, constant(graph, least)), constant(graph, 0.0), highest),
                    table.dtype());
    }
    if (options.weights) rows = rows * reshape(cast(options.weights, DType::f32), {B, L, 1});
    Tensor total = sum(kept_or(rows, 0), {1});
    if (options.bag == Bag::mean) {
        const Tensor one = constant(graph, 1.0);
        const Tensor count = kept ? sum(select(kept, one, constant(graph, 0.0)), {1})
                                  : constant(graph, static_cast<double>(L));
        total = total / maximum(count, one);
    }
    return cast(total, table.dtype());
}

}  // namespace mantissa::ops
