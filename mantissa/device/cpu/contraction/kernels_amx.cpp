// The tile unit of AMX.
#include "mantissa/device/cpu/amx_tiles.h"
#include "mantissa/device/cpu/contraction/pack_avx512.h"
#include "mantissa/device/cpu/contraction/tile_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

class AmxUnit {
  public:
    template <int T>
    void zero() {
        zero_tile<T>();
    }
    template <int T>
    void load(const void* from, std::int64_t stride) {
        load_tile<T>(from, stride);
    }
    template <int T>
    void load_past_l1(const void* from, std::int64_t stride) {
        load_tile_past_l1<T>(from, stride);
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

    /// 32 sums to a line of BF16 or two of FP32.
    template <int Addends>
    static void finish_row(const float* sums, const float* first, const float* second, BF16* out,
                           bool stream) {
        const __m512bh line = _mm512_cvtne2ps_pbh(sixteen<Addends, 16>(sums, first, second),
                                                  sixteen<Addends, 0>(sums, first, second));
        store_line(out, reinterpret_cast<__m512i>(line), stream);
    }
    template <int Addends>
    static void finish_row(const float* sums, const float* first, const float* second, float* out,
                           bool stream) {
        store_line(out, _mm512_castps_si512(sixteen<Addends, 0>(sums, first, second)), stream);
        store_line(out + 16, _mm512_castps_si512(sixteen<Addends, 16>(sums, first, second)), stream);
    }

  private:
    template <int Addends, int At>
    static __m512 sixteen(const float* sums, const float* first, const float* second) {
        __m512 sum = _mm512_load_ps(sums + At);
        if constexpr (Addends > 0) sum = _mm512_add_ps(sum, _mm512_loadu_ps(first + At));
        if constexpr (Addends > 1) sum = _mm512_add_ps(sum, _mm512_loadu_ps(second + At));
        return sum;
    }
    static void store_line(void* out, __m512i line, bool stream) {
        if (stream)
            _mm512_stream_si512(static_cast<__m512i*>(out), line);
        else
            _mm512_store_si512(out, line);
    }
};

// Bytes: 2 x 2 tiles of sums, four products for four loads.
constexpr std::int64_t tile_lines = 16, byte_panel = 2 * tile_lines;  // words of a row are as many

/// Rows of a tile of a are lines of words, as of pairs.
void pack_byte_rows(const PanelCopy& copy) {
    PanelCopy pairs = copy;
    pairs.stride *= 2;
    pairs.depth *= 2;
    tile_panels_a_avx512()[0][1](pairs);
}

void multiply_bytes_on_tiles(const Tile& tile) {
    constexpr std::int64_t row_bytes = byte_panel * 4;
    const auto* a = static_cast<const std::byte*>(tile.a);
    const auto* b = static_cast<const std::byte*>(tile.b);
    zero_tile<0>();
    zero_tile<1>();
    zero_tile<2>();
    zero_tile<3>();
    for (std::int64_t word = 0; word < tile.depth; word += tile_lines) {
        load_tile<4>(a, 64);
        load_tile<6>(b, row_bytes);
        load_tile<7>(b + 64, row_bytes);
        load_tile<5>(a + tile_bytes, 64);
        multiply_tiles_s8<0, 4, 6>();
        multiply_tiles_s8<1, 4, 7>();
        multiply_tiles_s8<2, 5, 6>();
        multiply_tiles_s8<3, 5, 7>();
        a += 2 * tile_bytes;
        b += tile_lines * row_bytes;
    }
    alignas(64) std::int32_t sums[4][tile_lines][tile_lines];
    store_tile<0>(sums[0], 64);
    store_tile<1>(sums[1], 64);
    store_tile<2>(sums[2], 64);
    store_tile<3>(sums[3], 64);
    auto* const to = reinterpret_cast<std::int32_t*>(tile.c);
    for (std::int64_t i = 0; i < tile.rows; ++i)
        for (std::int64_t j = 0; j < tile.cols; ++j) {
            const std::int32_t sum =
                sums[i / tile_lines * 2 + j / tile_lines][i % tile_lines][j % tile_lines];
            std::int32_t& at = to[i * tile.ldc + j];
            at = tile.accumulate ? at + sum : sum;
        }
}

}  // namespace

ContractionKernels byte_kernels_amx() {
    return {.height = byte_panel,
            .width = byte_panel,
            .depth_unit = tile_lines,
            .multiply = multiply_bytes_on_tiles,
            .pack_a = {{{pack_byte_rows}}},
            .pack_b = widened_panels_avx512<byte_panel>(),
            .begin = configure_tiles,
            .end = release_tiles};
}

ContractionKernels contraction_kernels_amx() {
    static const CacheSizes here = cache_sizes();
    return contraction_kernels_amx(here);
}

ContractionKernels contraction_kernels_amx(const CacheSizes& caches) {
    ContractionKernels kernels = tile_kernels<AmxUnit>(caches);
    kernels.pack_a = tile_panels_a_avx512();
    kernels.pack_b = tile_panels_b_avx512();
    kernels.split_a = split_tile_panels_a_avx512bf16();
    kernels.split_b = split_tile_panels_b_avx512bf16();
    kernels.gather = gather_avx512;
    kernels.pack_pixels = pack_pixels_avx512;
    kernels.finish = finish_block_avx512bf16;
    kernels.multiply_row = row_product_avx512();
    kernels.begin = configure_tiles;
    kernels.end = release_tiles;
    return kernels;
}

}  // namespace mantissa::on_cpu
