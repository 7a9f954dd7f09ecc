// The tile unit of AMX.
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
    kernels.finish = finish_block_avx512bf16;
    kernels.multiply_row = row_product_avx512();
    kernels.begin = configure_tiles;
    kernels.end = release_tiles;
    return kernels;
}

}  // namespace mantissa::on_cpu
