// Products of BF16 tiles with FP32 sums, for any tile unit: AMX, or its checked twin in plain C++. Only for
// the two sources that define a unit; everything is in an anonymous namespace, so that each keeps its own
// copy.
//
// A unit has eight tiles of 16 rows of 64 bytes and offers
//     zero<T>(), load<T>(from, stride), load_past_l1<T>(from, stride), multiply<Sums, A, B>(),
//     store<T>(to, stride), prefetch(from), finish_row<Addends>(sums, first, second, out, stream)
// with tile numbers known at compile time and strides in bytes; tiles of operands are 1 KiB in one piece.
// multiply() adds to the FP32 tile [16, 16] the product of a BF16 tile of a, [16 rows, 32 deep], and one of
// b, [16 pairs deep, 16 columns, 2].
//
// A panel of a is 32 rows: for each 32 of the depth two tiles, rows 0-15 and 16-31. A panel of b is 32
// columns: for each 32 of the depth two tiles, columns 0-15 and 16-31, whose elements (k, column) lie at (k /
// 2, column, k % 2).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t tile_panel = 32;  // rows of a panel of a, columns of a panel of b
constexpr std::int64_t tile_depth = 32;  // of one product of tiles
constexpr std::int64_t tile_bytes = 1024;

/// Element index of (line, k) in a panel of a, and in a panel of b.
constexpr std::int64_t index_in_a(std::int64_t line, std::int64_t k) {
    return k / tile_depth * tile_panel * tile_depth + line * tile_depth + k % tile_depth;
}
constexpr std::int64_t index_in_b(std::int64_t line, std::int64_t k) {
    const std::int64_t tile = k / tile_depth * 2 + line / 16;
    return tile * (tile_bytes / 2) + k % tile_depth / 2 * 32 + line % 16 * 2 + k % 2;
}

/// Plain loops, element by element. The depth of the copy may end inside of a tile; the rest of it becomes 0.
template <PanelSource Source, std::int64_t (*Index)(std::int64_t, std::int64_t)>
void pack_tiles(const PanelCopy& copy) {
    const auto* const source = static_cast<const std::uint16_t*>(copy.source);
    const std::int64_t line_step = Source == PanelSource::along_depth ? copy.stride : 1;
    const std::int64_t depth_step = Source == PanelSource::along_depth ? 1 : copy.stride;
    const std::int64_t padded = align_up(copy.depth, tile_depth);
    auto* first = static_cast<std::byte*>(copy.panel);
    for (std::int64_t begin = 0; begin < copy.lines; begin += tile_panel, first += copy.panel_bytes) {
        auto* const panel = reinterpret_cast<std::uint16_t*>(first);
        const std::int64_t lines = std::min(tile_panel, copy.lines - begin);
        if (lines < tile_panel || copy.depth < padded)
            std::memset(panel, 0, static_cast<std::size_t>(padded * tile_panel) * sizeof *panel);
        for (std::int64_t line = 0; line < lines; ++line)
            for (std::int64_t k = 0; k < copy.depth; ++k)
                panel[Index(line, k)] = source[(begin + line) * line_step + k * depth_step];
    }
}

// Rows of the previous sums that are finished at a time. Their stores go past the caches, and each holds one
// of a core's 16 line buffers for as long as memory takes. Loads of tiles from L2 need those buffers, too.
// All 32 rows at once kept the buffers from the products for a fourth of the time.
constexpr std::int64_t rows_at_a_time = 2;

/// Sums of a whole tile that become whole lines of output as they are, or with up to two addends, earlier
/// sums and a bias. Most tiles are such; a call for every two rows would cost a tenth of the products' time.
struct PlainRows {
    explicit PlainRows(const SumsBehind& behind)
        : block(behind.block), left(are_plain(behind) ? behind.rows : 0) {
        block.streaming = block.streaming && block.out != block.addend;
        if (left > 0 && block.bias) add_bias();
    }
    PlainRows(const PlainRows&) = delete;
    PlainRows& operator=(const PlainRows&) = delete;

