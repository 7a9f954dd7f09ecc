// The type of a value of the graph: its storage type, its shape, its layout in memory, and how it starts if
// it is kept.
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0 {

/// The extents of a tensor, outermost first. Rank 0 is a scalar with one element.
class Shape {
  public:
    Shape() = default;
    Shape(std::initializer_list<std::int64_t> extents) : extents_(extents) {}
    explicit Shape(std::vector<std::int64_t> extents) : extents_(std::move(extents)) {}

    int rank() const { return static_cast<int>(extents_.size()); }
    /// The extent of an axis; negative axes count from the end. Throws UserError for an axis that is not
    /// there.
    std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(index_of(axis))]; }
    std::int64_t& operator[](int axis) { return extents_[static_cast<std::size_t>(index_of(axis))]; }
    /// The number of elements.
    std::int64_t elements() const;
    /// The distance in elements between neighbours along each axis, stored densely in row-major order.
    std::vector<std::int64_t> strides() const;
    const std::vector<std::int64_t>& extents() const { return extents_; }
    /// As in "[4, 1024, 768]".
    std::string text() const;

    friend bool operator==(const Shape&, const Shape&) = default;

  private:
    int index_of(int axis) const;
    std::vector<std::int64_t> extents_;
};

/// The shape that two operands share when each axis of extent 1, and each missing leading axis, is stretched.
/// Throws UserError if they do not fit.
Shape broadcast_shape(const Shape& a, const Shape& b);

struct Type {
    DType dtype = DType::f32;
    Shape shape;
    Layout layout = Layout::row_major;

    std::int64_t bytes() const;
    /// As in "f32[4, 1024]"; half bytes are "s4", and codes follow the shape: "bf16[64, 32] as nf4".
    std::string text() const;

    friend bool operator==(const Type&, const Type&) = default;
};

/// How a state starts.
struct Initializer {
    enum class Kind : std::uint8_t { constant, normal, uniform } kind = Kind::constant;
    double mean = 0;                ///< the constant, or the distribution's mean
    double standard_deviation = 0;  ///< of the normal distribution
    double limit = 0;               ///< the uniform one is over [mean - limit, mean + limit)
};

using NodeId = std::int32_t;

/// One output of one node.
struct Value {
    NodeId node = -1;
    std::int32_t output = 0;

    friend bool operator==(const Value&, const Value&) = default;
    friend auto operator<=>(const Value&, const Value&) = default;
};

}  // namespace mantissa
