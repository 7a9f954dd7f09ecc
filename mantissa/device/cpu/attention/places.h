// Where the rows of attention's operands lie: dense strides, how far a tensor reaches, and whether two
// interleaved tensors keep clear of one another.
#pragma once

#include "mantissa/device/cpu/attention/problems.h"

namespace mantissa::inline v0::on_cpu {

/// Strides of [B, H, positions, D], one element after another.
constexpr HeadStrides dense_strides(std::int64_t heads, std::int64_t positions, std::int64_t head_size) {
    return {.sequence = heads * positions * head_size, .head = positions * head_size, .position = head_size};
}

constexpr bool equal(const HeadStrides& a, const HeadStrides& b) {
    return a.sequence == b.sequence && a.head == b.head && a.position == b.position;
}

/// Rows of a tensor: B, H, positions and D.
struct HeadExtents {
    std::int64_t sequences = 0, heads = 0, positions = 0, head_size = 0;
};

/// Elements from the first to behind the last.
std::int64_t reach(const HeadExtents& extents, const HeadStrides& strides);

/// Whether no two rows share an element: along one axis after another, innermost first, the stride passes
/// everything within it.
bool rows_are_apart(const HeadExtents& extents, const HeadStrides& strides);

/// Whether the rows of two tensors of equal extents and strides are apart, one tensor `distance` elements
/// behind the other. The rows of each must be apart.
bool tensors_are_apart(const HeadExtents& extents, const HeadStrides& strides, std::int64_t distance);

}  // namespace mantissa::on_cpu