    static bool are_plain(const SumsBehind& behind) {
        const EpilogueBlock& block = behind.block;
        const auto is_plain = [](DType type) { return type == DType::f32 || type == DType::bf16; };
        const std::int64_t element = block.out_dtype == DType::f32 ? 4 : 2;
        return is_plain(block.out_dtype) && (!block.bias || is_plain(block.bias_dtype)) && !behind.finish &&
               block.cols == tile_panel && reinterpret_cast<std::uintptr_t>(block.out) % 64 == 0 &&
               block.out_ld * element % 64 == 0;
    }

    template <class Unit>
    void finish(std::int64_t most) {
        const std::int64_t count = std::min(most, left);
        left -= count;
        block.out_dtype == DType::f32 ? finish_as<Unit, float>(count) : finish_as<Unit, BF16>(count);
    }

    template <class Unit, class Out>
    void finish_as(std::int64_t count) {
        if (second)
            finish_rows<2, Unit, Out>(count);
        else
            block.addend ? finish_rows<1, Unit, Out>(count) : finish_rows<0, Unit, Out>(count);
    }

    template <int Addends, class Unit, class Out>
    void finish_rows(std::int64_t count) {
        auto* out = static_cast<Out*>(block.out);
        for (std::int64_t row = 0; row < count; ++row) {
            Unit::template finish_row<Addends>(block.sums, block.addend, second, out, block.streaming);
            block.sums += block.ld;
            block.addend += Addends > 0 ? block.addend_ld : 0;
            out += block.out_ld;
        }
        block.out = out;
    }

    /// A bias is an addend that all rows share.
    void add_bias() {
        const auto* terms = static_cast<const float*>(block.bias);
        if (block.bias_dtype == DType::bf16) {
            const auto* const bias = static_cast<const BF16*>(block.bias);
            for (std::int64_t c = 0; c < tile_panel; ++c)
                widened[c] = std::bit_cast<float>(std::uint32_t{bias[c].bits} << 16);
            terms = widened;
        }
        if (block.addend) {
            second = terms;
        } else {
            block.addend = terms;
            block.addend_ld = 0;
        }
    }

    EpilogueBlock block;
    std::int64_t left;
    const float* second = nullptr;
    alignas(64) float widened[tile_panel];  ///< a bias of BF16
};

/// Lines that are asked for while a tile's products are formed: equally many each time.
struct LinesAhead {
    LinesAhead(const void* first, std::int64_t lines, std::int64_t times)
        : at(static_cast<const std::byte*>(first)),
          left(lines),
          a_time(ceil_div(lines, std::max<std::int64_t>(1, times))) {}

    template <class Unit>
    void ask() {
        const std::int64_t count = std::min(a_time, left);
        for (std::int64_t line = 0; line < count; ++line, at += 64) Unit::prefetch(at);
        left -= count;
    }

    const std::byte* at;
    std::int64_t left, a_time;
};

/// Work that is due between a tile's products, after every four: lines are asked for that are needed soon,
/// and earlier sums are finished. An epilogue of the caller's gets all 32 rows of a tile at once, behind the
/// products: its cost a call, as looking for targets, exceeds the work on two rows.
struct DueBetween {
    DueBetween(const Tile& tile, std::int64_t times)
        : panel(tile.ahead, tile.lines_ahead, times),
          rows_of_a(tile.rows_ahead, tile.row_lines_ahead, times),
          every(std::max<std::int64_t>(1, times * rows_at_a_time / tile_panel)),
          until_rows(every),
          rows(*tile.behind),
          behind(tile.behind) {
        if (rows.left > 0) behind->rows = 0;
    }

    template <class Unit>
    void ask() {
        panel.ask<Unit>();
        rows_of_a.ask<Unit>();
    }

