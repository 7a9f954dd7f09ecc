// How the products take their operands where AMX tiles multiply them: pairs of BF16, as operands_paired.h
// lays them out, and depths filled up with zeros to whole tiles. Operands whose rows meet many blocks were
// packed beforehand, once for all of them, so that each of their tiles is one KB in one piece. Rows of a
// tensor lie thousands of bytes apart, on few sets of L1, and no hardware foresees them. See body_products.h
// for how this file is used.
#pragma once

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/amx_tiles.h"
#include "mantissa/device/cpu/attention/operands_paired.h"

namespace mantissa::inline v0::on_cpu {
namespace {

constexpr std::int64_t tile_rows = 16;  // and words of a row: a tile is 16 rows of 64 bytes
constexpr std::int64_t tile_words = tile_rows * tile_rows;

/// Rows of words (pairs of BF16) as tiles in one piece each.
struct TileRows {
    const float* data;
    std::int64_t next_rows;   // words from a tile to the tile of the 16 rows after it
    std::int64_t next_words;  // words from a tile to the tile of the 16 words after it
    std::int64_t steps;       // tiles side by side
};

/// c[16 Rows, 16 Cols] = (add ? c : 0) + a b, where b is words of the same pairs in rows. Strides are in
/// floats or words.
struct TileProduct {
    TileRows a;
    const float* b;
    std::int64_t b_stride;
    float* c;
    std::int64_t c_stride;
    bool add;
    bool a_passes = false;  ///< each tile of a is read once, and not wanted in L1
};

template <int T>
MANTISSA_LANES void load_rows(const TileProduct& p, const float* tile) {
    if (p.a_passes)
        load_tile_past_l1<T>(tile, 64);
    else
        load_tile<T>(tile, 64);
}

template <int T>
MANTISSA_LANES void begin_sums(const TileProduct& p, std::int64_t row, std::int64_t column) {
    if (p.add)
        load_tile<T>(p.c + row * p.c_stride + column, 4 * p.c_stride);
    else
        zero_tile<T>();
}

template <int T>
MANTISSA_LANES void end_sums(const TileProduct& p, std::int64_t row, std::int64_t column) {
    store_tile<T>(p.c + row * p.c_stride + column, 4 * p.c_stride);
}

/// 2 x 2 tiles of sums: four products for four loads; fewer at the edges. Sums in tiles 0 to 3, a in 4 and 5,
/// b in 6 and 7.
template <int Rows, int Cols>
MANTISSA_LONG_LANES void multiply_tile_block(const TileProduct& p) {
    begin_sums<0>(p, 0, 0);
    if constexpr (Cols == 2) begin_sums<1>(p, 0, tile_rows);
    if constexpr (Rows == 2) begin_sums<2>(p, tile_rows, 0);
    if constexpr (Rows == 2 && Cols == 2) begin_sums<3>(p, tile_rows, tile_rows);
    for (std::int64_t k = 0; k < p.a.steps; ++k) {
        const float *const a = p.a.data + k * p.a.next_words, *const b = p.b + k * tile_rows * p.b_stride;
        load_rows<4>(p, a);
        load_tile<6>(b, 4 * p.b_stride);
        multiply_tiles_bf16<0, 4, 6>();
        if constexpr (Cols == 2) load_tile<7>(b + tile_rows, 4 * p.b_stride);
        if constexpr (Cols == 2) multiply_tiles_bf16<1, 4, 7>();
        if constexpr (Rows == 2) load_rows<5>(p, a + p.a.next_rows);
        if constexpr (Rows == 2) multiply_tiles_bf16<2, 5, 6>();
        if constexpr (Rows == 2 && Cols == 2) multiply_tiles_bf16<3, 5, 7>();
    }
    end_sums<0>(p, 0, 0);
    if constexpr (Cols == 2) end_sums<1>(p, 0, tile_rows);
    if constexpr (Rows == 2) end_sums<2>(p, tile_rows, 0);
    if constexpr (Rows == 2 && Cols == 2) end_sums<3>(p, tile_rows, tile_rows);
}

/// `rows` and `columns` are filled up to multiples of 16.
void multiply_whole_tiles(const TileProduct& whole, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t row = 0; row < rows; row += 2 * tile_rows)
        for (std::int64_t column = 0; column < columns; column += 2 * tile_rows) {
            TileProduct p = whole;
            p.a_passes = columns <= 2 * tile_rows;
            p.a.data += row / tile_rows * p.a.next_rows;
            p.b += column;
            p.c += row * p.c_stride + column;
            const bool tall = row + tile_rows < rows, wide = column + tile_rows < columns;
            if (tall && wide)
                multiply_tile_block<2, 2>(p);
            else if (tall)
                multiply_tile_block<2, 1>(p);
            else if (wide)
                multiply_tile_block<1, 2>(p);
            else
                multiply_tile_block<1, 1>(p);
        }
}

/// As above, without sums before, of rows of at most two tiles: two columns of tiles of b, in tiles 4 to 7,
/// stay while the rows of a pass through tiles 2 and 3.
template <int Steps>
void multiply_passing_rows(const TileProduct& p, std::int64_t rows, std::int64_t columns) {
    const std::int64_t next = tile_rows * p.b_stride, stride = 4 * p.b_stride;
    for (std::int64_t column = 0; column < columns; column += 2 * tile_rows) {
        const float* const b = p.b + column;
        load_tile<4>(b, stride);
        load_tile<5>(b + tile_rows, stride);
        if constexpr (Steps == 2) load_tile<6>(b + next, stride);
        if constexpr (Steps == 2) load_tile<7>(b + next + tile_rows, stride);
        const float* a = p.a.data;
        float* c = p.c + column;
        for (std::int64_t row = 0; row < rows; row += tile_rows) {
            zero_tile<0>();
            zero_tile<1>();
            load_tile_past_l1<2>(a, 64);
            if constexpr (Steps == 2) load_tile_past_l1<3>(a + p.a.next_words, 64);
            multiply_tiles_bf16<0, 2, 4>();
            multiply_tiles_bf16<1, 2, 5>();
            if constexpr (Steps == 2) multiply_tiles_bf16<0, 3, 6>();
            if constexpr (Steps == 2) multiply_tiles_bf16<1, 3, 7>();
            store_tile<0>(c, 4 * p.c_stride);
            store_tile<1>(c + tile_rows, 4 * p.c_stride);
            a += p.a.next_rows;
            c += tile_rows * p.c_stride;
        }
    }
}

constexpr std::int64_t whole_words(std::int64_t words) { return align_up(words, tile_rows); }

/// Rows of a head whose columns are elements, or whose columns are positions.
struct PackedRows : TileRows {
    std::int64_t count;  // existing rows, or positions
};

/// Heads are a multiple of 32 elements.
struct TiledOperands : PairedOperands {
    /// Scores and gradients of weights of 32 x 64 pairs, k and v are 32 KB together, and weights and
    /// gradients of scores of 64 x 64 pairs 24 KB: most of it stays in L1.
    static constexpr std::int64_t score_rows = 32;
    static constexpr std::int64_t first_unit = packed_positions;

