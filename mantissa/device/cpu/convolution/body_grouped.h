// Convolutions in groups of few channels. See rows/body_loops.h for how this file is used.
//
// Rows of the source become planes in FP32 once, in a ring of as many as a row of the output meets: small
// enough for L1 where images are as wide as networks have them. A depthwise 3x3 then is nine multiply-adds
// and about four loads for sixteen outputs. Reading in place would widen 16 bits three times and treat edges
// apart, and images of 7 x 7 have little else than edges.
#pragma once

#include "mantissa/device/cpu/convolution/grouped_problems.h"
#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {
namespace {

MANTISSA_LANES std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// A pointer that addresses are counted from, where the compiler would keep a register for each of them.
MANTISSA_LANES const float* base_at(const float* from) {
    asm("" : "+r"(from));
    return from;
}

template <class T>
struct Several {
    const T* first;
    std::int64_t count;
    const T* begin() const { return first; }
    const T* end() const { return first + count; }
};

/// Pixels that are fetched while others are computed, some at a time: many at once would wait for one another
/// and all else for them.
struct Ahead {
    const char* from = nullptr;
    std::int64_t pitch = 0, left = 0;

    /// Fetches a block of `count` pixels from that element on. In 16 bits two blocks are a line.
    static Ahead of(ConstView view, std::int64_t element, std::int64_t channels, std::int64_t count) {
        const bool is_short = view.type != DType::f32;
        const std::int64_t bytes = is_short ? 2 : 4, at = element * bytes;
        return {static_cast<const char*>(view.data) + at, channels * bytes,
                is_short && at % 64 > 0 ? 0 : count};
    }
    void take(std::int64_t count) {
        for (count = least(count, left), left -= count; count > 0; --count, from += pitch) fetch(from);
    }
};

/// Pixels of a source and of the output that come next.
struct Next {
    Ahead source = {}, other = {};
    std::int64_t source_pixels = 1;  ///< of the source for one of the other

    MANTISSA_LANES void take(Next& next, std::int64_t pixels) {
        next.source.take(pixels * next.source_pixels);
        next.other.take(pixels);
    }
};

/// The channels of the source that a block reads.
struct BlockSource {
    std::int64_t first = 0, span = 0;
    std::int32_t index[16] = {};  ///< of each lane in plane 0, behind `first`

    BlockSource(const SourcePlanes& s, std::int64_t block, std::int64_t outputs) {
        const std::int64_t o = block * block_lanes, lanes_here = least(block_lanes, outputs - o);
        first = o / s.group_outputs * s.group_channels;
        for (std::int64_t l = 0; l < lanes_here; ++l) {
            index[l] = static_cast<std::int32_t>((o + l) / s.group_outputs * s.group_channels - first);
            span = index[l] + s.group_channels;
        }
    }
};

/// Blocks of channels of pixels `pitch` apart become rows in FP32, `apart` from one block to the next. What
/// lies `ahead` is fetched, if that is not 0.
template <class X>
void widen_row(const X* x, std::int64_t pixels, std::int64_t pitch, std::int64_t channels, std::int64_t apart,
               std::int64_t ahead, float* to) {
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel, x += pitch, to += block_lanes) {
        float* block_to = to;
        for_lanes(channels, [&](std::int64_t c, auto extent) MANTISSA_BODY {
            if (ahead) fetch(x + c + ahead);
            Lanes::store(block_to, load(x + c, extent));
            block_to += apart;
        });
    }
}

/// The same for blocks of `each` channels, fewer than lanes: no kernel reads the lanes beyond them. Half a
/// vector, as pairs have it, is copied: a load of a part took twice as long from beyond L1.
template <class X>
void widen_narrow_row(const X* x, std::int64_t pixels, std::int64_t pitch, std::int64_t channels, int each,
                      std::int64_t apart, std::int64_t ahead, float* to) {
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel, x += pitch, to += block_lanes) {
        float* block_to = to;
        for (std::int64_t c = 0; c < channels; c += each, block_to += apart) {
            if (ahead) fetch(x + c + ahead);
            if (sizeof(X) == sizeof(float) && each == 8)
                __builtin_memcpy(block_to, x + c, 8 * sizeof(float));
            else
                Lanes::store(block_to, load(x + c, Part{each}));
        }
    }
}

/// Pixels of a plane's row become pairs with those that lie behind them; those before its first, too.
template <class V>
void pair_pixels(const SourcePlanes& s, float* row) {
    std::int64_t q = -least(s.margin, s.pixels_apart);
    __builtin_memset(row + q * block_lanes, 0, static_cast<std::size_t>(-q * block_lanes) * sizeof(float));
    for (; q < s.columns; ++q) {
        float* const to = row + q * block_lanes;
        V::store(to, V::pair(V::load(to), V::load(to + s.pixels_apart * block_lanes)));
    }
}