    template <class Unit>
    void finish() {
        if (rows.left > 0 && --until_rows == 0) {
            rows.finish<Unit>(rows_at_a_time);
            until_rows = every;
        } else if (behind->rows > 0 && !behind->finish && --until_rows == 0) {
            behind->finish_rows(rows_at_a_time);
            until_rows = every;
        }
    }

    template <class Unit>
    void finish_all() {
        if (rows.left > 0) rows.finish<Unit>(tile_panel);
        if (behind->rows > 0) behind->finish_rows(tile_panel);
    }

    LinesAhead panel, rows_of_a;
    std::int64_t every, until_rows;
    PlainRows rows;
    SumsBehind* behind;
};

enum class PanelOfB { stays_in_l1, passes };

/// Two tiles of a panel of b. In words of pixels, their rows lie side by side.
template <PanelOfB Panel, bool InWords = false, class Unit>
inline void load_columns(Unit& unit, const std::byte* b) {
    constexpr std::int64_t row = InWords ? 128 : 64, second = InWords ? 64 : tile_bytes;
    if constexpr (Panel == PanelOfB::stays_in_l1) {
        unit.template load<6>(b, row);
        unit.template load<7>(b + second, row);
    } else {
        unit.template load_past_l1<6>(b, row);
        unit.template load_past_l1<7>(b + second, row);
    }
}

/// Two tiles of a panel of a, which only passes L1.
template <class Unit>
inline void load_rows(Unit& unit, const std::byte* a) {
    unit.template load_past_l1<4>(a, 64);
    unit.template load_past_l1<5>(a + tile_bytes, 64);
}

template <class Unit>
inline void multiply_loaded(Unit& unit) {
    unit.template multiply<0, 4, 6>();
    unit.template multiply<1, 4, 7>();
    unit.template multiply<2, 5, 6>();
    unit.template multiply<3, 5, 7>();
}

/// Panels of BF16: a product of numbers is one product.
template <bool InWords>
struct AsTheyAre {
    static constexpr std::int64_t products = 1;

    explicit AsTheyAre(const Tile& tile)
        : a_(static_cast<const std::byte*>(tile.a)), b_(static_cast<const std::byte*>(tile.b)) {}

    void skip() {
        a_ += 2 * tile_bytes;
        b_ += 2 * tile_bytes;
    }

    /// Sums += the products of the next step of the depth.
    template <PanelOfB Panel, class Unit>
    void step(Unit& unit, DueBetween& due) {
        due.ask<Unit>();
        unit.template load_past_l1<4>(a_, 64);
        load_columns<Panel, InWords>(unit, b_);
        unit.template load_past_l1<5>(a_ + tile_bytes, 64);
        multiply_loaded(unit);
        due.finish<Unit>();
        skip();
    }

  private:
    const std::byte *a_, *b_;
};

/// Rows of a in place, and a panel of b.
struct InPlace {
    static constexpr std::int64_t products = 1;

    explicit InPlace(const Tile& tile)
        : run_(*tile.tile_runs), next_(tile.tile_runs + 1), b_(static_cast<const std::byte*>(tile.b)) {}

    void skip() {}  // never: gathered rows meet no block that is left out

    template <PanelOfB Panel, class Unit>
    void step(Unit& unit, DueBetween& due) {
        if (run_.steps == 0) run_ = *next_++;
        due.ask<Unit>();
        unit.template load_past_l1<4>(run_.rows[0], run_.stride[0]);
        load_columns<Panel>(unit, b_);
        unit.template load_past_l1<5>(run_.rows[1], run_.stride[1]);
        multiply_loaded(unit);
        due.finish<Unit>();
        run_.rows[0] += run_.step[0];
        run_.rows[1] += run_.step[1];
        --run_.steps;
        b_ += 2 * tile_bytes;
    }

  private:
    TileRun run_;
    const TileRun* next_;
    const std::byte* b_;
};

