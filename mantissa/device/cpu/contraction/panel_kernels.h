// The product of a panel of a and a panel of b, for any lanes: FP32 of each level, dot products of BF16 and
// of bytes, and a checked twin in plain C++. Only for the sources that define or include lanes; everything is
// in an anonymous namespace, so that each keeps its own copy, compiled for its own level.
//
// A panel is a matrix of words of 32 bits, [depth / depth_of_word, lines]: a word is one FP32 number, or two
// BF16 neighbours along the depth, or the four bytes that a problem takes for one element. A step takes one
// word of each line: Vectors vectors of b, and each of Height words of a broadcast against them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Height x Vectors vectors of sums in registers; Used <= Vectors of a row are computed.
template <class Lanes, int Height, int Vectors>
struct PanelProduct {
    static constexpr std::int64_t word_bytes = 4;
    static constexpr std::int64_t width = Lanes::width * Vectors;
    template <int Used>
    using Sums = typename Lanes::Sums[Height][Used];

    /// `word_of(i)`: where the word of row i is.
    template <int Used, class WordOf>
    [[gnu::always_inline]] static inline void step(WordOf word_of, const std::byte* b, Sums<Used>& sums) {
        typename Lanes::Words columns[Used];
#pragma GCC unroll 4
        for (int v = 0; v < Used; ++v) columns[v] = Lanes::load_words(b + v * Lanes::width * word_bytes);
#pragma GCC unroll 16
        for (int i = 0; i < Height; ++i) {
            const std::byte* const word = word_of(i);
            if constexpr (Lanes::rows_broadcast_by_fma > 0)
                if (i < Lanes::rows_broadcast_by_fma) {
#pragma GCC unroll 4
                    for (int v = 0; v < Used; ++v)
                        sums[i][v] = Lanes::multiply_add_broadcast(word, columns[v], sums[i][v]);
                    continue;
                }
            const typename Lanes::Words row = Lanes::broadcast(word);
#pragma GCC unroll 4
            for (int v = 0; v < Used; ++v) sums[i][v] = Lanes::multiply_add(row, columns[v], sums[i][v]);
        }
    }

    /// Past the caches, where rows consist of whole aligned vectors; false where they do not.
    template <int Used>
    [[gnu::always_inline]] static inline bool store_streaming(const Tile& tile, const Sums<Used>& sums) {
        if (tile.rows < Height || tile.cols < Lanes::width * Used) return false;
        constexpr std::int64_t vector_bytes = Lanes::width * word_bytes;
        if (reinterpret_cast<std::uintptr_t>(tile.c) % vector_bytes != 0 || tile.ldc % Lanes::width != 0)
            return false;
#pragma GCC unroll 16
        for (int i = 0; i < Height; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < Used; ++v)
                Lanes::stream(tile.c + i * tile.ldc + v * Lanes::width, sums[i][v]);
        return true;
    }

    template <int Used>
    [[gnu::always_inline]] static inline void store(const Tile& tile, const Sums<Used>& sums) {
        if (tile.streaming && store_streaming<Used>(tile, sums)) return;
        const std::int64_t in_last = tile.cols - Lanes::width * (Used - 1);
#pragma GCC unroll 16
        for (int i = 0; i < Height; ++i) {
            if (i >= tile.rows) break;
#pragma GCC unroll 4
            for (int v = 0; v < Used; ++v) {
                float* const to = tile.c + i * tile.ldc + v * Lanes::width;
                typename Lanes::Sums sum = sums[i][v];
                if (v + 1 == Used && in_last < Lanes::width) {
                    if (tile.accumulate) sum = Lanes::add(sum, Lanes::load_first(to, in_last));
                    Lanes::store_first(to, sum, in_last);
                } else {
                    if (tile.accumulate) sum = Lanes::add(sum, Lanes::load(to));
                    Lanes::store(to, sum);
                }
            }
        }
    }

    /// The sums' lines are on their way to L1 while the products are formed.
    static void prefetch_sums(const Tile& tile) {
        for (std::int64_t i = 0; i < tile.rows && !tile.streaming; ++i)
            for (std::int64_t column = 0; column < tile.cols; column += 16)
                __builtin_prefetch(tile.c + i * tile.ldc + column, 1);
    }

    template <int Used>
    [[gnu::always_inline]] static inline void clear(Sums<Used>& sums) {
#pragma GCC unroll 16
        for (int i = 0; i < Height; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < Used; ++v) sums[i][v] = Lanes::zero();
    }

