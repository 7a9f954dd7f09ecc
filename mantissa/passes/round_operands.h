// Training below sixteen bits: operands of the products of linear layers and convolutions become values of a
// shorter format.
//
//   %3: bf16 = matmul(%x, %w) {transpose_b}
// becomes, under mxfp8,
//   %1: bf16 = round_blocks(%x) {element=e4m3, axis=1, block=32, rule=up}, %2 = round_blocks(%master) {...},
//   %3: bf16 = matmul(%1, %2) {transpose_b}
//
// Under fp8, whose scales are FP32 numbers of the tensors, the scales multiply the sums:
//   %1: bf16, %f: f32 = round_blocks(%x) {element=e4m3, rule=tensor},  %2, %g = round_blocks(%master) {...},
//   %3: f32 = matmul(%1, %2) {output=f32},  %4: bf16 = cast(mul(%3, mul(%f, %g)))
//
// Where the target has a unit for FP8, and extents allow it, operands are stored as FP8, and one operation
// multiplies all:
//   %1: bf16 as e4m3, %f = round_blocks(%x) {fp8},  ...,  %4: bf16 = scaled_matmul(%1, %2, %f, %g)
//
// Under fp8-delayed the scale of x comes from a state, amax.x.NAME of the weight, its largest magnitudes in
// the micro-batches before.
//
// It runs after differentiation: each of a layer's three products (Y, dX, dW) has its operands rounded along
// its own depth. So X, W and dY are rounded twice, both times from the tensor as it was. They are rounded
// once where blocks are square or the scale is the tensor's. A weight is rounded from the parameter itself,
// not from its BF16 copy, once a step where `lay_out` runs.
//
// The depth of a convolution is its channels: the input's for x, the output's for dy, either for the filter.
// Its filter gradient is rounded along the batch: in each tap other places meet.
//
// In BF16 stay: the first and last layers, as many as the policy says; the head, which is the fused loss or
// else the last layer; a first layer, which reads an input; convolutions in groups; the products of attention
// and everything in a loop's body. Each of these that is found has its line in `kept`.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/target.h"
#include "mantissa/passes/pass_refusal.h"
#include "mantissa/passes/policy.h"

namespace mantissa::inline v0 {

/// Prefix of the names of states that hold a tensor's largest magnitudes of earlier micro-batches.
/// Checkpoints keep them as an optimizer's, and model files do not.
inline constexpr std::string_view history_prefix = "amax.";

struct RoundedOperands {
    Graph graph;
    std::vector<PassRefusal> kept;  ///< products that stay as they were, and why
};

/// `policy` has blocks. `kept`: values of the graph; each becomes its value in the new graph. Histories of
/// largest magnitudes are read, and where the graph has a backward pass each is followed by its micro-batch's
/// (train/running_statistics.h makes one update of a step of them). Where the target has
/// `finds_largest_where_written`, the largest magnitudes of X and dY are operations of their own, which
/// `fuse` puts into the kernel that writes the tensor.
RoundedOperands round_operands(const Graph& graph, const Policy& policy, std::span<Value> kept,
                               const Target& target = {});

}  // namespace mantissa
