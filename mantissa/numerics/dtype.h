// The types in which tensors are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mantissa::inline v0 {

/// TF32 is absent on purpose: it is a way to multiply FP32, not a way to store.
enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean, s8 };

/// How the elements of a tensor lie in memory.
enum class Layout : std::uint8_t {
    row_major,
    /// Holds s8 in -8 ... 7: two neighbours of the last axis, which is even, in one byte, low half first.
    half_bytes,
    // A matrix of floating numbers, as codes and scales (numerics/coded_weights.h).
    nf4,
    int4,
    int8,
    // FP8 numbers, a byte each: by rows, and behind them the transpose's.
    e4m3,
    e5m2,
};

/// Bytes of one element. A boolean is one byte, 0 or 1.
std::size_t size_of(DType type);

/// As written in plans and reports: "f32", "bf16", "bool".
std::string_view name_of(DType type);

/// Whether the type is a floating-point format.
bool is_floating(DType type);

}  // namespace mantissa
