// The axes of a tensor in another order, for weight files with a layout other than ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mantissa::inline v0 {

/// The layout of a tensor in a file.
struct AxisOrder {
    /// Axis i in the file is axis axes[i] in memory; empty: unchanged.
    std::vector<int> axes = {};
    /// The extents for reordering, with the same number of elements; empty: the tensor's shape. With other
    /// extents, the file keeps the tensor's shape, with its elements reordered.
    std::vector<std::int64_t> seen_as = {};

    bool keeps() const { return axes.empty(); }
};

/// The order that transposes [rows, columns] in memory to [columns, rows] in the file.
AxisOrder transposed();

/// The shape of a tensor of `shape` in the file. Throws InternalError if the order does not fit it.
std::vector<std::int64_t> shape_in_file(const AxisOrder& order, const std::vector<std::int64_t>& shape);

/// A row-major tensor with the extents for an order.
struct OrderedTensor {
    std::vector<std::int64_t> extents = {};  ///< in memory
    std::vector<int> axes = {};              ///< of the result, as in AxisOrder
    std::size_t element = 0;                 ///< bytes: 1, 2, 4 or 8

    /// Rows of the result: its outermost extent.
    std::size_t rows() const { return static_cast<std::size_t>(extents[static_cast<std::size_t>(axes[0])]); }
    std::size_t row_bytes() const;
};

/// Reordering from memory into a file, and back. AxisOrder::keeps() must be false.
OrderedTensor into_file(const AxisOrder& order, const std::vector<std::int64_t>& shape, std::size_t element);
OrderedTensor out_of_file(const AxisOrder& order, const std::vector<std::int64_t>& shape,
                          std::size_t element);

/// Copies rows [begin, end) of the result to `to`. Neither pointer need be aligned.
void copy_ordered(const OrderedTensor& tensor, std::size_t begin, std::size_t end, const std::byte* from,
                  std::byte* to);

}  // namespace mantissa