    struct Unit {
        Unit() { configure_tiles(); }
        ~Unit() { release_tiles(); }
    };

    MANTISSA_LANES PackedRows along_head(const HeadRows<const BF16>&, std::int64_t count, std::int64_t width,
                                         float*, const float* packed) {
        const std::int64_t steps = width / 2 / tile_rows;
        return {{packed, steps * tile_words, tile_words, steps}, count};
    }
    MANTISSA_LANES PackedRows part_of(const PackedRows& x, std::int64_t first, std::int64_t count) {
        PackedRows part = x;
        part.data += first / tile_rows * x.next_rows;
        part.count = count;
        return part;
    }
    MANTISSA_LANES PackedRows summed(const HeadRows<const BF16>&, const PackedRows& rows, std::int64_t width,
                                     float*, const float* packed) {
        return {{packed, tile_words, width / tile_rows * tile_words, ceil_div(rows.count, 2 * tile_rows)},
                rows.count};
    }

    static void product(const PackedRows& x, const Block& y, std::int64_t, const Block& out) {
        const TileProduct p{x, y.data, y.lanes, out.data, out.lanes, /*add=*/false};
        if (x.steps == 1)
            multiply_passing_rows<1>(p, x.count, y.lanes);
        else if (x.steps == 2)
            multiply_passing_rows<2>(p, x.count, y.lanes);
        else
            multiply_whole_tiles(p, x.count, y.lanes);
    }

    static void gather(const PackedRows& x, const Block& p, std::int64_t width, const float* factors,
                       const Block& sum) {
        if (factors) multiply_lanes(sum, width, factors);
        multiply_whole_tiles({x, p.data, p.lanes, sum.data, sum.lanes, /*add=*/true}, width, p.lanes);
    }

    static void spread(const PackedRows& p, const Block& y, std::int64_t, const Block& sum) {
        multiply_whole_tiles({p, y.data, y.lanes, sum.data, sum.lanes, /*add=*/true}, p.count, y.lanes);
    }

    /// A product that nothing reads. The tile unit falls asleep after some 300 ns without a product. The
    /// product that wakes it takes 250 ns longer: as long as 40 products, or a fourth of the softmax of a
    /// block.
    MANTISSA_LANES void between_vectors() { multiply_tiles_bf16<0, 4, 6>(); }

    MANTISSA_LANES void end_rows(const Block& p, std::int64_t rows) {
        const std::int64_t pairs = ceil_div(rows, 2);
        fill(p.row(pairs), (whole_words(pairs) - pairs) * p.lanes, 0.0f);
    }

