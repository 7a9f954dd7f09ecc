// The tile unit of AMX. So far its instructions were only emulated (tile_emulator.h), since the machine it
// was written on has no AMX: right, and never timed.
#include "mantissa/device/cpu/amx_tiles.h"
#include "mantissa/device/cpu/contraction/pack_avx512.h"
#include "mantissa/device/cpu/contraction/tile_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct AmxUnit {
    template <int T>
    void zero() {
        zero_tile<T>();
    }
    template <int T>
    void load(const void* from, std::int64_t stride) {
        load_tile<T>(from, stride);
    }
    template <int T>
    void store(void* to, std::int64_t stride) {
        store_tile<T>(to, stride);
    }
    template <int Sums, int A, int B>
    void multiply() {
        multiply_tiles_bf16<Sums, A, B>();
    }
    static void prefetch(const void* from) { _mm_prefetch(from, _MM_HINT_T1); }

    static void leave(const TileSums& sums, const Tile& tile) {
        const std::int64_t line = 16;
        const bool whole = tile.cols == 2 * line && reinterpret_cast<std::uintptr_t>(tile.c) % 64 == 0 &&
                           tile.ldc % line == 0;
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const float* const left = sums[i / 16 * 2][i % 16];
            const float* const right = sums[i / 16 * 2 + 1][i % 16];
            float* const to = tile.c + i * tile.ldc;
            if (tile.streaming && whole) {
                _mm512_stream_ps(to, _mm512_load_ps(left));
                _mm512_stream_ps(to + line, _mm512_load_ps(right));
            } else {
                leave_row(left, to, tile.cols < line ? tile.cols : line, tile.accumulate);
                if (tile.cols > line) leave_row(right, to + line, tile.cols - line, tile.accumulate);
            }
        }
    }

  private:
    static void leave_row(const float* from, float* to, std::int64_t count, bool accumulate) {
        const auto mask = static_cast<__mmask16>((1U << count) - 1);
        __m512 sums = _mm512_load_ps(from);
        if (accumulate) sums = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sums);
        _mm512_mask_storeu_ps(to, mask, sums);
    }
};

}  // namespace

ContractionKernels contraction_kernels_amx() {
    ContractionKernels kernels = tile_kernels<AmxUnit>();
    kernels.pack_a = tile_panels_a_avx512();
    kernels.pack_b = tile_panels_b_avx512();
    kernels.finish = finish_block_avx512bf16;
    kernels.multiply_row = row_product_avx512();
    kernels.begin = configure_tiles;
    kernels.end = release_tiles;
    return kernels;
}

}  // namespace mantissa::on_cpu
