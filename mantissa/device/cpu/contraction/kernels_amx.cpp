// The tile unit of AMX. So far its instructions were only emulated (tile_emulator.h), since the machine it
// was written on has no AMX: right, and never timed.
#include "mantissa/device/cpu/amx_tiles.h"
#include "mantissa/device/cpu/contraction/tile_kernels.h"
#include "mantissa/device/cpu/contraction/tile_pack.h"

namespace mantissa::cpu {

namespace {

struct AmxUnit {
    template <int T>
    void zero() {
        zero_tile<T>();
    }
    template <int T>
    void load(const void* from) {
        load_tile<T>(from, 64);
    }
    template <int T>
    void store(void* to) {
        store_tile<T>(to, 64);
    }
    template <int Sums, int A, int B>
    void multiply() {
        multiply_tiles_bf16<Sums, A, B>();
    }
};

}  // namespace

ContractionKernels contraction_kernels_amx() {
    ContractionKernels kernels = tile_kernels<AmxUnit>();
    kernels.pack_a = tile_pack_a_avx512();
    kernels.pack_b = tile_pack_b_avx512();
    kernels.finish = finish_block_avx512;
    kernels.multiply_row = row_product_avx512();
    kernels.begin = configure_tiles;
    kernels.end = release_tiles;
    return kernels;
}

}  // namespace mantissa::cpu