/// Planes of a row whose groups have all they read within one vector.
template <class X>
void permute_row(const SourcePlanes& s, const BlockSource& of, const X* x, float* to) {
    for (std::int64_t plane = 0; plane < s.group_channels; ++plane, to += s.row_floats()) {
        std::int32_t index[16];
        for (int l = 0; l < 16; ++l) index[l] = of.index[l] + static_cast<std::int32_t>(plane);
        for (std::int64_t pixel = 0; pixel < s.columns; ++pixel) {
            const X* from = x + pixel * s.channels;
            const Float lanes_here =
                of.span == 16 ? Lanes::load(from) : Lanes::load_part(from, static_cast<int>(of.span));
            Lanes::store(to + pixel * block_lanes, ImageLanes::permuted(lanes_here, index));
        }
    }
}

/// Planes of a row of any groups.
template <class X>
void gather_row(const SourcePlanes& s, const BlockSource& of, const X* x, float* to) {
    float wide[max_span];
    for (std::int64_t pixel = 0; pixel < s.columns; ++pixel, x += s.channels, to += block_lanes) {
        for_lanes(of.span, [&](std::int64_t c, auto extent)
                               MANTISSA_BODY { store(wide + c, load(x + c, extent), extent, false); });
        for (std::int64_t plane = 0; plane < s.group_channels; ++plane)
            for (int l = 0; l < 16; ++l) to[plane * s.row_floats() + l] = wide[of.index[l] + plane];
    }
}

/// The ring of rows of some blocks' planes.
class Planes {
  public:
    Planes(const SourcePlanes& s, std::int64_t image, Range blocks, std::int64_t outputs, float* ring)
        : s_(s), image_(image), blocks_(blocks), outputs_(outputs), ring_(ring) {}

    /// Column 0 of the image.
    float* row(std::int64_t row, std::int64_t block, std::int64_t plane) const {
        const std::int64_t at = row % s_.slots * s_.blocks + block - blocks_.first;
        return ring_ + (at * s_.planes() + plane) * s_.row_floats() + s_.margin * block_lanes;
    }

    /// Where a plane's first lane is behind the row of plane 0.
    std::int64_t offset(std::int64_t plane) const {
        return s_.lanes_from == LaneSource::planes      ? plane * s_.row_floats()
               : s_.lanes_from == LaneSource::broadcast ? plane
                                                        : 0;
    }

    void fill(std::int64_t row_of_image) const {
        with_type(s_.data.type, [&](auto* type) {
            const auto* x = as(s_.data, type) + (image_ * s_.rows + row_of_image) * s_.columns * s_.channels;
            if (s_.lanes_from != LaneSource::planes || (s_.group_channels == 1 && s_.group_outputs == 1)) {
                const std::int64_t each = s_.block_channels(), first = blocks_.first * each;
                const std::int64_t count = least(blocks_.last * each, s_.channels) - first;
                const std::int64_t ahead = s_.rows_ahead * s_.columns * s_.channels;
                float* const to = row(row_of_image, blocks_.first, 0);
                if (each == block_lanes)
                    widen_row(x + first, s_.columns, s_.channels, count, s_.row_floats(), ahead, to);
                else
                    widen_narrow_row(x + first, s_.columns, s_.channels, count, static_cast<int>(each),
                                     s_.row_floats(), ahead, to);
                return;
            }
            for (std::int64_t block = blocks_.first; block < blocks_.last; ++block) {
                const BlockSource of(s_, block, outputs_);
                if (of.span <= 16)
                    permute_row(s_, of, x + of.first, row(row_of_image, block, 0));
                else
                    gather_row(s_, of, x + of.first, row(row_of_image, block, 0));
            }
        });
        if constexpr (Vector::pairs)
            if (s_.pixels_apart > 0)
                for (std::int64_t block = blocks_.first; block < blocks_.last; ++block)
                    for (std::int64_t plane = 0; plane < s_.planes(); ++plane)
                        pair_pixels<Vector>(s_, row(row_of_image, block, plane));
    }

    /// Rows from `row` on, of a block's channels.
    Ahead ahead(std::int64_t row, std::int64_t rows, std::int64_t block) const {
        const std::int64_t first = block * block_lanes / s_.group_outputs * s_.group_channels;
        return Ahead::of(s_.data, (image_ * s_.rows + row) * s_.columns * s_.channels + first, s_.channels,
                         least(rows, s_.rows - row) * s_.columns);
    }

  private:
    const SourcePlanes& s_;
    std::int64_t image_;
    Range blocks_;
    std::int64_t outputs_;
    float* ring_;
};

/// A row of a plane, and the taps that move over it.
struct SumRow {
    const float* source;
    const float* taps;
    const std::int32_t* index;
};

