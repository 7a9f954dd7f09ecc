// Depthwise convolutions: each group is one channel of the source and one of the output. See
// rows/body_loops.h for how this file is used.
//
// Kernels read images as they lie. A load that widens 16 bits costs one instruction more than a plain one,
// and serves as many products as a window has columns. Planes in FP32, as for other groups, took up to twice
// as long: each pixel was stored and loaded once more for nine products. Pixels beside the image are left out
// by a comparison for each, which never changes from row to row and so is foreseen.
#pragma once

#include "mantissa/device/cpu/convolution/body_grouped.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// One channel, for the channels beyond the last whole vector where vectors have no masks.
struct OneChannel {
    using Float = float;
    static constexpr int width = 1;
    MANTISSA_LANES float zero() { return 0; }
    MANTISSA_LANES float load(const float* from) { return *from; }
    template <class T>
    MANTISSA_LANES float load_widened(const T* from, Vector::Extent) {
        return lane_of(from);
    }
    MANTISSA_LANES void store(float* to, float a) { *to = a; }
    MANTISSA_LANES float add(float a, float b) { return a + b; }
    MANTISSA_LANES float multiply_add(float a, float b, float c) { return a * b + c; }
};

/// Calls body(V(), first channel) for the vectors of a block.
template <class Body>
MANTISSA_LANES void for_vectors(int channels, Body body) {
    if constexpr (Vector::masks) {
        body(Vector{}, 0);
    } else {
        int first = 0;
        for (; first + Vector::width <= channels; first += Vector::width) body(Vector{}, first);
        for (; first < channels; ++first) body(OneChannel{}, first);
    }
}

/// The first block of a row of the source, and the taps that move over it or the sums of its products by a
/// row of dy.
template <class T>
struct ImageRow {
    const T* source;
    float* taps;
};

/// Pixels of each row, elements from one to the next, and channels of the block. Its elements lie so far
/// behind the first block's, and its taps behind the first block's taps.
struct Pixels {
    std::int64_t count, pitch;
    int channels;
    std::int64_t block_first, block_taps;
    Vector::Extent extent = Vector::extent(channels);
};

/// The places of a row that are pixels, counted from `first`. The compiler would keep the answer for each
/// place in memory, if it knew that all rows share the answers.
struct Inside {
    std::int64_t begin, end;
    MANTISSA_LANES Inside of(const Pixels& x, std::int64_t first) {
        Inside inside{-first, x.count - first};
        asm("" : "+r"(inside.begin), "+r"(inside.end));
        return inside;
    }
    [[gnu::always_inline]] inline bool has(std::int64_t place) const { return place >= begin && place < end; }
};

/// Sums of so many columns, whose first tap meets the pixel `first`. Each is added up tap by tap, row by row.
template <class V, int Taps, int Step, int Columns, class T>
MANTISSA_LANES void sum_vector(Several<ImageRow<T>> rows, const Pixels& x, const WindowPhase& phase,
                               std::int64_t first, int channel, Sums<Columns>& sums) {
    constexpr std::int64_t places = (Columns - 1) * Step + Taps;
    const Vector::Extent extent = x.extent;
    typename V::Float sum[Columns];
#pragma GCC unroll 16
    for (int q = 0; q < Columns; ++q) sum[q] = V::zero();
    for (const ImageRow<T>& row : rows) {
        typename V::Float tap[Taps];
#pragma GCC unroll 16
        for (int s = 0; s < Taps; ++s)
            tap[s] = V::load_once(row.taps + x.block_taps + (phase.packed_first + s) * block_lanes + channel);
        const Inside inside = Inside::of(x, first);
        std::int64_t at = x.block_first + first * x.pitch + channel;
#pragma GCC unroll 64
        for (std::int64_t place = 0; place < places; ++place, at += x.pitch) {
            if (!inside.has(place)) continue;
            const typename V::Float value = V::load_widened(row.source + at, extent);
#pragma GCC unroll 16
            for (std::int64_t s = place % Step; s < Taps; s += Step)
                if (place >= s && (place - s) / Step < Columns) {
                    typename V::Float& own = sum[(place - s) / Step];
                    own = V::multiply_add(value, tap[s], own);
                }
        }
    }
#pragma GCC unroll 16
    for (int q = 0; q < Columns; ++q) sums.set(q, channel, sum[q]);
}