    /// Sixteen lanes of two rows, as half rows of a tile each.
    MANTISSA_LANES void store_both_ways(const Block& p, float* across, std::int64_t r, std::int64_t lane,
                                        const Float (&weights)[word]) {
        const __m512i halves = rounded(weights[0], weights[1]);
        Lanes::store(p.row(r / 2) + lane, interleaved(halves));
        float* const row = across + (r / tile_rows * (p.lanes / 32) + lane / 32) * tile_words +
                           r % tile_rows * tile_rows + lane % 32 / 2;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_castsi512_si256(halves));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + tile_rows),
                            _mm512_extracti64x4_epi64(halves, 1));
    }
    MANTISSA_LANES void end_both_ways(const Block& p, float* across, std::int64_t rows) {
        end_rows(p, rows);
        const std::int64_t first = align_up(rows, word);
        for (std::int64_t r = first; r % tile_rows != 0; ++r)
            for (std::int64_t lane = 0; lane < p.lanes; lane += 32)
                fill(across + (r / tile_rows * (p.lanes / 32) + lane / 32) * tile_words +
                         r % tile_rows * tile_rows,
                     tile_rows, 0.0f);
    }
    MANTISSA_LANES PackedRows across(const Block& p, std::int64_t rows, float* scratch) {
        const std::int64_t steps = p.lanes / 2 / tile_rows;
        return {{scratch, steps * tile_words, tile_words, steps}, rows};
    }

    MANTISSA_LANES void padded(const HeadRows<const BF16>& x, std::int64_t count, std::int64_t width,
                               float factor, const Block& to) {
        PairedOperands::padded(x, count, width, factor, to);
        const std::int64_t pairs = ceil_div(count, 2);
        fill(to.row(pairs), (key_lanes / 2 - pairs) * to.lanes, 0.0f);
    }

  private:
    /// Most blocks leave the maximum of every query unchanged: then there is nothing to do.
    MANTISSA_LANES void multiply_lanes(const Block& sum, std::int64_t rows, const float* factors) {
        unsigned others = 0;
        for (std::int64_t lane = 0; lane < sum.lanes; lane += 16)
            others |= _mm512_cmp_ps_mask(Lanes::load(factors + lane), Lanes::constant(1.0f), _CMP_NEQ_UQ);
        if (others == 0) return;
        for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t lane = 0; lane < sum.lanes; lane += 16)
                Lanes::store(sum.row(row) + lane,
                             Lanes::multiply(Lanes::load(sum.row(row) + lane), Lanes::load(factors + lane)));
    }
};

/// Packs 32 rows of 16 words; the first `present` rows exist. It makes two tiles `along`, the second
/// `next_rows` words behind the first, and two tiles `across`, one behind the other.
void pack_square(const HeadRows<const BF16>& x, std::int64_t present, float* along, std::int64_t next_rows,
                 float* across) {
    alignas(64) static constexpr std::int16_t even[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                          22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                                          44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
    alignas(64) static constexpr std::int16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                         23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                         45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    alignas(64) Square rows[2], halves[2];
    for (int half = 0; half < 2; ++half) {
        float* const to = along ? along + half * next_rows : as_floats(rows[half]);
        for (int r = 0; r < 16; ++r) {
            const std::int64_t row = 16 * half + r;
            Lanes::store(to + 16 * r, row < present ? Lanes::load(PairedOperands::words(x).row(row))
                                                    : Lanes::constant(0.0f));
        }
        if (across) Lanes::transpose16(reinterpret_cast<const std::uint32_t*>(to), 16, halves[half], 16);
    }
    for (int c = 0; across && c < 16; ++c) {
        const __m512i first = _mm512_load_si512(halves[0] + 16 * c);
        const __m512i second = _mm512_load_si512(halves[1] + 16 * c);
        _mm512_storeu_si512(across + 2 * c * tile_rows,
                            _mm512_permutex2var_epi16(first, _mm512_load_si512(even), second));
        _mm512_storeu_si512(across + (2 * c + 1) * tile_rows,
                            _mm512_permutex2var_epi16(first, _mm512_load_si512(odd), second));
    }
}

/// See AttentionKernels::pack.
void pack_rows(const AttentionSize& size, const PackedOperand& p, std::int64_t head, Range rows) {
    const HeadRows<const BF16> x = {
        static_cast<const BF16*>(p.x.data) + head_offset(p.heads, p.x.strides, head), p.x.strides.position};
    const std::int64_t D = size.head_size, next_rows = D / 32 * tile_words;
    const std::int64_t start = (head - p.first_head) * packed_floats(D, p.count);
    for (std::int64_t row = rows.first; row < rows.last; row += packed_positions)
        for (std::int64_t d = 0; d < D; d += 32) {
            const std::int64_t first = start + row * D / 2;
            // The next rows follow no pattern that the hardware finds.
            for (std::int64_t r = packed_positions; r < 2 * packed_positions && row + r < p.count; ++r)
                __builtin_prefetch(x.row(row + r) + d);
            pack_square({x.row(row) + d, x.stride}, p.count - row,
                        p.along ? p.along + first + d / 32 * tile_words : nullptr, next_rows,
                        p.across ? p.across + first + d / 16 * tile_words : nullptr);
        }
}

}  // namespace
}  // namespace mantissa::on_cpu
