// The three products of attention, on blocks in L1 and L2, as blocks of Tile::rows rows and Tile::vectors
// vectors of sums in registers. Included once by the one source of each instruction-set level, after its
// lanes and its Tile.
//
// One operand is always read row by row as it lies in memory, one element at a time into all lanes. So keys,
// queries and values are never packed for it. The other is a block of whole vectors.
#pragma once

#include "mantissa/device/cpu/attention/kernel_table.h"
#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/numerics/elementary_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

constexpr int tile_lanes = 16 * Tile::vectors;

template <int N>
struct Count {
    static constexpr int value = N;
};

/// Calls f with a compile-time count, 1 ... Most.
template <int Most, class F>
MANTISSA_LANES void with_count(std::int64_t count, F f) {
    if (count == Most) return f(Count<Most>{});
    if constexpr (Most > 1) with_count<Most - 1>(count, f);
}

/// Calls f for tiles of Most rows, then for one tile of the remaining rows.
template <int Most, class F>
MANTISSA_LANES void for_tiles(std::int64_t rows, F f) {
    std::int64_t row = 0;
    for (; row + Most <= rows; row += Most) f(row, Count<Most>{});
    if (row < rows) with_count<Most>(rows - row, [&](auto count) { f(row, count); });
}

template <int Rows, int Vectors>
using Sums = Float[Rows][Vectors];

template <int Rows, int Vectors>
MANTISSA_LANES void clear(Sums<Rows, Vectors>& sums) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[i][v] = Lanes::constant(0.0f);
}

/// sums[i] += elements[i * step] * vectors.
template <int Rows, int Vectors>
MANTISSA_LANES void multiply_add(const float* elements, std::int64_t step, const float* vectors,
                                 Sums<Rows, Vectors>& sums) {
    Float columns[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) columns[v] = Lanes::load(vectors + 16 * v);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
        const Float element = Lanes::constant(elements[i * step]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[i][v] = Tile::multiply_add(element, columns[v], sums[i][v]);
    }
}

/// Rows of elements in FP32.
struct Rows {
    const float* data = nullptr;
    std::int64_t stride = 0;
    std::int64_t count = 0;
};

/// One head of the operands that the level packs, `count` positions in each.
struct PackedHead {
    const PackedHeads& packed;
    std::int64_t head, head_size, count;

    /// Tiles of a form from `first` on, a multiple of packed_positions.
    const float* from(std::int64_t form, std::int64_t first) const {
        return packed.start +
               (form * packed.heads + head - packed.first_head) * packed_floats(head_size, count) +
               first * head_size / 2;
    }
};

/// A block of whole vectors, [..., lanes].
struct Block {
    float* data = nullptr;
    std::int64_t lanes = 0;

    float* row(std::int64_t i) const { return data + i * lanes; }
};

template <int R, int V>
[[gnu::noinline]] void product_tile(const float* x, std::int64_t stride, const Block& y, std::int64_t depth,
                                    float* out, std::int64_t step) {
    Sums<R, V> sums;
    clear<R, V>(sums);
    for (std::int64_t d = 0; d < depth; ++d) multiply_add<R, V>(x + d, stride, y.data + d * y.lanes, sums);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) Lanes::store(out + i * step + 16 * v, sums[i][v]);
}

template <int R, int V>
[[gnu::noinline]] void gather_tile(const Rows& x, std::int64_t first, const Block& p, const float* factors,
                                   float* sum, std::int64_t step) {
    Sums<R, V> sums;
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            sums[i][v] = Lanes::load(sum + i * step + 16 * v);
            if (factors) sums[i][v] = Lanes::multiply(sums[i][v], Lanes::load(factors + 16 * v));
        }
    for (std::int64_t r = 0; r < x.count; ++r)
        multiply_add<R, V>(x.data + r * x.stride + first, 1, p.data + r * p.lanes, sums);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) Lanes::store(sum + i * step + 16 * v, sums[i][v]);
}

template <int R, int V>
[[gnu::noinline]] void spread_tile(const float* p, std::int64_t stride, const Block& y, std::int64_t depth,
                                   float* sum, std::int64_t step) {
    Sums<R, V> sums;
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sums[i][v] = Lanes::load(sum + i * step + 16 * v);
    for (std::int64_t j = 0; j < depth; ++j) multiply_add<R, V>(p + j, stride, y.data + j * y.lanes, sums);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) Lanes::store(sum + i * step + 16 * v, sums[i][v]);
}

/// Brings rows of `width` floats into L1: where rows of other heads lie between them, they follow no pattern
/// that the hardware finds.
MANTISSA_LANES void prefetch_rows(const float* rows, std::int64_t stride, std::int64_t count,
                                  std::int64_t width) {
    for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t d = 0; d < width; d += 16) __builtin_prefetch(rows + r * stride + d);
}

/// The products by vectors of the level, which need nothing before or after.
struct VectorProducts {
    struct Unit {};

    /// out[r][lane] = sum over d of x[r][d] y[d][lane]: scores and gradients of weights.
    static void product(const Rows& x, const Block& y, std::int64_t depth, const Block& out) {
        for (std::int64_t lane = 0; lane < y.lanes; lane += tile_lanes) {
            const Block part{y.data + lane, y.lanes};
            for_tiles<Tile::rows>(x.count, [&](std::int64_t row, auto rows) {
                if (row + 2 * Tile::rows <= x.count && lane == 0)
                    prefetch_rows(x.data + (row + Tile::rows) * x.stride, x.stride, Tile::rows, depth);
                product_tile<decltype(rows)::value, Tile::vectors>(x.data + row * x.stride, x.stride, part,
                                                                   depth, out.row(row) + lane, out.lanes);
            });
        }
    }

    /// sum[d][lane] = sum[d][lane] * factors[lane] + sum over r of x[r][d] p[r][lane]: o, dk and dv,
    /// transposed. Without factors they are 1.
    static void gather(const Rows& x, const Block& p, std::int64_t width, const float* factors,
                       const Block& sum) {
        for (std::int64_t lane = 0; lane < p.lanes; lane += tile_lanes) {
            const Block part{p.data + lane, p.lanes};
            for_tiles<Tile::rows>(width, [&](std::int64_t d, auto rows) {
                gather_tile<decltype(rows)::value, Tile::vectors>(
                    x, d, part, factors ? factors + lane : nullptr, sum.row(d) + lane, sum.lanes);
            });
        }
    }

    /// sum[r][lane] += sum over j of p[r][j] y[j][lane]: dq.
    static void spread(const Rows& p, const Block& y, std::int64_t depth, const Block& sum) {
        for (std::int64_t lane = 0; lane < y.lanes; lane += tile_lanes) {
            const Block part{y.data + lane, y.lanes};
            const std::int64_t vectors = (y.lanes - lane) / 16;
            with_count<Tile::vectors>(vectors < Tile::vectors ? vectors : Tile::vectors, [&](auto count) {
                for_tiles<Tile::rows>(p.count, [&](std::int64_t row, auto rows) {
                    spread_tile<decltype(rows)::value, decltype(count)::value>(
                        p.data + row * p.stride, p.stride, part, depth, sum.row(row) + lane, sum.lanes);
                });
            });
        }
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