/// The numbers of two tiles; infinities and NaN become zero.
inline const std::byte* finite_of(const std::byte* tiles, std::uint16_t* finite) {
    constexpr std::uint16_t infinity = 0x7f80;
    std::memcpy(finite, tiles, 2 * tile_bytes);
    for (std::int64_t i = 0; i < tile_bytes; ++i)
        if ((finite[i] & infinity) == infinity) finite[i] = 0;
    return reinterpret_cast<const std::byte*>(finite);
}

/// Panels of two parts, hi and lo: a product of numbers is lo hi + hi hi + hi lo, and lo lo where LoLo says
/// so. Each part is loaded once or twice for three or four products. Only hi meets hi as it is: elsewhere an
/// infinite hi counts as zero, since infinity times a lo of zero would be NaN, where FP32 gives infinity.
template <bool LoLo>
struct InTwoParts {
    static constexpr std::int64_t products = LoLo ? 4 : 3;

    explicit InTwoParts(const Tile& tile)
        : part_bytes_(align_up(tile.depth, tile_depth) * tile_panel * 2),
          a_(static_cast<const std::byte*>(tile.a)),
          b_(static_cast<const std::byte*>(tile.b)),
          marks_of_a_(a_ + 2 * part_bytes_),
          marks_of_b_(b_ + 2 * part_bytes_) {}

    void skip() {
        a_ += 2 * tile_bytes;
        b_ += 2 * tile_bytes;
        marks_of_a_ += 2 * tile_panel;
        marks_of_b_ += 2 * tile_panel;
    }

    template <PanelOfB Panel, class Unit>
    void step(Unit& unit, DueBetween& due) {
        const std::byte *const a_lo = a_ + part_bytes_, *const b_lo = b_ + part_bytes_;
        const bool finite = (*marks_of_a_ | *marks_of_b_) == std::byte{0};
        const auto multiply = [&] {
            due.ask<Unit>();
            multiply_loaded(unit);
            due.finish<Unit>();
        };
        load_rows(unit, a_lo);
        if constexpr (LoLo) {
            load_columns<Panel>(unit, b_lo);
            multiply();
        }
        alignas(64) std::uint16_t rows[tile_bytes], columns[tile_bytes];
        load_columns<Panel>(unit, finite ? b_ : finite_of(b_, columns));
        multiply();
        if (!finite) load_columns<Panel>(unit, b_);
        load_rows(unit, a_);
        multiply();
        if (!finite) load_rows(unit, finite_of(a_, rows));
        load_columns<Panel>(unit, b_lo);
        multiply();
        skip();
    }

  private:
    std::int64_t part_bytes_;
    const std::byte *a_, *b_, *marks_of_a_, *marks_of_b_;
};

/// 2 x 2 tiles of sums: four products for four loads. c has room for all of them.
template <class Unit, class Operands>
void multiply_tiles(const Tile& tile) {
    Unit unit;
    const std::int64_t stride = tile.ldc * 4;
    unit.template zero<0>();
    unit.template zero<1>();
    unit.template zero<2>();
    unit.template zero<3>();
    static_assert(tile_depth == depth_of_zeros);
    const std::int64_t steps = ceil_div(tile.depth, tile_depth);
    const std::int64_t resident = std::min(steps, tile.resident_depth / tile_depth);
    DueBetween due(tile, (steps - __builtin_popcountll(tile.zeros)) * Operands::products);
    Operands operands(tile);
    const auto are_zeros = [&](std::int64_t step) { return (tile.zeros >> step & 1) != 0; };
    for (std::int64_t i = 0; i < resident; ++i)
        are_zeros(i) ? operands.skip() : operands.template step<PanelOfB::stays_in_l1>(unit, due);
    for (std::int64_t i = resident; i < steps; ++i)
        are_zeros(i) ? operands.skip() : operands.template step<PanelOfB::passes>(unit, due);
    due.finish_all<Unit>();
    float *const above = tile.c, *const below = tile.c + 16 * tile.ldc;
    unit.template store<0>(above, stride);
    unit.template store<1>(above + 16, stride);
    unit.template store<2>(below, stride);
    unit.template store<3>(below + 16, stride);
}

