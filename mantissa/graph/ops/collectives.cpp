// What makes a step of many micro-steps one sum, in an order that does not depend on who makes which of them:
// additions of one rank, and sums over ranks.
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

std::vector<Type> tree_add_types(const OpCall& call) {
    for (std::size_t i : {0u, 1u}) expect_dtype(call, i, DType::f32);
    expect_shape(call, 1, call.inputs[0].shape);
    return {call.inputs[0]};
}

/// terms... -> their sums over all ranks, each of its term's type.
std::vector<Type> all_reduce_types(const OpCall& call) {
    for (std::size_t i = 0; i < call.inputs.size(); ++i) expect_dtype(call, i, DType::f32);
    const std::int64_t ranks = call.attributes.integer("ranks");
    expect(ranks >= 1, "ranks must be 1 or more, got {}", ranks);
    return {call.inputs.begin(), call.inputs.end()};
}

constexpr std::string_view sums_of_gradients = "sums of gradients are not differentiated";

}  // namespace

std::span<const Op> collective_ops() {
    static const std::vector<Op> rows = {
        // An addition that no pass makes part of something else: its operands have the bits that they would
        // have if they were results.
        {.name = "tree_add",
         .least_inputs = 2,
         .most_inputs = 2,
         .types = tree_add_types,
         .no_gradient = sums_of_gradients,
         .fuser = FuserClass::opaque,
         .flops = flops_per_output<1>},
        // What it gives is on its way, and not to be read before all_reduce_wait of the same sum gives it.
        {.name = "all_reduce_start",
         .least_inputs = 1,
         .most_inputs = 1 << 20,
         .types = all_reduce_types,
         .no_gradient = sums_of_gradients,
         .fuser = FuserClass::opaque},
        {.name = "all_reduce_wait",
         .least_inputs = 1,
         .most_inputs = 1 << 20,
         .types = all_reduce_types,
         .no_gradient = sums_of_gradients,
         .fuser = FuserClass::opaque},
    };
    return rows;
}

}  // namespace mantissa