/// As above, for windows of any size, step and distance.
template <class V, int Columns, class T>
MANTISSA_LANES void sum_vector_of_any(Several<ImageRow<T>> rows, const Pixels& x, const WindowPhase& phase,
                                      std::int64_t first, int channel, Sums<Columns>& sums) {
    const Vector::Extent extent = x.extent;
    typename V::Float sum[Columns];
#pragma GCC unroll 16
    for (int q = 0; q < Columns; ++q) sum[q] = V::zero();
    for (const ImageRow<T>& row : rows)
        for (std::int64_t s = 0; s < phase.taps; ++s) {
            const typename V::Float tap =
                V::load(row.taps + x.block_taps + (phase.packed_first + s) * block_lanes + channel);
#pragma GCC unroll 16
            for (int q = 0; q < Columns; ++q) {
                const std::int64_t place = first + q * phase.source_step + s * phase.distance;
                if (place >= 0 && place < x.count)
                    sum[q] = V::multiply_add(
                        V::load_widened(row.source + x.block_first + place * x.pitch + channel, extent), tap,
                        sum[q]);
            }
        }
#pragma GCC unroll 16
    for (int q = 0; q < Columns; ++q) sums.set(q, channel, sum[q]);
}

template <class T>
using SumImageRowFunction = void (*)(Several<ImageRow<T>>, const Pixels&, const WindowPhase&, Next&,
                                     const RowOfY&);

/// Windows of so many taps; 0: of any number.
template <class T, int Taps, int Step>
[[gnu::noinline]] void sum_image_row(Several<ImageRow<T>> rows, const Pixels& x, const WindowPhase& phase,
                                     Next& next, const RowOfY& y) {
    // Wide steps have more loads for a column, and gain nothing from more columns.
    constexpr int most = Taps > 0 && Step == 1 ? most_columns : Vector::columns;
    for_columns<most, T>(phase, next, y,
                         [&]<int Columns>(std::int64_t first, Sums<Columns>& sums) MANTISSA_BODY {
                             for_vectors(x.channels, [&]<class V>(V, int channel) MANTISSA_BODY {
                                 if constexpr (Taps > 0 && V::width > 1)
                                     sum_vector<V, Taps, Step>(rows, x, phase, first, channel, sums);
                                 else
                                     sum_vector_of_any<V>(rows, x, phase, first, channel, sums);
                             });
                         });
}

/// Windows that networks have, and the phases of windows of stride 2, for the gradients of inputs.
template <class T>
SumImageRowFunction<T> sum_image_row_function(const WindowPhase& phase) {
    const auto is = [&](std::int64_t taps, std::int64_t step) {
        return phase.taps == taps && phase.source_step == step && phase.distance == 1;
    };
    if (is(1, 1)) return sum_image_row<T, 1, 1>;
    if (is(2, 1)) return sum_image_row<T, 2, 1>;
    if (is(3, 1)) return sum_image_row<T, 3, 1>;
    if (is(5, 1)) return sum_image_row<T, 5, 1>;
    if (is(7, 1)) return sum_image_row<T, 7, 1>;
    if (is(3, 2)) return sum_image_row<T, 3, 2>;
    if (is(5, 2)) return sum_image_row<T, 5, 2>;
    return sum_image_row<T, 0, 1>;
}

/// The block's first element of a row of the source.
std::int64_t element_of(const SourcePlanes& s, std::int64_t image, std::int64_t row, std::int64_t block) {
    return (image * s.rows + row) * s.columns * s.channels + block * block_lanes;
}

/// Some blocks at a time, row by row, so that each pixel is a run of channels.
template <class T>
void depthwise_sums_of_blocks(const GroupedSums& p, const T* x, std::int64_t image, Range rows, Range blocks,
                              ImageRow<T>* met) {
    const SourcePlanes& s = p.source;
    const std::int64_t taps = p.filter_columns * block_lanes;
    // Rows of the source that come new for a row of the output, and their pixels for a pixel of it.
    const std::int64_t next_rows = (s.rows + p.rows - 1) / p.rows;
    const std::int64_t source_pixels = (next_rows * s.columns + p.columns - 1) / p.columns;
    SumImageRowFunction<T> functions[max_phases];
    for (std::int64_t first = 0; first < p.column_phases; ++first)
        functions[first] = sum_image_row_function<T>(p.column_phase[first]);
    std::int64_t next = 0;
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
        std::int64_t count = 0;
        for_rows_met(p, row, [&](std::int64_t at, std::int64_t r) {
            next = at + 1;
            met[count++] = {x + element_of(s, image, at, blocks.first),
                            p.packed + (blocks.first * p.filter_rows + r) * taps};
        });
        const std::int64_t next_first = element_of(s, image, next, blocks.first);
        const std::int64_t next_count = least(next_rows, s.rows - next) * s.columns;
        for (std::int64_t block = blocks.first; block < blocks.last; ++block) {
            RowOfY y = row_of_y(p, image * p.rows + row, block);
            const std::int64_t behind = (block - blocks.first) * block_lanes;
            const Pixels pixels{s.columns, s.channels, y.lanes, behind,
                                behind * p.filter_rows * p.filter_columns};
            Next ahead{.source = Ahead::of(s.data, next_first + behind, s.channels, next_count),
                       .other = Ahead::of({p.y.data, p.y.type}, y.at + p.columns * p.channels, p.channels,
                                          p.columns),
                       .source_pixels = source_pixels};
            for (std::int64_t first = 0; first < p.column_phases; ++first) {
                const WindowPhase& phase = p.column_phase[first];
                functions[first]({met, phase.taps == 0 ? 0 : count}, pixels, phase, ahead, y);
                y.at += p.channels;
            }
        }
    }
}

