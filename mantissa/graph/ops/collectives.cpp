// Operations that add up the micro-batches of a step, in an order that does not depend on the rank that
// computes each: additions of one rank, sums over ranks, and parts of tensors (ranks/shard.h).
#include "mantissa/graph/ops/rules.h"
#include "mantissa/ranks/shard.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

std::vector<Type> tree_add_types(const OpCall& call) {
    for (std::size_t i : {0u, 1u}) expect_dtype(call, i, DType::f32);
    expect_shape(call, 1, call.inputs[0].shape);
    return {call.inputs[0]};
}

std::int64_t ranks_of(const OpCall& call) {
    const std::int64_t ranks = call.attributes.integer("ranks");
    expect(ranks >= 1, "ranks must be 1 or more, got {}", ranks);
    return ranks;
}

/// terms... -> their sums over all ranks, each of its term's type. `wire`, of the operation that starts a
/// sum: BF16 if terms are rounded to travel; without it they travel as they are.
std::vector<Type> all_reduce_types(const OpCall& call) {
    for (std::size_t i = 0; i < call.inputs.size(); ++i) expect_dtype(call, i, DType::f32);
    ranks_of(call);
    if (call.attributes.has("wire"))
        expect(call.attributes.dtype("wire") == DType::bf16, "terms travel as they are or in bf16, got {}",
               name_of(call.attributes.dtype("wire")));
    return {call.inputs.begin(), call.inputs.end()};
}

Type part_type(const Type& whole, std::int64_t ranks) {
    return {whole.dtype, {shard_elements(whole.shape.elements(), ranks)}};
}

/// terms... -> this rank's part of each sum over all ranks, filled up with zeros.
std::vector<Type> reduce_scatter_wait_types(const OpCall& call) {
    std::vector<Type> parts;
    for (const Type& sum : all_reduce_types(call)) parts.push_back(part_type(sum, ranks_of(call)));
    return parts;
}

/// tensor -> this rank's part of it, filled up with zeros.
std::vector<Type> own_shard_types(const OpCall& call) {
    expect_floating(call, 0);
    return {part_type(call.inputs[0], ranks_of(call))};
}

/// parts... -> the whole tensors; each rank has one part of each. `shapes`: for each its rank, then its
/// extents.
std::vector<Type> all_gather_start_types(const OpCall& call) {
    const std::int64_t ranks = ranks_of(call);
    const std::vector<std::int64_t>& shapes = call.attributes.list("shapes");
    std::vector<Type> wholes;
    auto next = shapes.begin();
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        expect_floating(call, i);
        expect(next != shapes.end() && *next >= 0 && *next < shapes.end() - next,
               "{} parts have a shape each, the list of shapes ends at the {}th", call.inputs.size(), i);
        const Shape shape({next + 1, next + 1 + *next});
        next += 1 + *next;
        expect_shape(call, i, {shard_elements(shape.elements(), ranks)});
        wholes.push_back({call.inputs[i].dtype, shape});
    }
    expect(next == shapes.end(), "there are more shapes than parts");
    return wholes;
}

std::vector<Type> all_gather_wait_types(const OpCall& call) {
    ranks_of(call);
    return {call.inputs.begin(), call.inputs.end()};
}

/// tensors [n, ...] -> for each the tensors of all ranks, one behind another: [ranks n, ...].
std::vector<Type> all_gather_rows_start_types(const OpCall& call) {
    const std::int64_t ranks = ranks_of(call);
    std::vector<Type> wholes;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        expect_floating(call, i);
        expect(call.inputs[i].shape.rank() >= 1, "operand {} is a scalar, which has no rows", i);
        wholes.push_back(call.inputs[i]);
        wholes.back().shape[0] *= ranks;
    }
    return wholes;
}

/// gradients... -> as global_norm. `elements`: for each gradient the elements of the whole, if it is this
/// rank's part of one; 0: it is whole.
std::vector<Type> norm_of_parts_types(const OpCall& call) {
    const std::int64_t ranks = ranks_of(call);
    const std::vector<std::int64_t>& elements = call.attributes.list("elements");
    expect(elements.size() == call.inputs.size(), "{} gradients have a number of elements each, got {}",
           call.inputs.size(), elements.size());
    for (std::size_t i = 0; i < elements.size(); ++i) {
        expect_dtype(call, i, DType::f32);
        if (elements[i] != 0) expect_shape(call, i, {shard_elements(elements[i], ranks)});
    }
    return {{DType::f32, {}}, {DType::boolean, {}}};
}

constexpr std::string_view sums_of_gradients = "sums of gradients are not differentiated";

}  // namespace

std::span<const Op> collective_ops() {
    static const std::vector<Op> rows = {
        // An addition that no pass makes part of another operation: its operands have the bits that they
        // would have as results.
        {.name = "tree_add",
         .min_inputs = 2,
         .types = tree_add_types,
         .no_gradient = sums_of_gradients,
         .flops = flops_per_output<1>,
         .meaning = [](std::span<const double> x) { return x[0] + x[1]; }},
        // The result is on its way, and not to be read before all_reduce_wait of the same sum gives it.
        {.name = "all_reduce_start",
         .max_inputs = 1 << 20,
         .types = all_reduce_types,
         .no_gradient = sums_of_gradients},
        {.name = "all_reduce_wait",
         .max_inputs = 1 << 20,
         .types = all_reduce_types,
         .no_gradient = sums_of_gradients},
        // Sums over ranks where each rank needs only a part of the sum.
        {.name = "reduce_scatter_start",
         .max_inputs = 1 << 20,
         .types = all_reduce_types,
         .no_gradient = sums_of_gradients},
        {.name = "reduce_scatter_wait",
         .max_inputs = 1 << 20,
         .types = reduce_scatter_wait_types,
         .no_gradient = sums_of_gradients},
        {.name = "own_shard", .types = own_shard_types, .no_gradient = "the update is not differentiated"},
        // The result is on its way, and not to be read before all_gather_wait of the same sum gives it.
        {.name = "all_gather_start",
         .max_inputs = 1 << 20,
         .types = all_gather_start_types,
         .no_gradient = "the update is not differentiated"},
        // Gathers tensors that each rank has whole.
        {.name = "all_gather_rows_start",
         .max_inputs = 1 << 20,
         .types = all_gather_rows_start_types,
         .no_gradient = "the update is not differentiated"},
        {.name = "all_gather_wait",
         .max_inputs = 1 << 20,
         .types = all_gather_wait_types,
         .no_gradient = "the update is not differentiated",
         .passes_through = true},
        {.name = "norm_of_parts",
         .max_inputs = 1 << 20,
         .types = norm_of_parts_types,
         .no_gradient = "the update is not differentiated",
         .autocast = AutocastClass::fp32,
         .flops =
             [](auto inputs, auto, const Attributes&) {
                 std::int64_t elements = 0;
                 for (const Type& type : inputs) elements += type.shape.elements();
                 return 2 * elements;
             }},
    };
    return rows;
}

}  // namespace mantissa
