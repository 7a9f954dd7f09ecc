// The axes of a tensor in another order: how weights lie in files whose layout is not ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mantissa::inline v0 {

/// How a tensor in memory is laid into a file.
struct AxisOrder {
    /// Axis i in the file is axis axes[i] in memory; empty: as it is.
    std::vector<int> axes = {};
    /// The extents with which the tensor is seen for that, of the same number of elements; empty: its
    /// shape's. If they are given, the file has the tensor's own shape, and its elements have changed places.
    std::vector<std::int64_t> seen_as = {};

    bool keeps() const { return axes.empty(); }
};

/// The order of two dimensions that are [rows, columns] in memory, [columns, rows] in the file.
AxisOrder transposed();

/// The shape that a tensor of `shape` has in the file. Throws InternalError if the order is none for it.
std::vector<std::int64_t> shape_in_file(const AxisOrder& order, const std::vector<std::int64_t>& shape);

/// Elements that lie together, row-major, as a tensor is seen for an order.
struct OrderedTensor {
    std::vector<std::int64_t> extents = {};  ///< in memory
    std::vector<int> axes = {};              ///< of the result, as AxisOrder has them
    std::size_t element = 0;                 ///< bytes: 1, 2, 4 or 8

    /// Rows of the result: its outermost extent.
    std::size_t rows() const { return static_cast<std::size_t>(extents[static_cast<std::size_t>(axes[0])]); }
    std::size_t row_bytes() const;
};

/// The order of a tensor's axes in a file and in memory, and the way between both. The order must not keep
/// it.
OrderedTensor into_file(const AxisOrder& order, const std::vector<std::int64_t>& shape, std::size_t element);
OrderedTensor out_of_file(const AxisOrder& order, const std::vector<std::int64_t>& shape,
                          std::size_t element);

/// Copies rows [begin, end) of the result to `to`. Neither pointer need be aligned.
void copy_ordered(const OrderedTensor& tensor, std::size_t begin, std::size_t end, const std::byte* from,
                  std::byte* to);

}  // namespace mantissa
