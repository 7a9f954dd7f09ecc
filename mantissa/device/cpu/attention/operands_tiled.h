// How the products take their operands where AMX tiles multiply them: pairs of BF16, as operands_paired.h
// lays them out, and depths filled up with zeros to whole tiles. What gather() sums over was transposed
// beforehand, once for all blocks. Rows beyond the last whole tile go through vectors. See body_products.h
// for how this file is used.
#pragma once

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/amx_tiles.h"
#include "mantissa/device/cpu/attention/operands_paired.h"

namespace mantissa::inline v0::on_cpu {
namespace {

constexpr std::int64_t tile_rows = 16;  // and words of a row: a tile is 16 rows of 64 bytes

/// c[16 Rows, 16 Cols] = (add ? c : 0) + a b, where a is rows of words (pairs of BF16), b words of the same
/// pairs in rows, and `depth` counts words. Strides are in floats or words.
struct TileProduct {
    const float* a;
    std::int64_t a_stride;
    const float* b;
    std::int64_t b_stride;
    float* c;
    std::int64_t c_stride;
    std::int64_t depth;
    bool add;
};

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
    for (std::int64_t k = 0; k < p.depth; k += tile_rows) {
        const float *const a = p.a + k, *const b = p.b + k * p.b_stride;
        load_tile<4>(a, 4 * p.a_stride);
        load_tile<6>(b, 4 * p.b_stride);
        multiply_tiles_bf16<0, 4, 6>();
        if constexpr (Cols == 2) load_tile<7>(b + tile_rows, 4 * p.b_stride);
        if constexpr (Cols == 2) multiply_tiles_bf16<1, 4, 7>();
        if constexpr (Rows == 2) load_tile<5>(a + tile_rows * p.a_stride, 4 * p.a_stride);
        if constexpr (Rows == 2) multiply_tiles_bf16<2, 5, 6>();
        if constexpr (Rows == 2 && Cols == 2) multiply_tiles_bf16<3, 5, 7>();
    }
    end_sums<0>(p, 0, 0);
    if constexpr (Cols == 2) end_sums<1>(p, 0, tile_rows);
    if constexpr (Rows == 2) end_sums<2>(p, tile_rows, 0);
    if constexpr (Rows == 2 && Cols == 2) end_sums<3>(p, tile_rows, tile_rows);
}

/// Whole tiles: `rows` and `columns` are multiples of 16.
void multiply_whole_tiles(const TileProduct& whole, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t row = 0; row < rows; row += 2 * tile_rows)
        for (std::int64_t column = 0; column < columns; column += 2 * tile_rows) {
            TileProduct p = whole;
            p.a += row * p.a_stride;
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

constexpr std::int64_t whole_words(std::int64_t words) { return align_up(words, tile_rows); }

/// Heads are a multiple of 32 elements.
struct TiledOperands : PairedOperands {
    struct Unit {
        Unit() { configure_tiles(); }
        ~Unit() { release_tiles(); }
    };

    static void product(const Rows& x, const Block& y, std::int64_t depth, const Block& out) {
        const std::int64_t whole = x.count / tile_rows * tile_rows;
        multiply_whole_tiles({x.data, x.stride, y.data, y.lanes, out.data, out.lanes, depth, /*add=*/false},
                             whole, y.lanes);
        VectorProducts::product(below(x, whole), y, depth, {out.row(whole), out.lanes});
    }

    /// x is transposed: [width, words of positions].
    static void gather(const Rows& x, const Block& p, std::int64_t width, const float* factors,
                       const Block& sum) {
        if (factors) multiply_lanes(sum, width, factors);
        multiply_whole_tiles({x.data, x.stride, p.data, p.lanes, sum.data, sum.lanes, x.count, /*add=*/true},
                             width, p.lanes);
    }

    static void spread(const Rows& p, const Block& y, std::int64_t depth, const Block& sum) {
        const std::int64_t whole = p.count / tile_rows * tile_rows;
        multiply_whole_tiles(
            {p.data, p.stride, y.data, y.lanes, sum.data, sum.lanes, whole_words(depth), /*add=*/true}, whole,
            y.lanes);
        VectorProducts::spread(below(p, whole), y, depth, {sum.row(whole), sum.lanes});
    }

    MANTISSA_LANES Rows summed(const HeadRows<const BF16>&, const Rows& rows, std::int64_t, float*,
                               const TransposedRows& transposed) {
        return {reinterpret_cast<const float*>(transposed.data), transposed.stride / 2,
                whole_words(ceil_div(rows.count, 2))};
    }
    MANTISSA_LANES void end_rows(const Block& p, std::int64_t rows) {
        const std::int64_t pairs = ceil_div(rows, 2);
        fill(p.row(pairs), (whole_words(pairs) - pairs) * p.lanes, 0.0f);
    }
    MANTISSA_LANES void padded(const HeadRows<const BF16>& x, std::int64_t count, std::int64_t width,
                               float factor, const Block& to) {
        PairedOperands::padded(x, count, width, factor, to);
        const std::int64_t pairs = ceil_div(count, 2);
        fill(to.row(pairs), (whole_words(pairs) - pairs) * to.lanes, 0.0f);
    }

  private:
    MANTISSA_LANES Rows below(const Rows& x, std::int64_t row) {
        return {x.data + row * x.stride, x.stride, x.count - row};
    }
    /// Most blocks leave the maximum of every query where it was: then there is nothing to do.
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

/// 32 rows of 16 words each, `present` of them there, into 32 rows [element, position]. `stride` is in
/// elements.
void transpose_square(const HeadRows<const BF16>& x, std::int64_t present, BF16* to, std::int64_t stride) {
    alignas(64) static constexpr std::int16_t even[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                          22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                                          44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
    alignas(64) static constexpr std::int16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                         23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                         45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    alignas(64) Square rows, halves[2];
    for (int half = 0; half < 2; ++half) {
        if (present >= 16 * half + 16) {
            const float* const whole = PairedOperands::words(x).row(16 * half);
            Lanes::transpose16(reinterpret_cast<const std::uint32_t*>(whole), x.stride / 2, halves[half], 16);
            continue;
        }
        for (int r = 0; r < 16; ++r) {
            const std::int64_t row = 16 * half + r;
            Lanes::store(as_floats(rows) + 16 * r, row < present
                                                       ? Lanes::load(PairedOperands::words(x).row(row))
                                                       : Lanes::constant(0.0f));
        }
        Lanes::transpose16(rows, 16, halves[half], 16);
    }
    for (int c = 0; c < 16; ++c) {
        const __m512i first = _mm512_load_si512(halves[0] + 16 * c);
        const __m512i second = _mm512_load_si512(halves[1] + 16 * c);
        _mm512_storeu_si512(to + 2 * c * stride,
                            _mm512_permutex2var_epi16(first, _mm512_load_si512(even), second));
        _mm512_storeu_si512(to + (2 * c + 1) * stride,
                            _mm512_permutex2var_epi16(first, _mm512_load_si512(odd), second));
    }
}

/// See AttentionKernels::transpose.
void transpose_rows(const AttentionSize& size, const TransposedOperand& p, std::int64_t head, Range rows) {
    const HeadRows<const BF16> x = {
        static_cast<const BF16*>(p.x.data) + head_offset(p.heads, p.x.strides, head), p.x.strides.position};
    const std::int64_t stride = transposed_row(p.count);
    BF16* const to = reinterpret_cast<BF16*>(p.to) + head * size.head_size * stride;
    // The last rows also fill up the end, from which a block may read.
    const std::int64_t last = rows.last == p.count ? stride : rows.last;
    for (std::int64_t row = rows.first; row < last; row += 32)
        for (std::int64_t d = 0; d < size.head_size; d += 32)
            transpose_square({x.row(row) + d, x.stride}, p.count - row, to + d * stride + row, stride);
}

}  // namespace
}  // namespace mantissa::on_cpu
