// Orders of the elements along the last axis, for sorting and the greatest few.
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

/// x [..., N] -> i32 [..., count]: which element stands at each place of the order.
std::vector<Type> argsort_types(const OpCall& call) {
    const Type& x = call.inputs[0];
    expect(x.dtype == DType::f32 || x.dtype == DType::bf16 || x.dtype == DType::f16 || x.dtype == DType::i32,
           "operand 0 must be f32, bf16, f16 or i32, got {}", x.text());
    expect(x.shape.rank() > 0, "expected an axis to sort along, got {}", x.text());
    constexpr std::int64_t most = 1 << 24;  // places are counted in FP32
    const std::int64_t count = call.attributes.integer("count");
    expect(x.shape[-1] <= most, "an axis that is sorted has at most {} elements, got {}", most, x.text());
    expect(count >= 0 && count <= x.shape[-1], "the first {} of {} elements are asked for", count,
           x.shape[-1]);
    Shape shape = x.shape;
    shape[-1] = count;
    return {{DType::i32, shape}};
}

/// Whether element j stands before element i, for x_i and x_j as they broadcast: NaN is greatest, and equal
/// elements keep their order in x.
Tensor stands_before(const Tensor& x_j, const Tensor& x_i, const Tensor& j, const Tensor& i,
                     bool descending) {
    const auto is_nan = [](const Tensor& x) { return logical_not(equal(x, x)); };
    const Tensor nan_i = is_nan(x_i), nan_j = is_nan(x_j);
    const Tensor before = descending ? logical_or(less(x_i, x_j), logical_and(nan_j, logical_not(nan_i)))
                                     : logical_or(less(x_j, x_i), logical_and(nan_i, logical_not(nan_j)));
    const Tensor alike = logical_or(equal(x_i, x_j), logical_and(nan_i, nan_j));
    return logical_or(before, logical_and(alike, less(j, i)));
}

/// An element's place is the number of elements before it; the order has at each place its element.
std::vector<Tensor> argsort_definition(const DefinitionCall& call) {
    Graph& graph = call.graph;
    const Tensor x = call.inputs[0];
    const std::int64_t N = x.dim(-1), count = call.attributes.integer("count");
    Shape shape = x.shape();
    shape[-1] = count;
    if (shape.elements() == 0) return {constant(graph, 0, DType::i32, shape)};
    const std::int64_t R = x.shape().elements() / N;
    const Tensor before =
        stands_before(reshape(x, {R, 1, N}), reshape(x, {R, N, 1}), iota(graph, {1, 1, N}, 2),
                      iota(graph, {1, N, 1}, 1), call.attributes.flag("descending"));
    const Tensor one = constant(graph, 1.0), zero = constant(graph, 0.0);
    const Tensor places = reshape(sum(select(before, one, zero), {2}), {R, 1, N});
    const Tensor is_there = equal(places, iota(graph, {1, count, 1}, 1, DType::f32));
    const Tensor found = sum(select(is_there, iota(graph, {1, 1, N}, 2, DType::f32), zero), {2});
    return {reshape(cast(found, DType::i32), shape)};
}

/// About a comparison for each halving.
std::int64_t argsort_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes&) {
    std::int64_t halvings = 0;
    for (std::int64_t n = inputs[0].shape[-1]; n > 1; n /= 2) ++halvings;
    return inputs[0].shape.elements() * halvings;
}

}  // namespace

std::span<const Op> order_ops() {
    static const std::vector<Op> rows = {
        {.name = "argsort",
         .types = argsort_types,
         .no_gradient = "it gives whole numbers",
         .flops = argsort_flops,
         .definition = argsort_definition},
    };
    return rows;
}

}  // namespace mantissa
