// The contraction's inner kernels for AVX2 and FMA.
#include <immintrin.h>

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/pack_ymm.h"

namespace mantissa::cpu {

namespace {

// 16 registers: 6 x 2 of sums, two of b, one of a. A step along the depth is 12 multiply-adds, 6 cycles on
// two units, for 2 + 6 loads and 20 instructions in all; 12 sums in flight cover the latency of 4 or 5
// cycles.
constexpr int height = 6;
constexpr int vectors = 2;
constexpr int width = 8 * vectors;

template <int Vectors>
using Sums = __m256[height][Vectors];

/// One step along the depth.
template <int Vectors>
inline void multiply_step(const float* a, const float* b, Sums<Vectors>& sums) {
    __m256 columns[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) columns[v] = _mm256_loadu_ps(b + 8 * v);
#pragma GCC unroll 6
    for (int i = 0; i < height; ++i) {
        const __m256 row = _mm256_broadcast_ss(a + i);
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) sums[i][v] = _mm256_fmadd_ps(row, columns[v], sums[i][v]);
    }
}

/// Past the caches, where the rows are aligned and whole; false where they are not.
template <int Vectors>
inline bool store_streaming(const Tile& tile, const Sums<Vectors>& sums) {
    if (tile.rows < height || tile.cols < 8 * Vectors) return false;
    if (reinterpret_cast<std::uintptr_t>(tile.c) % 32 != 0 || tile.ldc % 8 != 0) return false;
#pragma GCC unroll 6
    for (int i = 0; i < height; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) _mm256_stream_ps(tile.c + i * tile.ldc + 8 * v, sums[i][v]);
    return true;
}

template <int Vectors>
inline void store(const Tile& tile, const Sums<Vectors>& sums) {
    if (tile.streaming && store_streaming<Vectors>(tile, sums)) return;
    const bool partial = tile.cols < 8 * Vectors;
    const __m256i last = first_lanes(tile.cols - 8 * (Vectors - 1));
#pragma GCC unroll 6
    for (int i = 0; i < height; ++i) {
        if (i >= tile.rows) break;
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
            float* const to = tile.c + i * tile.ldc + 8 * v;
            if (partial && v + 1 == Vectors) {
                const __m256 before = tile.accumulate ? _mm256_maskload_ps(to, last) : _mm256_setzero_ps();
                _mm256_maskstore_ps(to, last, _mm256_add_ps(sums[i][v], before));
            } else if (tile.accumulate) {
                _mm256_storeu_ps(to, _mm256_add_ps(sums[i][v], _mm256_loadu_ps(to)));
            } else {
                _mm256_storeu_ps(to, sums[i][v]);
            }
        }
    }
}

/// The sums of the first `Vectors` vectors of columns; the last of them may be partial.
template <int Vectors>
void multiply_columns(const Tile& tile) {
    // The sums' lines are on their way to L1 while the products are formed.
    for (std::int64_t i = 0; i < tile.rows && !tile.streaming; ++i)
        _mm_prefetch(tile.c + i * tile.ldc, _MM_HINT_T0);
    Sums<Vectors> sums;
#pragma GCC unroll 6
    for (int i = 0; i < height; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) sums[i][v] = _mm256_setzero_ps();
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
    if (tile.cols > 8) return multiply_columns<2>(tile);
    multiply_columns<1>(tile);
}

}  // namespace

ContractionKernels contraction_kernels_avx2() {
    return {.height = height,
            .width = width,
            .multiply = multiply,
            .pack_a = panel_kernels<height>(),
            .pack_b = panel_kernels<width>()};
}

}  // namespace mantissa::cpu
