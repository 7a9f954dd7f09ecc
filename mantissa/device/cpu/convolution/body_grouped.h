// Convolutions in groups of few channels: sums over windows. See rows/body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/convolution/body_planes.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// A row of a plane, and the taps that move over it.
struct SumRow {
    const float* source;
    const float* taps;
    const std::int32_t* index;
};

/// Sums of columns.
template <int Columns>
struct Sums {
    Float column[Columns];
    template <class Sum>
    [[gnu::always_inline]] inline void set(int q, int part, Sum sum) {
        if constexpr (sizeof(Sum) == sizeof(Float))
            column[q] = sum;
        else
            __builtin_memcpy(reinterpret_cast<float*>(&column[q]) + part, &sum, sizeof sum);
    }
};

/// A block of a row of y, or of every so many of its columns.
struct RowOfY {
    View y;
    std::int64_t at = 0, pitch = 0;  ///< of its first column, and from one to the next, in elements
    int lanes = 16;
    bool as_source = false;  ///< whether all lanes are stored, in the type of the source
    Float bias;

    /// Stores the existing columns of `sums`, from `first` on.
    template <int Columns>
    MANTISSA_LANES void store_all(auto* to, std::int64_t pitch, std::int64_t columns,
                                  const Sums<Columns>& sums, Float bias) {
#pragma GCC unroll 16
        for (int q = 0; q < Columns; ++q)
            if (q < columns) store_result(to + q * pitch, Lanes::add(sums.column[q], bias));
    }
    /// One function for all kernels, since it has a branch for each type and column: sums pass through L1.
    template <int Columns>
    [[gnu::noinline]] void store(std::int64_t first, std::int64_t columns, const Sums<Columns>& sums) const {
        with_type(y.type, [&](auto* type) MANTISSA_BODY {
            auto* to = as(y, type) + at + first * pitch;
            if (lanes == 16) {
                store_all(to, pitch, columns, sums, bias);
            } else {
                for (int q = 0; q < least(Columns, columns); ++q)
                    Lanes::store_part(to + q * pitch, Lanes::add(sums.column[q], bias), lanes);
            }
        });
    }
};

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

/// As above, for any step and distance.
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

/// As many columns as registers hold.
constexpr int most_columns = Vector::twice ? 2 * Vector::columns : Vector::columns;

/// All columns of a phase, up to `Most` at a time: sum(place of the source that the first column meets,
/// sums). They are stored from registers where y is known to be of type T.
template <int Most = most_columns, class T = void, class Sum>
MANTISSA_LANES void for_columns(const WindowPhase& phase, Next& next, const RowOfY& y, Sum sum) {
    const auto some = [&]<int Columns>(std::integral_constant<int, Columns>, std::int64_t q) MANTISSA_BODY {
        Sums<Columns> sums;
        Next::take(next, least(Columns, phase.count - q));
        sum(phase.source_first + q * phase.source_step, sums);
        if constexpr (!std::is_void_v<T>)
            if (y.as_source)
                return RowOfY::store_all(static_cast<T*>(y.y.data) + y.at + q * y.pitch, y.pitch,
                                         phase.count - q, sums, y.bias);
        y.store(q, phase.count - q, sums);
    };
    std::int64_t q = 0;
    for (; phase.count - q > Vector::columns; q += Most) some(std::integral_constant<int, Most>{}, q);
    for (; q < phase.count; q += Vector::columns) some(std::integral_constant<int, Vector::columns>{}, q);
}

template <bool Pairs, int Taps, int Step, LaneSource From = LaneSource::planes>
[[gnu::noinline]] void sum_row_of(Several<SumRow> rows, const WindowPhase& phase, Next& next,
                                  const RowOfY& y) {
    for_columns(phase, next, y, [&]<int Columns>(std::int64_t first, Sums<Columns>& sums) MANTISSA_BODY {
        sum_columns<Pairs, Taps, Step, From, Columns>(rows, phase, first * block_lanes, sums);
    });
}
template <bool Pairs>
[[gnu::noinline]] void sum_row_of_any(Several<SumRow> rows, const WindowPhase& phase, Next& next,
                                      const RowOfY& y) {
    for_columns(phase, next, y, [&]<int Columns>(std::int64_t first, Sums<Columns>& sums) MANTISSA_BODY {
        sum_columns_of_any<Pairs, Columns>(rows, phase, first * block_lanes, sums);
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
/// Windows up to 3, and the phases of such windows of stride 2, which are the gradients of inputs. No network
/// has wider windows over groups of several channels.
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
    if (is(3, 2)) return sum_row_of<Pairs, 3, 2>;
    return sum_row_of_any<Pairs>;
}
SumRowFunction sum_row_function(const WindowPhase& phase, const SourcePlanes& s) {
    return Vector::pairs && s.channel_pairs ? sum_row_function_of<Vector::pairs>(phase, s.lanes_from)
                                            : sum_row_function_of<false>(phase, s.lanes_from);
}

/// Rows of the source that a row of y meets: the rows inside of the image, among `rows`.
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
               .as_source = p.channels - o >= block_lanes && p.y.type == p.source.data.type,
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
    // Rows of the source that come new for a row of the output, and their pixels for a pixel of it.
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
        // Rows of the first block; the next block's lie equally far behind.
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
            if (s.rows_ahead == 0) ahead.source = rows_ahead(s, image, next, next_rows, block);
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

}  // namespace
}  // namespace mantissa::on_cpu
