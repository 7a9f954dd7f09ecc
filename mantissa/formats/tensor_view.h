// A tensor in memory for file formats: name, type, shape, pointer. Nothing here knows graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0 {

/// A readable tensor: contiguous, last dimension fastest. `data` may be unaligned (inside a mapped file), so
/// copy elements out and never cast the pointer.
struct TensorView {
    std::string name;
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
    const std::byte* data = nullptr;
};

/// A tensor's description without its data.
struct TensorSpec {
    std::string name;
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
};

/// Product of the dimensions. Throws InternalError for a negative one or a product beyond 2^63 - 1.
std::int64_t element_count(const std::vector<std::int64_t>& shape);

/// Bytes of a tensor of this type and shape.
inline std::size_t byte_count(DType dtype, const std::vector<std::int64_t>& shape) {
    return static_cast<std::size_t>(element_count(shape)) * size_of(dtype);
}

/// As in errors: "[768, 2304]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace mantissa
