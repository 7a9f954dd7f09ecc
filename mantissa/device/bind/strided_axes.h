// Tensors as loops over axes, with a stride for each axis: both devices copy and stretch by them.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/device/device.h"
#include "mantissa/graph/type.h"

namespace mantissa::inline v0 {

/// One strided copy between parts of two tensors. Strides and offsets are in elements.
struct CopiedPiece {
    Shape shape;
    std::vector<std::int64_t> from_strides, to_strides;
    std::int64_t from = 0, to = 0;
    std::size_t input = 0, output = 0;
};

/// The copies of a transpose, broadcast, slice, split, concat or pad; around a pad's copy there are zeros.
std::vector<CopiedPiece> copied_pieces(const Problem& problem);

/// The strides for reading an operand to fill `shape`: 0 along axes that it is stretched over.
std::vector<std::int64_t> broadcast_strides(const Shape& operand, const Shape& shape);

/// Merges axes that lie behind one another in all operands, and removes extents of 1.
void merge_axes(std::vector<std::int64_t>& extents, const std::vector<std::vector<std::int64_t>*>& strides);

}  // namespace mantissa
