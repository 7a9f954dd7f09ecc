// The tile instructions of AMX, with tile numbers as template arguments (the compiler's own names take only
// written numbers). For sources compiled for AMX: everything is in an anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace mantissa::inline v0::on_cpu {

namespace {

struct alignas(64) TileConfiguration {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Gives the calling thread eight tiles of 16 rows of 64 bytes; release_tiles() takes them back.
inline void configure_tiles() {
    const TileConfiguration configuration;
    // GCC 12 assumes that the instruction reads only 8 bytes; the fence keeps the other stores before it.
    asm volatile("" ::"m"(configuration) : "memory");
    _tile_loadconfig(&configuration);
}

inline void release_tiles() { _tile_release(); }

template <int T>
inline void zero_tile() {
    asm volatile("tilezero %%tmm%c0" ::"i"(T));
}

/// Rows `stride` bytes apart.
template <int T>
inline void load_tile(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
}
/// As load_tile, for lines that L1 need not keep: they pass through it and drive nothing out.
template <int T>
inline void load_tile_past_l1(const void* from, std::int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
}
template <int T>
inline void store_tile(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(T) : "memory");
}

/// Sums += A B, BF16 products, FP32 sums.
template <int Sums, int A, int B>
inline void multiply_tiles_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(A), "i"(B));
}

/// As multiply_tiles, for signed bytes, with sums of 32 bits.
template <int Sums, int A, int B>
inline void multiply_tiles_s8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(A), "i"(B));
}

}  // namespace

}  // namespace mantissa::on_cpu