/// Sums of columns, which stay in registers where a block is a vector.
template <int Columns>
struct Sums {
    Float column[Columns];
    [[gnu::always_inline]] inline void set(int q, int part, Vector::Float sum) {
        if constexpr (Vector::width == 16)
            column[q] = sum;
        else
            Vector::store(reinterpret_cast<float*>(&column[q]) + part, sum);
    }
    [[gnu::always_inline]] inline Float get(int q) const { return column[q]; }
};

/// A block of a row of y, or of every so many of its columns.
struct RowOfY {
    View y;
    std::int64_t at = 0, pitch = 0;  ///< of its first column, and from one to the next, in elements
    int lanes = 16;
    Float bias;

    /// Columns from `first` on: those of `sum` that there are.
    template <int Columns, class Sum>
    MANTISSA_LANES void store(const RowOfY& row, std::int64_t first, std::int64_t columns, Sum sum) {
        with_type(row.y.type, [&](auto* type) MANTISSA_BODY {
            auto* to = as(row.y, type) + row.at + first * row.pitch;
            if (row.lanes == 16) {
#pragma GCC unroll 16
                for (int q = 0; q < Columns; ++q)
                    if (q < columns) store_result(to + q * row.pitch, Lanes::add(sum(q), row.bias));
            } else {
#pragma GCC unroll 16
                for (int q = 0; q < Columns; ++q)
                    if (q < columns)
                        Lanes::store_part(to + q * row.pitch, Lanes::add(sum(q), row.bias), row.lanes);
            }
        });
    }
};

/// The channel of a block that each lane of a plane is.
struct Permutations {
    std::int32_t index[16][16] = {};

    explicit Permutations(const SourcePlanes& s) {
        for (std::int64_t plane = 0; plane < least(s.group_channels, 16); ++plane)
            for (std::int64_t l = 0; l < 16; ++l)
                index[plane][l] = static_cast<std::int32_t>(l / s.group_outputs * s.group_channels + plane);
    }
    const std::int32_t* of(std::int64_t plane) const { return index[plane % 16]; }
};

/// c and the product of each lane, or the products of its pairs.
template <bool Pairs, class V = Vector>
MANTISSA_LANES typename V::Float add_product(typename V::Float a, typename V::Float b, typename V::Float c) {
    if constexpr (Pairs)
        return V::add_pairs(a, b, c);
    else
        return V::multiply_add(a, b, c);
}

template <LaneSource From, class V = Vector>
MANTISSA_LANES typename V::Float load_source(const float* from, const std::int32_t* index) {
    if constexpr (From == LaneSource::permuted)
        return V::load_permuted(from, index);
    else if constexpr (From == LaneSource::broadcast)
        return V::load_broadcast(from);
    else
        return V::load_once(from);
}

/// Sums of so many columns, whose first meets the rows at `at`. Each is added up tap by tap, row by row.
template <bool Pairs, int Taps, int Step, LaneSource From, int Columns>
MANTISSA_LANES void sum_columns(Several<SumRow> rows, const WindowPhase& phase, std::int64_t at,
                                Sums<Columns>& sums) {
    for (int part = 0; part < 16; part += Vector::width) {
        Vector::Float sum[Columns];
#pragma GCC unroll 16
        for (int q = 0; q < Columns; ++q) sum[q] = Vector::zero();
        for (const SumRow& row : rows) {
            Vector::Float tap[Taps];
#pragma GCC unroll 16
            for (int s = 0; s < Taps; ++s)
                tap[s] = Vector::load_once(row.taps + (phase.packed_first + s) * block_lanes + part);
            const float* const source = base_at(row.source + at + (From == LaneSource::broadcast ? 0 : part));
#pragma GCC unroll 64
            for (int place = 0; place < (Columns - 1) * Step + Taps; ++place) {
                const Vector::Float value = load_source<From>(source + place * block_lanes, row.index);
#pragma GCC unroll 16
                for (int s = place % Step; s < Taps; s += Step)
                    if (place >= s && (place - s) / Step < Columns) {
                        Vector::Float& own = sum[(place - s) / Step];
                        own = add_product<Pairs>(value, tap[s], own);
                    }
            }
        }
#pragma GCC unroll 16
        for (int q = 0; q < Columns; ++q) sums.set(q, part, sum[q]);
    }
}

/// The same for any step and distance.
template <bool Pairs, int Columns>
MANTISSA_LANES void sum_columns_of_any(Several<SumRow> rows, const WindowPhase& phase, std::int64_t at,
                                       Sums<Columns>& sums) {
    const std::int64_t step = phase.source_step * block_lanes;
    for (int part = 0; part < 16; part += Vector::width) {
        Vector::Float sum[Columns];
#pragma GCC unroll 16
        for (int q = 0; q < Columns; ++q) sum[q] = Vector::zero();
        for (const SumRow& row : rows) {
            const float* source = row.source + at + part;
            for (std::int64_t s = 0; s < phase.taps; ++s, source += phase.distance * block_lanes) {
                const Vector::Float tap =
                    Vector::load(row.taps + (phase.packed_first + s) * block_lanes + part);
#pragma GCC unroll 16
                for (int q = 0; q < Columns; ++q)
                    sum[q] = add_product<Pairs>(Vector::load(source + q * step), tap, sum[q]);
            }
        }
#pragma GCC unroll 16
        for (int q = 0; q < Columns; ++q) sums.set(q, part, sum[q]);
    }
}