template <class Unit>
void multiply_bf16_tiles(const Tile& tile) {
    if (tile.tile_runs)
        multiply_tiles<Unit, InPlace>(tile);
    else if (tile.b_in_words)
        multiply_tiles<Unit, AsTheyAre<true>>(tile);
    else
        multiply_tiles<Unit, AsTheyAre<false>>(tile);
}

// The caches of the Xeon for all these measurements, taken where a CPU does not tell its own.
constexpr std::int64_t measured_l1 = 48 << 10, measured_l2 = 2 << 20;

/// The depth of a panel of b that stays in L1, 64 bytes for each k, while the rows of a block pass. It is the
/// rest beside two tiles of sums, 4 KB each, and 4 KB for the rows that are finished and all else. At least
/// one product. Of 48 KB that are 576. Measured there at a depth of 768, as shares of the peak: 384 0.79, 512
/// 0.83, 576 0.84, 640 0.81, 768 0.67.
constexpr std::int64_t resident_depth_of(std::int64_t l1_bytes) {
    constexpr std::int64_t beside = 3 * 4 << 10, bytes_of_k = tile_panel * 2;
    return std::max(tile_depth, (l1_bytes - beside) / bytes_of_k / tile_depth * tile_depth);
}

/// The share of L2, three eighths, for three things: the rows of a block of a, the rows of the next block,
/// which are fetched meanwhile, and a block's sums where k is several chunks. Two of the three are there at a
/// time, or all where chunks are short, with two panels of b and lines that are written. Of 2 MB that is 768
/// KB: 512 rows 768 deep, 256 rows 1,536 deep, or sums of 256 x 768.
constexpr std::int64_t part_of_l2_of(std::int64_t l2_bytes) { return l2_bytes * 3 / 8; }

// A step of the depth, four products, takes as long as three lines take to come from memory. It wants 1,024 /
// columns lines of a block's rows of a and 1,024 / rows lines of its panels of b: 2.7 at 512 x 1,536, 4 at
// 512 x 512, 5.3 at 256 x 768. Blocks are therefore as large as L2 and the number of threads allow; more than
// 512 rows gained nothing.
//
// Chunks of a deep k are as deep as a block of 256 rows and 768 columns leaves room for in L2 beside its
// sums: each chunk reads and writes all sums once more. Measured on one thread, 768 took as long as 384 or
// 512 where the sums of a block are large. It took 3 to 18 % less for filters of convolutions and the head's
// gradients. Both depths decide the order of sums, so they do not follow from the caches.

template <class Unit>
ContractionKernels tile_kernels(CacheSizes caches) {
    if (caches.l1d == 0) caches.l1d = measured_l1;
    if (caches.l2 == 0) caches.l2 = measured_l2;
    constexpr auto along = PanelSource::along_depth;
    constexpr auto across = PanelSource::across_depth;
    const std::int64_t part_of_l2 = part_of_l2_of(caches.l2);
    return {.height = tile_panel,
            .width = tile_panel,
            .depth_unit = tile_depth,
            .max_depth = 768,
            .max_block_bytes = part_of_l2,
            .max_rows = 512,
            .min_columns = 768,
            .whole_depth = 1536,
            .max_partial_bytes = part_of_l2,
            .resident_depth = resident_depth_of(caches.l1d),
            .element_bytes = 2,
            .finish = finish_block_generic,
            .multiply = multiply_bf16_tiles<Unit>,
            .multiply_by_three = multiply_tiles<Unit, InTwoParts<false>>,
            .multiply_by_four = multiply_tiles<Unit, InTwoParts<true>>,
            .pack_a = {{{nullptr, pack_tiles<along, index_in_a>}, {nullptr, pack_tiles<across, index_in_a>}}},
            .pack_b = {{{nullptr, pack_tiles<along, index_in_b>}, {nullptr, pack_tiles<across, index_in_b>}}},
            .depth_of_blocks = tile_depth};
}

}  // namespace

}  // namespace mantissa::on_cpu
