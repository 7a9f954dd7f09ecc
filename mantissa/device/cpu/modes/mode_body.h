// The product of two panels over the lanes of a mode and level. Everything is in an anonymous namespace, so
// that each source keeps its own copy, compiled for its own level.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/modes/mode_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

template <class Lanes>
struct ModeProduct {
    static constexpr int height = Lanes::height, vectors = Lanes::vectors;
    static constexpr std::int64_t width = Lanes::width * vectors;
    using Sum = typename Lanes::Sum;
    static constexpr std::int64_t word_bytes = Lanes::word_bytes;
    using Sums = typename Lanes::Sums[height][vectors];

    [[gnu::always_inline]] static inline void step(const std::byte* a, const std::byte* b, Sums& sums) {
        typename Lanes::Words columns[vectors];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) columns[v] = Lanes::load_words(b + v * Lanes::width * word_bytes);
#pragma GCC unroll 8
        for (int i = 0; i < height; ++i) {
            const typename Lanes::Words row = Lanes::broadcast(a + i * word_bytes);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) sums[i][v] = Lanes::multiply_add(row, columns[v], sums[i][v]);
        }
    }

    /// By way of a whole block where the tile is none.
    [[gnu::always_inline]] static inline void store_part(const ModeTile& tile, const Sums& sums) {
        const Sum* const c = static_cast<const Sum*>(tile.c);
        Sum* const d = static_cast<Sum*>(tile.d);
        Sum block[height * width] = {};
        for (std::int64_t i = 0; i < tile.rows && c; ++i)
            for (std::int64_t j = 0; j < tile.cols; ++j) block[i * width + j] = c[i * tile.leading + j];
                // Unrolled like all else: an index that is not constant would put the sums into memory.
#pragma GCC unroll 8
        for (int i = 0; i < height; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) {
                Sum* const at = block + i * width + v * Lanes::width;
                Lanes::store(at, c ? Lanes::add(Lanes::load(at), sums[i][v]) : sums[i][v]);
            }
        for (std::int64_t i = 0; i < tile.rows; ++i)
            for (std::int64_t j = 0; j < tile.cols; ++j) d[i * tile.leading + j] = block[i * width + j];
    }

    [[gnu::always_inline]] static inline void store(const ModeTile& tile, const Sums& sums) {
        if (tile.rows < height || tile.cols < width) return store_part(tile, sums);
        const Sum* const c = static_cast<const Sum*>(tile.c);
        Sum* const d = static_cast<Sum*>(tile.d);
#pragma GCC unroll 8
        for (int i = 0; i < height; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) {
                const std::int64_t at = i * tile.leading + v * Lanes::width;
                Lanes::store(d + at, c ? Lanes::add(Lanes::load(c + at), sums[i][v]) : sums[i][v]);
            }
    }

    static void multiply(const ModeTile& tile) {
        const std::byte* a = tile.a;
        const std::byte* b = tile.b;
        Sums sums;
#pragma GCC unroll 8
        for (int i = 0; i < height; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v)
                sums[i][v] = Lanes::load(reinterpret_cast<const Sum*>(b) + v * Lanes::width);
        b += width * static_cast<std::int64_t>(sizeof(Sum));
        for (std::int64_t word = 0; word < tile.words; ++word) {
            step(a, b, sums);
            a += height * word_bytes;
            b += width * word_bytes;
        }
        store(tile, sums);
    }
};

template <class Lanes>
constexpr ModeKernel mode_kernel_of(int row_shift = 0) {
    using Product = ModeProduct<Lanes>;
    return {.multiply = Product::multiply,
            .height = Product::height,
            .width = Product::width,
            .word_bytes = Product::word_bytes,
            .sum_bytes = sizeof(typename Product::Sum),
            .row_shift = row_shift};
}

}  // namespace

}  // namespace mantissa::on_cpu