/// As many columns as registers hold, or half of them.
struct AllColumns {
    static constexpr int count = Vector::twice ? 2 * Vector::columns : Vector::columns;
};
struct FewColumns {
    static constexpr int count = Vector::columns;
};

/// All columns of a phase.
template <class Sum>
MANTISSA_LANES void for_columns(const WindowPhase& phase, Next& next, const RowOfY& y, Sum sum) {
    const auto some = [&](auto columns, std::int64_t q) MANTISSA_BODY {
        Sums<columns.count> sums;
        Next::take(next, least(columns.count, phase.count - q));
        sum((phase.source_first + q * phase.source_step) * block_lanes, sums);
        RowOfY::store<columns.count>(y, q, phase.count - q, [&](int i) MANTISSA_BODY { return sums.get(i); });
    };
    for (std::int64_t q = 0; q < phase.count;)
        if (phase.count - q > FewColumns::count) {
            some(AllColumns{}, q);
            q += AllColumns::count;
        } else {
            some(FewColumns{}, q);
            q += FewColumns::count;
        }
}

template <bool Pairs, int Taps, int Step, LaneSource From = LaneSource::planes>
[[gnu::noinline]] void sum_row_of(Several<SumRow> rows, const WindowPhase& phase, Next& next,
                                  const RowOfY& y) {
    for_columns(phase, next, y, [&]<int Columns>(std::int64_t at, Sums<Columns>& sums) MANTISSA_BODY {
        sum_columns<Pairs, Taps, Step, From, Columns>(rows, phase, at, sums);
    });
}
template <bool Pairs>
[[gnu::noinline]] void sum_row_of_any(Several<SumRow> rows, const WindowPhase& phase, Next& next,
                                      const RowOfY& y) {
    for_columns(phase, next, y, [&]<int Columns>(std::int64_t at, Sums<Columns>& sums) MANTISSA_BODY {
        sum_columns_of_any<Pairs, Columns>(rows, phase, at, sums);
    });
}

using SumRowFunction = void (*)(Several<SumRow>, const WindowPhase&, Next&, const RowOfY&);

/// Windows of three taps and their phases.
template <bool Pairs, LaneSource From>
SumRowFunction sum_row_function_of_three(const WindowPhase& phase) {
    return phase.source_step == 2 ? sum_row_of<Pairs, 3, 2, From>
           : phase.taps == 3      ? sum_row_of<Pairs, 3, 1, From>
           : phase.taps == 2      ? sum_row_of<Pairs, 2, 1, From>
                                  : sum_row_of<Pairs, 1, 1, From>;
}
/// Windows up to 7, and the phases of such windows of stride 2, which are the gradients of inputs.
template <bool Pairs>
SumRowFunction sum_row_function_of(const WindowPhase& phase, LaneSource from) {
    if (phase.distance != 1) return sum_row_of_any<Pairs>;
    const auto is = [&](std::int64_t taps, std::int64_t step) {
        return phase.taps == taps && phase.source_step == step;
    };
    if (from == LaneSource::broadcast) return sum_row_function_of_three<Pairs, LaneSource::broadcast>(phase);
    if constexpr (Vector::twice)
        if (from == LaneSource::permuted)
            return sum_row_function_of_three<Pairs, LaneSource::permuted>(phase);
    if (is(1, 1)) return sum_row_of<Pairs, 1, 1>;
    if (is(2, 1)) return sum_row_of<Pairs, 2, 1>;
    if (is(3, 1)) return sum_row_of<Pairs, 3, 1>;
    if (is(4, 1)) return sum_row_of<Pairs, 4, 1>;
    if (is(5, 1)) return sum_row_of<Pairs, 5, 1>;
    if (is(7, 1)) return sum_row_of<Pairs, 7, 1>;
    if (is(3, 2)) return sum_row_of<Pairs, 3, 2>;
    if (is(5, 2)) return sum_row_of<Pairs, 5, 2>;
    if (is(7, 2)) return sum_row_of<Pairs, 7, 2>;
    return sum_row_of_any<Pairs>;
}
SumRowFunction sum_row_function(const WindowPhase& phase, const SourcePlanes& s) {
    return Vector::pairs && s.channel_pairs ? sum_row_function_of<Vector::pairs>(phase, s.lanes_from)
                                            : sum_row_function_of<false>(phase, s.lanes_from);
}