void depthwise_sums(const GroupedSums& p, std::int64_t image, Range rows, Range blocks, float* scratch) {
    with_type(p.source.data.type, [&]<class T>(T* type) {
        auto* const met = reinterpret_cast<ImageRow<T>*>(scratch);
        for (std::int64_t block = blocks.first; block < blocks.last; block += p.source.blocks)
            depthwise_sums_of_blocks(p, as(p.source.data, type), image, rows,
                                     {block, least(block + p.source.blocks, blocks.last)}, met);
    });
}

/// A block of a row of dy.
template <class T>
struct RowOfDy {
    const T* dy;
    std::int64_t pixels, pitch;
};

/// Adds the products of so many pixels of dy, which stay in registers, to the sums of so many rows.
template <class V, int Taps, int Step, int Rows, int Count, class T>
MANTISSA_LANES void add_products_of_pixels(const ImageRow<T>* rows, const Pixels& x, const T* dy,
                                           std::int64_t pitch, std::int64_t first, int channel,
                                           typename V::Float (&sum)[Rows][Taps]) {
    constexpr std::int64_t places = (Count - 1) * Step + Taps;
    const Vector::Extent extent = x.extent;
    typename V::Float d[Count];
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) d[i] = V::load_widened(dy + i * pitch, extent);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
        const Inside inside = Inside::of(x, first);
        std::int64_t at = x.block_first + first * x.pitch + channel;
#pragma GCC unroll 64
        for (std::int64_t place = 0; place < places; ++place, at += x.pitch) {
            if (!inside.has(place)) continue;
            const typename V::Float value = V::load_widened(rows[r].source + at, extent);
#pragma GCC unroll 16
            for (std::int64_t s = place % Step; s < Taps; s += Step)
                if (place >= s && (place - s) / Step < Count)
                    sum[r][s] = V::multiply_add(value, d[(place - s) / Step], sum[r][s]);
        }
    }
}

template <class V, int Taps, int Step, int Rows, class T>
MANTISSA_LANES void add_products_of_rows(const ImageRow<T>* rows, const Pixels& x, const RowOfDy<T>& row,
                                         std::int64_t before, int channel, Next& next) {
    constexpr int at_once = Vector::twice ? Vector::columns : 4;
    typename V::Float sum[Rows][Taps];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int s = 0; s < Taps; ++s) sum[r][s] = V::zero();
    std::int64_t q = 0;
    for (; q + at_once <= row.pixels; q += at_once) {
        Next::take(next, at_once);
        add_products_of_pixels<V, Taps, Step, Rows, at_once>(rows, x, row.dy + q * row.pitch + channel,
                                                             row.pitch, q * Step - before, channel, sum);
    }
    for (; q < row.pixels; ++q)
        add_products_of_pixels<V, Taps, Step, Rows, 1>(rows, x, row.dy + q * row.pitch + channel, row.pitch,
                                                       q * Step - before, channel, sum);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int s = 0; s < Taps; ++s) {
            float* const to = rows[r].taps + x.block_taps + s * block_lanes + channel;
            V::store(to, V::add(V::load(to), sum[r][s]));
        }
}

