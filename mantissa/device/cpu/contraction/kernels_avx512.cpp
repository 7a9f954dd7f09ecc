// The contraction's inner kernels for AVX-512.
#include <immintrin.h>

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/pack_ymm.h"

namespace mantissa::cpu {

namespace {

// 32 registers: 8 x 3 of sums, three of b, one of a. A step along the depth is 24 multiply-adds, 12 cycles on
// two units; 24 sums in flight cover the latency of 4 cycles three times.
constexpr int height = 8;
constexpr int vectors = 3;
constexpr int width = 16 * vectors;
// Of the eight rows two are broadcast by the multiply-add itself, which saves two of 35 instructions a step
// for four loads more: 15 loads in 12 cycles, below two a cycle. Measured +2 points of the peak, and +5 on a
// core whose other hardware thread is busy; four rows gain nothing more.
constexpr int rows_broadcast_by_fma = 2;

inline __m512 multiply_add_broadcast(const float* row, __m512 column, __m512 sum) {
    asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(column), "m"(*row));
    return sum;
}

template <int Vectors>
using Sums = __m512[height][Vectors];

/// One step along the depth.
template <int Vectors>
inline void multiply_step(const float* a, const float* b, Sums<Vectors>& sums) {
    __m512 columns[Vectors];
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) columns[v] = _mm512_loadu_ps(b + 16 * v);
#pragma GCC unroll 8
    for (int i = 0; i < rows_broadcast_by_fma; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < Vectors; ++v) sums[i][v] = multiply_add_broadcast(a + i, columns[v], sums[i][v]);
#pragma GCC unroll 8
    for (int i = rows_broadcast_by_fma; i < height; ++i) {
        const __m512 row = _mm512_set1_ps(a[i]);
#pragma GCC unroll 3
        for (int v = 0; v < Vectors; ++v) sums[i][v] = _mm512_fmadd_ps(row, columns[v], sums[i][v]);
    }
}

/// Past the caches, where rows consist of whole aligned lines; false where they do not.
template <int Vectors>
inline bool store_streaming(const Tile& tile, const Sums<Vectors>& sums) {
    if (tile.rows < height || tile.cols < 16 * Vectors) return false;
    if (reinterpret_cast<std::uintptr_t>(tile.c) % 64 != 0 || tile.ldc % 16 != 0) return false;
#pragma GCC unroll 8
    for (int i = 0; i < height; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < Vectors; ++v) _mm512_stream_ps(tile.c + i * tile.ldc + 16 * v, sums[i][v]);
    return true;
}

template <int Vectors>
inline void store(const Tile& tile, const Sums<Vectors>& sums) {
    if (tile.streaming && store_streaming<Vectors>(tile, sums)) return;
    const auto last = static_cast<__mmask16>(0xffff >> (16 * Vectors - tile.cols));
#pragma GCC unroll 8
    for (int i = 0; i < height; ++i) {
        if (i >= tile.rows) break;
        float* const row = tile.c + i * tile.ldc;
#pragma GCC unroll 3
        for (int v = 0; v < Vectors; ++v) {
            const __mmask16 mask = v + 1 < Vectors ? static_cast<__mmask16>(0xffff) : last;
            __m512 sum = sums[i][v];
            if (tile.accumulate) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, row + 16 * v));
            _mm512_mask_storeu_ps(row + 16 * v, mask, sum);
        }
    }
}

/// The sums of the first `Vectors` vectors of columns; the last of them may be partial.
template <int Vectors>
void multiply_columns(const Tile& tile) {
    // The sums' lines are on their way to L1 while the products are formed.
    for (std::int64_t i = 0; i < tile.rows && !tile.streaming; ++i)
        for (int v = 0; v < Vectors; ++v) _mm_prefetch(tile.c + i * tile.ldc + 16 * v, _MM_HINT_T0);
    Sums<Vectors> sums;
#pragma GCC unroll 8
    for (int i = 0; i < height; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < Vectors; ++v) sums[i][v] = _mm512_setzero_ps();
    const auto* a = static_cast<const float*>(tile.a);
    const auto* b = static_cast<const float*>(tile.b);
    const auto* ahead = static_cast<const float*>(tile.ahead);
    std::int64_t k = 0;
    for (; k + 4 <= tile.depth; k += 4, a += 4 * height, b += 4 * width, ahead += 16) {
        _mm_prefetch(ahead, _MM_HINT_T1);
#pragma GCC unroll 4
        for (int step = 0; step < 4; ++step)
            multiply_step<Vectors>(a + step * height, b + step * width, sums);
    }
    for (; k < tile.depth; ++k, a += height, b += width) multiply_step<Vectors>(a, b, sums);
    store<Vectors>(tile, sums);
}

void multiply(const Tile& tile) {
    if (tile.cols > 32) return multiply_columns<3>(tile);
    if (tile.cols > 16) return multiply_columns<2>(tile);
    multiply_columns<1>(tile);
}

}  // namespace

ContractionKernels contraction_kernels_avx512() {
    return {.height = height,
            .width = width,
            .multiply = multiply,
            .pack_a = panel_kernels<height>(),
            .pack_b = panel_kernels<width>()};
}

}  // namespace mantissa::cpu