/// Rows of the source that a row of y meets: those of `rows` that are inside of the image.
template <class Meet>
MANTISSA_LANES void for_rows_met(const GroupedSums& p, std::int64_t row, Meet meet) {
    const WindowPhase& phase = p.row_phase[row % p.row_phases];
    std::int64_t at = phase.source_first + row / p.row_phases * phase.source_step;
    for (std::int64_t q = 0; q < phase.taps; ++q, at += phase.distance)
        if (at >= 0 && at < p.source.rows) meet(at, phase.filter_first + q * phase.filter_step);
}

/// The block's channels in a row of y, all images' rows counted.
RowOfY row_of_y(const GroupedSums& p, std::int64_t row, std::int64_t block) {
    const std::int64_t o = block * block_lanes;
    RowOfY out{.y = p.y,
               .at = row * p.columns * p.channels + o,
               .pitch = p.column_phases * p.channels,
               .lanes = static_cast<int>(least(block_lanes, p.channels - o)),
               .bias = Lanes::constant(0.0f)};
    if (p.bias.data)
        with_type(p.bias.type, [&](auto* type) MANTISSA_BODY {
            out.bias = Lanes::load_part(as(p.bias, type) + o, out.lanes);
        });
    return out;
}

/// Some blocks at a time, row by row, so that each pixel is a run of channels. `next` is the first row of the
/// source that the rows meet.
void sums_of_blocks(const GroupedSums& p, std::int64_t image, Range rows, std::int64_t next, Range blocks,
                    float* scratch) {
    const SourcePlanes& s = p.source;
    auto* const met = reinterpret_cast<SumRow*>(scratch + s.floats());
    const Planes planes(s, image, blocks, p.channels, scratch);
    const Permutations permutations(s);
    const std::int64_t taps = p.filter_columns * block_lanes;
    // Rows of the source that come new for a row of the output, and their pixels for each of its.
    const std::int64_t next_rows = (s.rows + p.rows - 1) / p.rows;
    const std::int64_t source_pixels = (next_rows * s.columns + p.columns - 1) / p.columns;
    const float* const filter = p.packed + blocks.first * p.filter_rows * s.group_channels * taps;
    SumRowFunction functions[max_phases];
    for (std::int64_t first = 0; first < p.column_phases; ++first)
        functions[first] = sum_row_function(p.column_phase[first], s);
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
        for_rows_met(p, row, [&](std::int64_t at, std::int64_t) {
            for (; next <= at; ++next) planes.fill(next);
        });
        // Rows of the first block; those of the next lie equally far behind.
        std::int64_t count = 0;
        for_rows_met(p, row, [&](std::int64_t at, std::int64_t r) {
            const float* const first = planes.row(at, blocks.first, 0);
            for (std::int64_t plane = 0; plane < s.group_channels; ++plane)
                met[count++] = {first + planes.offset(plane), filter + (r * s.group_channels + plane) * taps,
                                permutations.of(plane)};
        });
        for (std::int64_t block = blocks.first; block < blocks.last; ++block) {
            RowOfY y = row_of_y(p, image * p.rows + row, block);
            Next ahead{.source_pixels = source_pixels};
            if (s.rows_ahead == 0) ahead.source = planes.ahead(next, next_rows, block);
            ahead.other =
                Ahead::of({p.y.data, p.y.type}, y.at + p.columns * p.channels, p.channels, p.columns);
            for (std::int64_t first = 0; first < p.column_phases; ++first) {
                const WindowPhase& phase = p.column_phase[first];
                functions[first]({met, phase.taps == 0 ? 0 : count}, phase, ahead, y);
                y.at += p.channels;
            }
            for (std::int64_t i = 0; i < count; ++i) {
                met[i].source += s.planes() * s.row_floats();
                met[i].taps += p.filter_rows * s.group_channels * taps;
            }
        }
    }
}

void grouped_sums(const GroupedSums& p, std::int64_t image, Range rows, Range blocks, float* scratch) {
    __builtin_memset(scratch, 0, static_cast<std::size_t>(p.source.floats()) * sizeof(float));
    std::int64_t next = p.source.rows;
    for (std::int64_t row = rows.first; row < rows.last; ++row)
        for_rows_met(p, row, [&](std::int64_t at, std::int64_t) { next = least(next, at); });
    for (std::int64_t block = blocks.first; block < blocks.last; block += p.source.blocks)
        sums_of_blocks(p, image, rows, next, {block, least(block + p.source.blocks, blocks.last)}, scratch);
}

/// Rows of FP32 become pairs, every two of them a row that is `apart` from the next.
template <class V>
void store_pairs(std::int64_t count, const float* rows, float* to, std::int64_t apart) {
    if constexpr (V::pairs)
        for (std::int64_t i = 0; i < count; ++i, rows += 2 * block_lanes, to += apart)
            V::store(to, V::pair(V::load(rows), V::load(rows + block_lanes)));
}

