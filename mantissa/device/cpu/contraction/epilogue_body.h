// The standard epilogue over the lanes of the row kernels, which each source of a level includes first. In an
// anonymous namespace, so that each keeps its own copy. All levels give the same bits.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/contraction/epilogue_kernels.h"
#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/numerics/elementary_body.h"

namespace mantissa::cpu {

namespace {

/// x becomes f(x) for each sum of a row.
template <class Change>
MANTISSA_LANES void change_row(float* sums, std::int64_t count, Change change) {
    for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        store(sums + c, change(c, load(sums + c, extent), extent), extent, false);
    });
}

inline void add_row(float* sums, const void* terms, DType type, std::int64_t count) {
    with_type(type, [&](auto* element) {
        const auto* const from = static_cast<decltype(element)>(const_cast<void*>(terms));
        change_row(sums, count, [&](std::int64_t c, Float x, auto extent) MANTISSA_BODY {
            return Lanes::add(x, load(from + c, extent));
        });
    });
}

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
MANTISSA_LONG_LANES Float gelu(Float x) {
    const Float cube = Lanes::multiply(Lanes::multiply(Lanes::multiply(Lanes::constant(0.044715f), x), x), x);
    const Float u = Lanes::multiply(Lanes::constant(0.797884560802865f), Lanes::add(x, cube));
    const Float gate = Lanes::add(Lanes::constant(1.0f), elementary::tanh(lanes, u));
    return Lanes::multiply(Lanes::multiply(Lanes::constant(0.5f), x), gate);
}

inline void gelu_row(float* sums, std::int64_t count) {
    change_row(sums, count, [](std::int64_t, Float x, auto) MANTISSA_BODY { return gelu(x); });
}

/// A line that is stored past the caches in two parts at different times is expected to cost more than it
/// saves.
inline bool whole_lines(const void* out, DType type, std::int64_t count) {
    return reinterpret_cast<std::uintptr_t>(out) % 64 == 0 && count * (type == DType::f32 ? 4 : 2) % 64 == 0;
}

template <bool Stream, class T>
MANTISSA_LANES void copy_rows(const EpilogueBlock& block, T* out) {
    for (std::int64_t i = 0; i < block.rows; ++i) {
        const float* const sums = block.sums + i * block.ld;
        T* const to = out + i * block.out_ld;
        for_lanes(block.cols, [&](std::int64_t c, auto extent)
                                  MANTISSA_BODY { store(to + c, load(sums + c, extent), extent, Stream); });
    }
}

inline void store_rows(const EpilogueBlock& block) {
    if (block.out == block.sums) return;
    const bool stream = block.streaming && whole_lines(block.out, block.out_dtype, block.cols) &&
                        whole_lines(block.out, block.out_dtype, block.out_ld);
    with_type(block.out_dtype, [&](auto* element) {
        auto* const out = static_cast<decltype(element)>(block.out);
        if (stream)
            copy_rows<true>(block, out);
        else
            copy_rows<false>(block, out);
    });
}

inline const void* at(const void* base, DType type, std::int64_t elements) {
    return static_cast<const char*>(base) + elements * (type == DType::f32 ? 4 : 2);
}

inline void finish_block(const EpilogueBlock& block) {
    if (block.bias || block.gelu_tanh || block.residual)
        for (std::int64_t i = 0; i < block.rows; ++i) {
            float* const row = block.sums + i * block.ld;
            if (block.bias) add_row(row, block.bias, block.bias_dtype, block.cols);
            if (block.gelu_tanh) gelu_row(row, block.cols);
            if (block.residual)
                add_row(row, at(block.residual, block.residual_dtype, i * block.residual_ld),
                        block.residual_dtype, block.cols);
        }
    store_rows(block);
}

}  // namespace

}  // namespace mantissa::cpu