    /// The sums of the first `Used` vectors of columns; the last of them may be partial.
    template <int Used>
    static void multiply_columns(const Tile& tile) {
        prefetch_sums(tile);
        Sums<Used> sums;
        clear<Used>(sums);
        const auto* a = static_cast<const std::byte*>(tile.a);
        const auto* b = static_cast<const std::byte*>(tile.b);
        const auto* ahead = static_cast<const std::byte*>(tile.ahead);
        constexpr std::int64_t a_step = Height * word_bytes, b_step = width * word_bytes;
        const std::int64_t steps = ceil_div(tile.depth, Lanes::depth_of_word);
        std::int64_t k = 0;
        for (; k + 4 <= steps; k += 4, a += 4 * a_step, b += 4 * b_step, ahead += 64) {
            __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 4
            for (int s = 0; s < 4; ++s)
                step<Used>([&](int i) { return a + s * a_step + i * word_bytes; }, b + s * b_step, sums);
        }
        for (; k < steps; ++k, a += a_step, b += b_step)
            step<Used>([&](int i) { return a + i * word_bytes; }, b, sums);
        store<Used>(tile, sums);
    }

    template <int Used = Vectors>
    static void multiply(const Tile& tile) {
        if constexpr (Used > 1)
            if (tile.cols <= Lanes::width * (Used - 1)) return multiply<Used - 1>(tile);
        multiply_columns<Used>(tile);
    }

    /// The products of one run: row i at rows[i].
    template <int Used>
    [[gnu::always_inline]] static inline const std::byte* add_run(const RunInPlace& run, const std::byte* b,
                                                                  const std::byte*& ahead, Sums<Used>& sums) {
        constexpr std::int64_t b_step = width * word_bytes;
        const std::byte* rows[Height];
#pragma GCC unroll 16
        for (int i = 0; i < Height; ++i) rows[i] = run.rows[i];
        const std::int64_t steps = run.depth / Lanes::depth_of_word;
        std::int64_t k = 0;
        for (; k + 4 <= steps; k += 4, b += 4 * b_step, ahead += 64) {
            __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 4
            for (int s = 0; s < 4; ++s)
                step<Used>([&](int i) { return rows[i] + (k + s) * word_bytes; }, b + s * b_step, sums);
        }
        for (; k < steps; ++k, b += b_step)
            step<Used>([&](int i) { return rows[i] + k * word_bytes; }, b, sums);
        return b;
    }

    template <int Used = Vectors>
    static void multiply_in_place(const Tile& tile) {
        if constexpr (Used > 1)
            if (tile.cols <= Lanes::width * (Used - 1)) return multiply_in_place<Used - 1>(tile);
        prefetch_sums(tile);
        Sums<Used> sums;
        clear<Used>(sums);
        const auto* b = static_cast<const std::byte*>(tile.b);
        const auto* ahead = static_cast<const std::byte*>(tile.ahead);
        for (std::int64_t run = 0; run < tile.run_count; ++run)
            b = add_run<Used>(tile.runs[run], b, ahead, sums);
        store<Used>(tile, sums);
    }

    /// The products of some steps: row i of the first at a + i words.
    template <int Used>
    [[gnu::always_inline]] static inline void add_steps(std::int64_t count, const std::byte* a,
                                                        std::int64_t a_step, const std::byte* b,
                                                        const std::byte*& ahead, Sums<Used>& sums) {
        constexpr std::int64_t b_step = width * word_bytes;
        std::int64_t k = 0;
        for (; k + 2 <= count; k += 2, a += 2 * a_step, b += 2 * b_step, ahead += 32) {
            __builtin_prefetch(ahead, 0, 2);
            step<Used>([&](int i) { return a + i * word_bytes; }, b, sums);
            step<Used>([&](int i) { return a + a_step + i * word_bytes; }, b + b_step, sums);
        }
        if (k < count) step<Used>([&](int i) { return a + i * word_bytes; }, b, sums);
    }

    template <int Used = Vectors>
    static void multiply_across(const Tile& tile) {
        if constexpr (Used > 1)
            if (tile.cols <= Lanes::width * (Used - 1)) return multiply_across<Used - 1>(tile);
        prefetch_sums(tile);
        Sums<Used> sums;
        clear<Used>(sums);
        const auto* a = static_cast<const std::byte*>(tile.a);
        const auto* b = static_cast<const std::byte*>(tile.b);
        const auto* ahead = static_cast<const std::byte*>(tile.ahead);
        for (std::int64_t run = 0; run < tile.run_count; ++run) {
            const StepsInPlace& steps = tile.steps[run];
            add_steps<Used>(steps.count, a + steps.first, tile.step_bytes,
                            b + steps.begin * width * word_bytes, ahead, sums);
        }
        store<Used>(tile, sums);
    }
};

}  // namespace

}  // namespace mantissa::on_cpu
