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

}  // namespace

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
