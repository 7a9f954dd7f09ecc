// The product of two panels of bytes over the lanes of a level. Everything is in an anonymous namespace, so
// that each source keeps its own copy, compiled for its own level.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/modes/byte_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

template <class Lanes>
struct BytePanels {
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

    /// Unrolled like all else: an index that is not constant would put the sums into memory.
    [[gnu::always_inline]] static inline void store(Sum* to, std::int64_t leading, const Sums& sums) {
#pragma GCC unroll 8
        for (int i = 0; i < height; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) Lanes::store(to + i * leading + v * Lanes::width, sums[i][v]);
    }

    static void multiply(const ByteTile& tile) {
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
        Sum* const d = static_cast<Sum*>(tile.d);
        if (tile.rows == height && tile.cols == width) return store(d, tile.leading, sums);
        Sum block[height * width];  // by way of a whole block where the tile is none
        store(block, width, sums);
        for (std::int64_t i = 0; i < tile.rows; ++i)
            for (std::int64_t j = 0; j < tile.cols; ++j) d[i * tile.leading + j] = block[i * width + j];
    }
};

template <class Lanes>
constexpr ByteKernel byte_kernel_of(int row_shift = 0) {
    using Panels = BytePanels<Lanes>;
    return {.multiply = Panels::multiply,
            .height = Panels::height,
            .width = Panels::width,
            .row_shift = row_shift};
}

}  // namespace

}  // namespace mantissa::on_cpu
