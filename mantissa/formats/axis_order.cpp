#include "mantissa/formats/axis_order.h"

#include <algorithm>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/formats/tensor_view.h"

namespace mantissa::inline v0 {

namespace {

/// Copies rows [begin, end) of the transpose of `from` [rows, columns] to `to`.
template <std::size_t element>
void copy_transposed(std::size_t rows, std::size_t columns, std::size_t begin, std::size_t end,
                     const std::byte* from, std::byte* to) {
    // Blocks of 16 x 16 keep both sides in the first cache; memcpy because neither side need be aligned.
    constexpr std::size_t block = 16;
    for (std::size_t c0 = begin; c0 < end; c0 += block)
        for (std::size_t r0 = 0; r0 < rows; r0 += block)
            for (std::size_t c = c0; c < std::min(c0 + block, end); ++c)
                for (std::size_t r = r0; r < std::min(r0 + block, rows); ++r)
                    std::memcpy(to + ((c - begin) * rows + r) * element, from + (r * columns + c) * element,
                                element);
}

/// An axis of the result: its extent, and the distance of its elements in the source.
struct Axis {
    std::size_t extent = 0, stride = 0;  // elements
};

std::vector<Axis> axes_of(const OrderedTensor& tensor) {
    std::vector<std::size_t> strides(tensor.extents.size(), 1);
    for (std::size_t i = strides.size(); i-- > 1;)
        strides[i - 1] = strides[i] * static_cast<std::size_t>(tensor.extents[i]);
    std::vector<Axis> result;
    for (const int axis : tensor.axes) {
        const auto at = static_cast<std::size_t>(axis);
        result.push_back({static_cast<std::size_t>(tensor.extents[at]), strides[at]});
    }
    return result;
}

/// Copies all below an axis, and returns the end of the copy.
template <std::size_t element>
std::byte* copy_below(const std::vector<Axis>& axes, std::size_t depth, const std::byte* from,
                      std::byte* to) {
    const Axis& axis = axes[depth];
    for (std::size_t i = 0; i < axis.extent; ++i, from += axis.stride * element) {
        if (depth + 1 < axes.size()) {
            to = copy_below<element>(axes, depth + 1, from, to);
        } else {
            std::memcpy(to, from, element);
            to += element;
        }
    }
    return to;
}

template <std::size_t element>
void copy_rows(const OrderedTensor& tensor, std::size_t begin, std::size_t end, const std::byte* from,
               std::byte* to) {
    if (tensor.axes == std::vector{1, 0})
        return copy_transposed<element>(static_cast<std::size_t>(tensor.extents[0]),
                                        static_cast<std::size_t>(tensor.extents[1]), begin, end, from, to);
    std::vector<Axis> axes = axes_of(tensor);
    from += begin * axes[0].stride * element;
    axes[0].extent = end - begin;
    copy_below<element>(axes, 0, from, to);
}

const std::vector<std::int64_t>& seen(const AxisOrder& order, const std::vector<std::int64_t>& shape) {
    if (order.seen_as.empty()) return shape;
    check(element_count(order.seen_as) == element_count(shape), "a tensor is seen with all its elements");
    return order.seen_as;
}

void require_order(const AxisOrder& order, std::size_t rank) {
    std::vector<int> sorted = order.axes;
    std::ranges::sort(sorted);
    bool each_once = sorted.size() == rank && rank > 0;
    for (std::size_t i = 0; i < sorted.size(); ++i) each_once = each_once && sorted[i] == static_cast<int>(i);
    check(each_once, "an order names each axis once");
}

std::vector<std::int64_t> reordered(const AxisOrder& order, const std::vector<std::int64_t>& extents) {
    require_order(order, extents.size());
    std::vector<std::int64_t> result;
    for (const int axis : order.axes) result.push_back(extents[axis]);
    return result;
}

}  // namespace

AxisOrder transposed() { return {.axes = {1, 0}}; }

std::vector<std::int64_t> shape_in_file(const AxisOrder& order, const std::vector<std::int64_t>& shape) {
    if (order.keeps()) return shape;
    const std::vector<std::int64_t> extents = reordered(order, seen(order, shape));
    return order.seen_as.empty() ? extents : shape;
}

std::size_t OrderedTensor::row_bytes() const {
    std::size_t bytes = element;
    for (std::size_t i = 1; i < axes.size(); ++i) bytes *= static_cast<std::size_t>(extents[axes[i]]);
    return bytes;
}

OrderedTensor into_file(const AxisOrder& order, const std::vector<std::int64_t>& shape, std::size_t element) {
    require_order(order, seen(order, shape).size());
    return {seen(order, shape), order.axes, element};
}

OrderedTensor out_of_file(const AxisOrder& order, const std::vector<std::int64_t>& shape,
                          std::size_t element) {
    std::vector<int> back(order.axes.size());
    std::vector<std::int64_t> extents = reordered(order, seen(order, shape));
    for (std::size_t i = 0; i < back.size(); ++i) back[order.axes[i]] = static_cast<int>(i);
    return {std::move(extents), std::move(back), element};
}

void copy_ordered(const OrderedTensor& tensor, std::size_t begin, std::size_t end, const std::byte* from,
                  std::byte* to) {
    switch (tensor.element) {
        case 1:
            return copy_rows<1>(tensor, begin, end, from, to);
        case 2:
            return copy_rows<2>(tensor, begin, end, from, to);
        case 4:
            return copy_rows<4>(tensor, begin, end, from, to);
        case 8:
            return copy_rows<8>(tensor, begin, end, from, to);
        default:
            throw InternalError("an element has 1, 2, 4 or 8 bytes");
    }
}

}  // namespace mantissa
