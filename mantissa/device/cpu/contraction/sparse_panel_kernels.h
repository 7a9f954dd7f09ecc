// The product of a panel of a 2:4 sparse a and a panel of b in FP32, for the lanes of any level: zeros are
// skipped. Everything is in an anonymous namespace, as in panel_kernels.h.
//
// A panel of b is that of panel_kernels.h. One of a has, for each number that is kept, a row of values, one
// of each line, and a row of offsets: in bytes, from the panel of b to the words that the value meets. That
// is half the rows of a dense panel, and each is two: as many bytes.
//
// Each line meets words of its own, so none is kept in a register: a multiply-add reads its words from L1,
// where the other lines of the tile find them too. Half the multiply-adds are left; a value, an offset and
// Vectors vectors are read for Vectors of them, so tiles are wide and low. On a core that loads as many
// vectors in a cycle as it multiplies, 6 of them take the time of 8 multiply-adds where a dense tile has 12.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/contraction/panel_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

template <class Lanes, int Height, int Vectors>
struct SparsePanelProduct {
    using Dense = PanelProduct<Lanes, Height, Vectors>;
    static constexpr std::int64_t width = Dense::width;

    /// One number that is kept of each line.
    template <int Used>
    [[gnu::always_inline]] static inline void step(const std::byte* a, const std::byte* b,
                                                   typename Dense::template Sums<Used>& sums) {
        constexpr std::int64_t word = Dense::word_bytes;
#pragma GCC unroll 8
        for (int i = 0; i < Height; ++i) {
            std::uint32_t offset;
            __builtin_memcpy(&offset, a + (Height + i) * word, sizeof offset);
            const typename Lanes::Words row = Lanes::broadcast(a + i * word);
#pragma GCC unroll 8
            for (int v = 0; v < Used; ++v)
                sums[i][v] = Lanes::multiply_add(row, Lanes::load_words(b + offset + v * Lanes::width * word),
                                                 sums[i][v]);
        }
    }

    template <int Used>
    static void multiply_columns(const Tile& tile) {
        Dense::prefetch_sums(tile);
        typename Dense::template Sums<Used> sums;
#pragma GCC unroll 8
        for (int i = 0; i < Height; ++i)
#pragma GCC unroll 8
            for (int v = 0; v < Used; ++v) sums[i][v] = Lanes::zero();
        const auto* a = static_cast<const std::byte*>(tile.a);
        const auto* const b = static_cast<const std::byte*>(tile.b);
        const auto* ahead = static_cast<const std::byte*>(tile.ahead);
        constexpr std::int64_t a_step = 2 * Height * Dense::word_bytes;
        for (std::int64_t k = 0; k < tile.depth; k += 4, a += 2 * a_step, ahead += 64) {
            __builtin_prefetch(ahead, 0, 2);
            step<Used>(a, b, sums);
            step<Used>(a + a_step, b, sums);
        }
        Dense::template store<Used>(tile, sums);
    }

    template <int Used = Vectors>
    static void multiply(const Tile& tile) {
        if constexpr (Used > 1)
            if (tile.cols <= Lanes::width * (Used - 1)) return multiply<Used - 1>(tile);
        multiply_columns<Used>(tile);
    }
};

}  // namespace

}  // namespace mantissa::on_cpu
