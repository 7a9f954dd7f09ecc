// Products of bytes: y = s(x) s(w) * scales + bias, where rows of x are quantised when they come and those
// of w were quantised before; and with weights of four bits, where each group of 32 numbers of a row is
// quantised (mantissa/numerics/coded_weights.h). Pure functions; docs/ir.md defines quantising.
#pragma once

#include <cstdint>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/rows/problems.h"
#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0::on_cpu {

template <class Scale>
struct QuantizeRows {
    std::int64_t rows = 0;
    std::int64_t depth = 0;           ///< even where numbers have four bits
    ConstView x = {};                 // [rows, depth], f32, bf16 or f16
    std::uint8_t* numbers = nullptr;  // [rows, depth], bytes, or two in a byte
    Scale* scales = nullptr;          // [rows], or [rows, groups]
    float* workspace = nullptr;       ///< quantize_rows_workspace() bytes
};

std::int64_t quantize_rows_workspace(std::int64_t depth, int threads);
/// Bytes; the scale of a row is its largest absolute value over 127.
void quantize_rows(const QuantizeRows<float>& problem, ThreadPool& pool, Isa isa);
/// Four bits, by groups.
void quantize_rows(const QuantizeRows<BF16>& problem, ThreadPool& pool, Isa isa);

struct GroupedProduct {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;               ///< even
    ConstView x = {};                 // [m, k], f32, bf16 or f16
    const std::uint8_t* w = nullptr;  // [n, k] as quantize_rows() makes it
    const BF16* scales = nullptr;     // [n, groups]
    const float* bias = nullptr;      // [n] or null
    float* y = nullptr;               // [m, n]
    std::byte* workspace = nullptr;   ///< grouped_product_workspace() bytes, aligned to 64
};

std::int64_t grouped_product_workspace(const GroupedProduct& size, Isa isa, int threads);

/// Few rows are multiplied as whole numbers, straight from where w lies. Many are multiplied in FP32,
/// as the values that the numbers stand for.
void grouped_product(const GroupedProduct& problem, ThreadPool& pool, Isa isa);

struct QuantizedProduct {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    ConstView x = {};                 // [m, k], f32, bf16 or f16
    const std::uint8_t* w = nullptr;  // [n, k] as quantize_rows() makes it
    const float* scales = nullptr;    // [n]
    const float* bias = nullptr;      // [n] or null
    float* y = nullptr;               // [m, n]
    std::byte* workspace = nullptr;   ///< quantized_product_workspace() bytes, aligned to 64
};

/// The instructions for bytes, as reports call them.
const char* name_of_bytes(Isa isa);

std::int64_t quantized_product_workspace(const QuantizedProduct& size, Isa isa, int threads);
void quantized_product(const QuantizedProduct& problem, ThreadPool& pool, Isa isa);

}  // namespace mantissa::on_cpu