void pack_grouped_filter(const GroupedSums& p, std::int64_t block) {
    const SourcePlanes& s = p.source;
    const std::int64_t o = block * block_lanes, count = least(block_lanes, p.channels - o);
    const std::int64_t planes = s.group_channels * (s.channel_pairs ? 2 : 1);
    const std::int64_t tap_elements = (p.of_gradient ? s.group_outputs : planes) * p.filters;
    std::int64_t offsets[16] = {};
    for (std::int64_t l = 0; l < count; ++l)
        offsets[l] = (o + l) % s.group_outputs * p.filters + (o + l) / s.group_outputs * planes;
    const std::int64_t S = p.filter_columns;
    const auto pack_tap = [&](const auto* tap, float* to, std::int64_t plane_floats) {
        if (!p.of_gradient || (s.group_outputs == 1 && planes == 1)) {
            for (std::int64_t plane = 0; plane < planes; ++plane)
                Lanes::store(to + plane * plane_floats,
                             Lanes::load_part(tap + plane * p.filters + o, static_cast<int>(count)));
            return;
        }
        float along[16];
        for (std::int64_t l = 0; l < count; ++l)
            for_lanes(planes, [&](std::int64_t plane, auto extent) MANTISSA_BODY {
                Lanes::store(along, load(tap + offsets[l] + plane, extent));
                for (int i = 0; i < lanes_in(extent); ++i) to[(plane + i) * plane_floats + l] = along[i];
            });
    };
    with_type(p.filter.type, [&](auto* type) {
        for (std::int64_t r = 0; r < p.filter_rows; ++r)
            for (std::int64_t first = 0; first < p.column_phases; ++first) {
                const WindowPhase& phase = p.column_phase[first];
                float* to =
                    p.packed +
                    ((block * p.filter_rows + r) * s.group_channels * S + phase.packed_first) * block_lanes;
                for (std::int64_t q = 0; q < phase.taps; ++q, to += block_lanes) {
                    const auto* const tap =
                        as(p.filter, type) +
                        (r * S + phase.filter_first + q * phase.filter_step) * tap_elements;
                    if (!s.channel_pairs) {
                        pack_tap(tap, to, S * block_lanes);
                        continue;
                    }
                    float wide[16 * block_lanes];
                    pack_tap(tap, wide, block_lanes);
                    store_pairs<Vector>(s.group_channels, wide, to, S * block_lanes);
                }
            }
    });
}

/// A row of a plane, and the sums of its products by a row of dy.
struct ProductRow {
    const float* source;
    float* sums;
    const std::int32_t* index;
};

/// Adds to the sums of so many rows. Pixels that are read at a time stay in registers meanwhile. Where they
/// are pairs, `pixels` may be odd: the last one's second is left out, for no window meets what lies there.
template <bool Pairs, int Taps, int Step, LaneSource From, int Rows, class V = Vector>
MANTISSA_LANES void add_products(const ProductRow* rows, const float* dy, std::int64_t pixels, Next& next) {
    constexpr int at_once = V::twice ? V::columns : 4, pixels_each = Pairs ? 2 : 1, step = Step * pixels_each;
    const std::int64_t whole = pixels / pixels_each, all = (pixels + pixels_each - 1) / pixels_each;
    for (int part = 0; part < 16; part += V::width) {
        const int offset = From == LaneSource::broadcast ? 0 : part;
        typename V::Float sum[Rows][Taps];
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int s = 0; s < Taps; ++s) sum[r][s] = V::zero();
        std::int64_t q = 0;
        for (; q + at_once <= whole; q += at_once) {
            typename V::Float d[at_once];
            Next::take(next, at_once * pixels_each);
#pragma GCC unroll 16
            for (int i = 0; i < at_once; ++i) d[i] = V::load_once(dy + (q + i) * block_lanes + part);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                const float* const source = base_at(rows[r].source + q * step * block_lanes + offset);
#pragma GCC unroll 64
                for (int place = 0; place < (at_once - 1) * step + Taps; ++place) {
                    // Wide steps leave places out.
                    if (place % step >= Taps) continue;
                    const typename V::Float value =
                        load_source<From>(source + place * block_lanes, rows[r].index);
#pragma GCC unroll 16
                    for (int s = place % step; s < Taps; s += step)
                        if (place >= s && (place - s) / step < at_once)
                            sum[r][s] = add_product<Pairs>(value, d[(place - s) / step], sum[r][s]);
                }
            }
        }
        for (; q < all; ++q) {
            const typename V::Float d = V::load(dy + q * block_lanes + part);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
                for (int s = 0; s < Taps; ++s) {
                    const float* const from = rows[r].source + (q * step + s) * block_lanes + offset;
                    typename V::Float value = load_source<From>(from, rows[r].index);
                    if constexpr (Pairs)
                        if (q == whole) value = V::lower(value);
                    sum[r][s] = add_product<Pairs>(value, d, sum[r][s]);
                }
        }
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int s = 0; s < Taps; ++s) {
                float* const to = rows[r].sums + s * block_lanes + part;
                V::store(to, V::add(V::load(to), sum[r][s]));
            }
    }
}

