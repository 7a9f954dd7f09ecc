// The contraction's inner kernels for AVX2 and FMA.
#include <immintrin.h>

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/pack_ymm.h"

namespace mantissa::cpu {

namespace {

// 16 registers: 6 x 2 of sums, two of b, one of a. A step along the depth is 12 multiply-adds, 6 cycles on
// two units, for 2 + 6 loads; 12 sums in flight cover the latency of 4 or 5 cycles.
constexpr int height = 6;
constexpr int vectors = 2;
constexpr int width = 8 * vectors;

template <int Vectors>
void multiply_columns(const Tile& tile) {
    __m256 sums[height][Vectors];
#pragma GCC unroll 6
    for (int i = 0; i < height; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) sums[i][v] = _mm256_setzero_ps();
    const float* a = tile.a;
    const float* b = tile.b;
    for (std::int64_t k = 0; k < tile.depth; ++k, a += height, b += width) {
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
    const bool partial = tile.cols < 8 * Vectors;
    const __m256i last = first_lanes(tile.cols - 8 * (Vectors - 1));
#pragma GCC unroll 6
    for (int i = 0; i < height; ++i) {
        if (i >= tile.rows) break;
        float* const row = tile.c + i * tile.ldc;
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
            float* const to = row + 8 * v;
            if (partial && v + 1 == Vectors) {
                const __m256 before = tile.accumulate ? _mm256_maskload_ps(to, last) : _mm256_setzero_ps();
                _mm256_maskstore_ps(to, last, _mm256_add_ps(sums[i][v], before));
            } else {
                _mm256_storeu_ps(
                    to, tile.accumulate ? _mm256_add_ps(sums[i][v], _mm256_loadu_ps(to)) : sums[i][v]);
            }
        }
    }
}

void multiply(const Tile& tile) {
    if (tile.cols > 8) return multiply_columns<2>(tile);
    multiply_columns<1>(tile);
}

}  // namespace

ContractionKernels contraction_kernels_avx2() {
    return {height, width, multiply, panel_kernels<height>(), panel_kernels<width>()};
}

}  // namespace mantissa::cpu