/// As above, for windows of any size, step and distance.
template <class V, class T>
MANTISSA_LANES void add_any_products(Several<ImageRow<T>> rows, const Pixels& x, const RowOfDy<T>& row,
                                     const ConvolutionAxis& across, int channel) {
    const Vector::Extent extent = x.extent;
    for (const ImageRow<T>& of : rows)
        for (std::int64_t s = 0; s < across.filter; ++s) {
            typename V::Float sum[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
            for (std::int64_t q = 0; q < row.pixels; q += 4)
#pragma GCC unroll 4
                for (std::int64_t i = 0; i < 4; ++i) {
                    const std::int64_t place = across.image_place(q + i, s);
                    if (q + i >= row.pixels || place < 0 || place >= x.count) continue;
                    sum[i] = V::multiply_add(
                        V::load_widened(of.source + x.block_first + place * x.pitch + channel, extent),
                        V::load_widened(row.dy + (q + i) * row.pitch + channel, extent), sum[i]);
                }
            float* const to = of.taps + x.block_taps + s * block_lanes + channel;
            V::store(to, V::add(V::load(to), V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3]))));
        }
}

template <class T>
using AddImageProductsFunction = void (*)(Several<ImageRow<T>>, const Pixels&, const RowOfDy<T>&,
                                          const ConvolutionAxis&, Next&);

/// About as many sums at a time as multiply-adds are in flight.
template <class T, int Taps, int Step>
[[gnu::noinline]] void add_image_products(Several<ImageRow<T>> rows, const Pixels& x, const RowOfDy<T>& row,
                                          const ConvolutionAxis& across, Next& next) {
    constexpr int at_once = Taps == 3 ? 3 : Taps == 5 || Vector::twice ? 2 : 1;
    for_vectors(x.channels, [&]<class V>(V, int channel) MANTISSA_BODY {
        if constexpr (Taps > 0 && V::width > 1) {
            std::int64_t i = 0;
            for (; i + at_once <= rows.count; i += at_once)
                add_products_of_rows<V, Taps, Step, at_once>(rows.first + i, x, row, across.before, channel,
                                                             next);
            for (; i < rows.count; ++i)
                add_products_of_rows<V, Taps, Step, 1>(rows.first + i, x, row, across.before, channel, next);
        } else {
            add_any_products<V>(rows, x, row, across, channel);
        }
    });
}

template <class T>
AddImageProductsFunction<T> add_image_products_function(const ConvolutionAxis& across) {
    const auto is = [&](std::int64_t taps, std::int64_t step) {
        return across.filter == taps && across.stride == step && across.dilation == 1;
    };
    if (is(3, 1)) return add_image_products<T, 3, 1>;
    if (is(5, 1)) return add_image_products<T, 5, 1>;
    if (is(7, 1)) return add_image_products<T, 7, 1>;
    if (is(3, 2)) return add_image_products<T, 3, 2>;
    if (is(5, 2)) return add_image_products<T, 5, 2>;
    return add_image_products<T, 0, 1>;
}

/// Rows of one image, added to the sums of some blocks.
template <class T>
void depthwise_gradient_of_image(const GroupedFilterGradient& p, const T* x, const T* dy, std::int64_t image,
                                 Range rows, Range blocks, float* sums, ImageRow<T>* met) {
    const SourcePlanes& s = p.source;
    const AddImageProductsFunction<T> add = add_image_products_function<T>(p.horizontal);
    const std::int64_t taps = p.horizontal.filter * block_lanes;
    const std::int64_t source_pixels = (p.vertical.stride * s.columns + p.columns - 1) / p.columns;
    std::int64_t next = 0;
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
        std::int64_t count = 0;
        for (std::int64_t r = 0; r < p.vertical.filter; ++r) {
            const std::int64_t at = p.vertical.image_place(row, r);
            if (at < 0 || at >= s.rows) continue;
            next = at + 1;
            met[count++] = {x + element_of(s, image, at, blocks.first), sums + r * taps};
        }
        const std::int64_t next_first = element_of(s, image, next, blocks.first);
        const std::int64_t next_count = least(p.vertical.stride, s.rows - next) * s.columns;
        for (std::int64_t block = blocks.first; block < blocks.last; ++block) {
            const std::int64_t o = block * block_lanes, behind = (block - blocks.first) * block_lanes;
            const std::int64_t at = (image * p.rows + row) * p.columns * p.channels + o;
            const Pixels pixels{s.columns, s.channels, static_cast<int>(least(block_lanes, p.channels - o)),
                                behind, behind * p.vertical.filter * p.horizontal.filter};
            Next ahead{.source = Ahead::of(s.data, next_first + behind, s.channels, next_count),
                       .other = Ahead::of(p.dy, at + p.columns * p.channels, p.channels, p.columns),
                       .source_pixels = source_pixels};
            add({met, count}, pixels, {dy + at, p.columns, p.channels}, p.horizontal, ahead);
        }
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
