// Attention as models call it: with any number of leading axes, either corner of a causal mask, and values of
// another head size than keys. All become the one operation, on parts of queries and keys where that is
// needed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0::ops {

namespace {

/// Axes of positions in [B, H, T, D].
constexpr int positions = 2, head_size = 3;

/// So many leading axes count sequences.
int sequence_axes(const Tensor& x) { return x.rank() > 3 ? x.rank() - 3 : x.rank() - 2; }

/// x [..., H, T, D] as [B, H, T, D]; without an axis of heads there is one.
Tensor with_four_axes(const Tensor& x) {
    std::int64_t sequences = 1;
    for (int axis = 0; axis < sequence_axes(x); ++axis) sequences *= x.dim(axis);
    return reshape(x, {sequences, x.rank() > 3 ? x.dim(-3) : 1, x.dim(-2), x.dim(-1)});
}

void expect_leading_axes(const Tensor& q, const Tensor& k, const Tensor& v) {
    const auto fits = [&](const Tensor& other) {
        if (other.rank() != q.rank()) return false;
        for (int axis = 0; axis < sequence_axes(q); ++axis)
            if (other.dim(axis) != q.dim(axis)) return false;
        return true;
    };
    if (q.rank() < 2 || !fits(k) || !fits(v))
        refuse("attention", q.graph().origin,
               fmt::format("queries, keys and values must be [..., H, T, D] with equal leading axes, got {}, "
                           "{} and {}",
                           q.type().text(), k.type().text(), v.type().text()));
}

struct Heads {
    Tensor q, k, v;  // [B, H, T, D], [B, G, S, D], [B, G, S, D]
};

Tensor part(const Tensor& x, std::int64_t start, std::int64_t stop) {
    return start == 0 && stop == x.dim(positions) ? x : slice(x, positions, start, stop);
}

Tensor call_attention(const Heads& of, bool causal, double scale) {
    return call1("attention", {of.q, of.k, of.v}, {{"causal", causal}, {"scale", scale}});
}

/// The first query sees the first key, each further one a key more, as long as there are keys.
Tensor from_the_start(const Heads& of, double scale) {
    const std::int64_t T = of.q.dim(positions), S = of.k.dim(positions), seen = std::min(T, S);
    const Heads first{part(of.q, 0, seen), part(of.k, 0, seen), part(of.v, 0, seen)};
    const Tensor o = call_attention(first, true, scale);
    if (seen == T) return o;
    const Tensor others = call_attention({part(of.q, seen, T), of.k, of.v}, false, scale);
    return concat(std::vector{o, others}, positions);
}

/// The last query sees all keys, each query before it one key less; a query without keys gives 0.
Tensor to_the_end(const Heads& of, double scale) {
    const std::int64_t T = of.q.dim(positions), S = of.k.dim(positions);
    const std::int64_t blind = std::max<std::int64_t>(T - S, 0);
    const Tensor o = call_attention({part(of.q, blind, T), of.k, of.v}, true, scale);
    return blind == 0 ? o : pad(o, positions, blind, 0);
}

Tensor widened(const Tensor& x, std::int64_t to) {
    return x.dim(head_size) == to ? x : pad(x, head_size, 0, to - x.dim(head_size));
}

}  // namespace

Tensor attention(Tensor q, Tensor k, Tensor v, const AttentionOptions& options, Where at) {
    for (const Tensor& operand : {q, k, v}) static_cast<void>(operand.graph(at));
    const LineScope line(q.graph(), at);
    expect_leading_axes(q, k, v);
    const std::int64_t D = q.dim(-1), of_values = v.dim(-1);
    const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(D)));
    Heads heads{with_four_axes(q), with_four_axes(k), with_four_axes(v)};
    // Zeros behind queries and keys leave their products as they are; zeros behind values are cut off again.
    if (const std::int64_t widest = std::max(D, of_values); k.dim(-1) == D)
        heads = {widened(heads.q, widest), widened(heads.k, widest), widened(heads.v, widest)};
    Tensor o = !options.causal                            ? call_attention(heads, false, scale)
               : options.corner == AttentionCorner::first ? from_the_start(heads, scale)
                                                          : to_the_end(heads, scale);
    if (o.dim(-1) != of_values) o = slice(o, head_size, 0, of_values);
    std::vector<std::int64_t> shape = q.shape().extents();
    shape.back() = of_values;
    return reshape(o, Shape(std::move(shape)));
}

}  // namespace mantissa::ops
