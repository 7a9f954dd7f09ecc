// Where the axes of one tensor went in another that is made from it by reshapes and transpositions.
//
// Each axis of the tensor at hand is a product of atoms, outermost first; an atom is a part of an axis that
// was named at the start. [B, H, T, S] reshaped to [B H, T, S] has the axes {B, H}, {T}, {S}.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/graph/type.h"

namespace mantissa::inline v0 {

struct AxisAtom {
    int axis = 0;             ///< the name of the axis that it is a part of
    std::int64_t stride = 1;  ///< of the part in that axis
    std::int64_t extent = 1;  ///< never 1: such parts are left out

    friend bool operator==(const AxisAtom&, const AxisAtom&) = default;
};

using AxisAtoms = std::vector<AxisAtom>;

class AxisMap {
  public:
    AxisMap() = default;
    /// The axes of a tensor, each whole, named 0, 1, ...
    explicit AxisMap(const Shape& shape);
    explicit AxisMap(std::vector<AxisAtoms> axes) : axes_(std::move(axes)) {}

    int rank() const { return static_cast<int>(axes_.size()); }
    /// Negative axes count from the end.
    const AxisAtoms& operator[](int axis) const {
        return axes_[static_cast<std::size_t>(axis < 0 ? axis + rank() : axis)];
    }
    /// All atoms in row-major order.
    AxisAtoms flattened() const;

    /// The map of the tensor reshaped to `shape`; false if an axis is cut where no part ends.
    bool reshape(const Shape& shape);
    /// Becomes the map of the transposed tensor: axis i is axis order[i] of the one at hand.
    void transpose(std::span<const std::int64_t> order);
    /// Becomes the map of the tensor from which `order` makes the one at hand.
    void undo_transpose(std::span<const std::int64_t> order);

  private:
    std::vector<AxisAtoms> axes_;
};

/// Whether the atoms are the whole of an axis of this name and extent.
bool is_whole(const AxisAtoms& atoms, int axis, std::int64_t extent);

/// The extents of a shape over 1; a reshape may put extents of 1 anywhere.
std::vector<std::int64_t> extents_over_one(const Shape& shape);

}  // namespace mantissa
