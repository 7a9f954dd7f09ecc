#include "mantissa/graph/type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/numerics/coded_weights.h"

namespace mantissa::inline v0 {

std::int64_t Shape::elements() const {
    std::int64_t product = 1;
    for (std::int64_t extent : extents_)
        if (__builtin_mul_overflow(product, extent, &product))
            throw UserError(
                fmt::format("a tensor of shape {} has more elements than can be counted", text()));
    return product;
}

std::vector<std::int64_t> Shape::strides() const {
    std::vector<std::int64_t> result(extents_.size());
    std::int64_t stride = 1;
    for (std::size_t axis = extents_.size(); axis-- > 0; stride *= extents_[axis]) result[axis] = stride;
    return result;
}

std::string Shape::text() const { return fmt::format("[{}]", fmt::join(extents_, ", ")); }

int Shape::index_of(int axis) const {
    const int index = axis < 0 ? axis + rank() : axis;
    if (index < 0 || index >= rank()) [[unlikely]]
        throw UserError(fmt::format("axis {} is outside the shape {}", axis, text()));
    return index;
}

Shape broadcast_shape(const Shape& a, const Shape& b) {
    std::vector<std::int64_t> extents(std::max(a.rank(), b.rank()));
    for (int back = 1; back <= static_cast<int>(extents.size()); ++back) {
        const std::int64_t from_a = back <= a.rank() ? a[-back] : 1;
        const std::int64_t from_b = back <= b.rank() ? b[-back] : 1;
        if (from_a != from_b && from_a != 1 && from_b != 1)
            throw UserError(fmt::format("shapes {} and {} do not fit: axis {} from the end is {} and {}",
                                        a.text(), b.text(), back, from_a, from_b));
        extents[extents.size() - static_cast<std::size_t>(back)] = from_a == 1 ? from_b : from_a;
    }
    return Shape(std::move(extents));
}

std::int64_t Type::bytes() const {
    if (has_codes(layout)) return coded_bytes({layout, shape[0], shape[1]});
    const std::int64_t whole = shape.elements() * static_cast<std::int64_t>(size_of(dtype));
    return layout == Layout::half_bytes ? whole / 2 : whole;
}

std::string Type::text() const {
    return fmt::format("{}{}{}", layout == Layout::half_bytes ? "s4" : name_of(dtype), shape.text(),
                       has_codes(layout) ? fmt::format(" as {}", name_of(layout)) : "");
}

}  // namespace mantissa