/// About as many sums at a time as multiply-adds are in flight.
template <bool Pairs, int Taps, int Step, LaneSource From = LaneSource::planes>
[[gnu::noinline]] void add_products_of(Several<ProductRow> rows, const ConvolutionAxis&, const float* dy,
                                       std::int64_t pixels, Next& next) {
    constexpr int at_once = Taps == 3 ? 3 : Taps == 5 || Vector::twice ? 2 : 1;
    std::int64_t i = 0;
    for (; i + at_once <= rows.count; i += at_once)
        add_products<Pairs, Taps, Step, From, at_once>(rows.first + i, dy, pixels, next);
    for (; i < rows.count; ++i) add_products<Pairs, Taps, Step, From, 1>(rows.first + i, dy, pixels, next);
}

template <bool Pairs, class V = Vector>
[[gnu::noinline]] void add_products_of_any(Several<ProductRow> rows, const ConvolutionAxis& across,
                                           const float* dy, std::int64_t pixels, Next& next) {
    Next::take(next, pixels);
    constexpr std::int64_t pixels_each = Pairs ? 2 : 1;
    const std::int64_t step = across.stride * pixels_each * block_lanes;
    const std::int64_t whole = pixels / pixels_each, all = (pixels + pixels_each - 1) / pixels_each;
    for (const ProductRow& row : rows)
        for (std::int64_t s = 0; s < across.filter; ++s)
            for (int part = 0; part < 16; part += V::width) {
                const float* const source = row.source + s * across.dilation * block_lanes + part;
                typename V::Float sum[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
                for (std::int64_t q = 0; q < all; q += 4)
#pragma GCC unroll 4
                    for (std::int64_t i = 0; i < 4; ++i)
                        if (q + i < all) {
                            typename V::Float value = V::load(source + (q + i) * step);
                            if constexpr (Pairs)
                                if (q + i == whole) value = V::lower(value);
                            sum[i] =
                                add_product<Pairs>(value, V::load(dy + (q + i) * block_lanes + part), sum[i]);
                        }
                float* const to = row.sums + s * block_lanes + part;
                V::store(to, V::add(V::load(to), V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3]))));
            }
}

using AddProductsFunction = void (*)(Several<ProductRow>, const ConvolutionAxis&, const float*, std::int64_t,
                                     Next&);

template <bool Pairs, LaneSource From>
AddProductsFunction add_products_function_of_three(const ConvolutionAxis& across) {
    return across.stride == 1 ? add_products_of<Pairs, 3, 1, From> : add_products_of<Pairs, 3, 2, From>;
}
template <bool Pairs>
AddProductsFunction add_products_function_of(const ConvolutionAxis& across, LaneSource from) {
    if (from == LaneSource::broadcast)
        return add_products_function_of_three<Pairs, LaneSource::broadcast>(across);
    if constexpr (Vector::twice)
        if (from == LaneSource::permuted)
            return add_products_function_of_three<Pairs, LaneSource::permuted>(across);
    const auto is = [&](std::int64_t taps, std::int64_t step) {
        return across.filter == taps && across.stride == step && across.dilation == 1;
    };
    if (is(3, 1)) return add_products_of<Pairs, 3, 1>;
    if (is(5, 1)) return add_products_of<Pairs, 5, 1>;
    if (is(7, 1)) return add_products_of<Pairs, 7, 1>;
    if (is(3, 2)) return add_products_of<Pairs, 3, 2>;
    if (is(5, 2)) return add_products_of<Pairs, 5, 2>;
    if (is(7, 2)) return add_products_of<Pairs, 7, 2>;
    return add_products_of_any<Pairs>;
}
AddProductsFunction add_products_function(const ConvolutionAxis& across, const SourcePlanes& s) {
    return Vector::pairs && s.pixels_apart > 0 ? add_products_function_of<Vector::pairs>(across, s.lanes_from)
                                               : add_products_function_of<false>(across, s.lanes_from);
}

