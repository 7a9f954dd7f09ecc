// One element of any storage type as the plain loops compute with it: 16-bit formats are widened to FP32, and
// results are rounded to nearest even when they are stored.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mantissa/base/error.h"
#include "mantissa/numerics/dtype.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

template <class T>
T number(T x) {
    return x;
}
inline float number(BF16 x) { return to_f32(x); }
inline float number(FP16 x) { return to_f32(x); }

template <class Stored, class T>
Stored stored_as(T x) {
    if constexpr (std::is_same_v<Stored, BF16>)
        return to_bf16(static_cast<float>(x));
    else if constexpr (std::is_same_v<Stored, FP16>)
        return to_fp16(static_cast<float>(x));
    else
        return static_cast<Stored>(x);
}

/// Calls `body(T{})` with the C++ type of a storage type.
template <class Body>
auto with_type(DType dtype, Body&& body) -> decltype(body(float{})) {
    switch (dtype) {
        case DType::f32:
            return body(float{});
        case DType::f64:
            return body(double{});
        case DType::i32:
            return body(std::int32_t{});
        case DType::i64:
            return body(std::int64_t{});
        case DType::u8:
            return body(std::uint8_t{});
        case DType::s8:
            return body(std::int8_t{});
        case DType::boolean:
            return body(bool{});
        case DType::f16:
            return body(FP16{});
        case DType::bf16:
            return body(BF16{});
    }
    throw InternalError("a storage type outside of its enumeration");
}

/// Calls body(zero of the type) for floating-point types only; a kernel refuses the others.
template <class Body>
auto with_floating_type(DType dtype, Body&& body) -> decltype(body(float{})) {
    switch (dtype) {
        case DType::f32:
            return body(float{});
        case DType::f64:
            return body(double{});
        case DType::f16:
            return body(FP16{});
        case DType::bf16:
            return body(BF16{});
        default:
            throw InternalError("a kernel refuses the types that it was not written for");
    }
}

}  // namespace mantissa