/// Rows of one image, added to the sums of some blocks.
void filter_gradient_of_image(const GroupedFilterGradient& p, std::int64_t image, Range rows, Range blocks,
                              float* sums, float* scratch) {
    const SourcePlanes& s = p.source;
    auto* const met = reinterpret_cast<ProductRow*>(scratch + s.floats());
    float* const dy_row = scratch + s.floats() + floats_of_pointers(p.vertical.filter * s.group_channels);
    const Planes planes(s, image, blocks, p.channels, scratch);
    const Permutations permutations(s);
    const AddProductsFunction add = add_products_function(p.horizontal, s);
    const std::int64_t taps = p.horizontal.filter * block_lanes;
    const std::int64_t first_met = p.vertical.image_place(rows.first, 0);
    std::int64_t next = first_met < 0 ? 0 : first_met;
    const std::int64_t source_pixels = (p.vertical.stride * s.columns + p.columns - 1) / p.columns;
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
        const std::int64_t last_met = least(p.vertical.image_place(row, p.vertical.filter - 1), s.rows - 1);
        for (; next <= last_met; ++next) planes.fill(next);
        std::int64_t count = 0;
        for (std::int64_t r = 0; r < p.vertical.filter; ++r) {
            const std::int64_t at = p.vertical.image_place(row, r);
            if (at < 0 || at >= s.rows) continue;
            const float* const first = planes.row(at, blocks.first, 0) - p.horizontal.before * block_lanes;
            for (std::int64_t plane = 0; plane < s.group_channels; ++plane)
                met[count++] = {first + planes.offset(plane), sums + (r * s.group_channels + plane) * taps,
                                permutations.of(plane)};
        }
        for (std::int64_t block = blocks.first; block < blocks.last; ++block) {
            const std::int64_t o = block * block_lanes;
            Next ahead{.source_pixels = source_pixels};
            if (s.rows_ahead == 0) ahead.source = planes.ahead(next, p.vertical.stride, block);
            const std::int64_t at = (image * p.rows + row) * p.columns * p.channels + o;
            if (s.rows_ahead == 0)
                ahead.other = Ahead::of(p.dy, at + p.columns * p.channels, p.channels, p.columns);
            with_type(p.dy.type, [&](auto* type) {
                widen_row(as(p.dy, type) + at, p.columns, p.channels, least(block_lanes, p.channels - o), 0,
                          s.rows_ahead > 0 ? p.columns * p.channels : 0, dy_row);
            });
            if (s.pixels_apart > 0) {
                Lanes::store(dy_row + p.columns * block_lanes, Lanes::constant(0.0f));
                store_pairs<Vector>((p.columns + 1) / 2, dy_row, dy_row, block_lanes);
            }
            add({met, count}, p.horizontal, dy_row, p.columns, ahead);
            for (std::int64_t i = 0; i < count; ++i) {
                met[i].source += s.planes() * s.row_floats();
                met[i].sums += p.vertical.filter * s.group_channels * taps;
            }
        }
    }
}

void grouped_filter_gradient(const GroupedFilterGradient& p, std::int64_t part, Range rows, Range blocks,
                             float* scratch) {
    const std::int64_t floats =
        p.vertical.filter * p.source.group_channels * p.horizontal.filter * block_lanes;
    const std::int64_t all_blocks = (p.channels + block_lanes - 1) / block_lanes;
    __builtin_memset(scratch, 0, static_cast<std::size_t>(p.source.floats()) * sizeof(float));
    for (std::int64_t block = blocks.first, end = 0; block < blocks.last; block = end) {
        end = least(block + p.source.blocks, blocks.last);
        float* const sums = p.sums + (part * all_blocks + block) * floats;
        __builtin_memset(sums, 0, static_cast<std::size_t>((end - block) * floats) * sizeof(float));
        for (std::int64_t row = rows.first, last = 0; row < rows.last; row = last) {
            const std::int64_t image = row / p.rows, first = image * p.rows;
            last = least(rows.last, first + p.rows);
            filter_gradient_of_image(p, image, {row - first, last - first}, {block, end}, sums, scratch);
        }
    }
}

void finish_grouped_filter(const GroupedFilterGradient& p, std::int64_t block) {
    const std::int64_t vectors = p.vertical.filter * p.source.group_channels * p.horizontal.filter;
    const std::int64_t all_blocks = (p.channels + block_lanes - 1) / block_lanes;
    const std::int64_t o = block * block_lanes, count = least(block_lanes, p.channels - o);
    with_type(p.dfilter.type, [&](auto* type) {
        const float* from = p.sums + block * vectors * block_lanes;
        for (std::int64_t r = 0; r < p.vertical.filter; ++r)
            for (std::int64_t plane = 0; plane < p.source.group_channels; ++plane)
                for (std::int64_t s = 0; s < p.horizontal.filter; ++s, from += block_lanes) {
                    Float sum = Lanes::load(from);
                    for (std::int64_t part = 1; part < p.parts; ++part)
                        sum = Lanes::add(sum, Lanes::load(from + part * all_blocks * vectors * block_lanes));
                    const std::int64_t tap = r * p.horizontal.filter + s;
                    Lanes::store_part(
                        as(p.dfilter, type) + (tap * p.source.group_channels + plane) * p.channels + o, sum,
                        static_cast<int>(count));
                }
    });
}

}  // namespace
}  // namespace mantissa::on_cpu
