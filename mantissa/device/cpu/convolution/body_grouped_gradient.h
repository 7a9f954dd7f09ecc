// Convolutions in groups of few channels: gradients of filters. See rows/body_loops.h for how this file is
// used.
#pragma once

#include "mantissa/device/cpu/convolution/body_depthwise.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// A row of a plane, and the sums of its products by a row of dy.
struct ProductRow {
    const float* source;
    float* sums;
    const std::int32_t* index;
};

/// Adds to the sums of so many rows. Pixels that are read at a time stay in registers meanwhile. Where they
/// are pairs, `pixels` may be odd: the last pair's second pixel is left out, for no window meets it.
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
    if (is(3, 2)) return add_products_of<Pairs, 3, 2>;
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
            if (s.rows_ahead == 0) ahead.source = rows_ahead(s, image, next, p.vertical.stride, block);
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
            const Range rows_of_image{row - first, last - first}, blocks_here{block, end};
            if (p.source.lanes_from == LaneSource::image)
                with_type(p.dy.type, [&]<class T>(T* type) {
                    depthwise_gradient_of_image(p, as(p.source.data, type), as(p.dy, type), image,
                                                rows_of_image, blocks_here, sums,
                                                reinterpret_cast<ImageRow<T>*>(scratch));
                });
            else
                filter_gradient_of_image(p, image, rows_of_image, blocks_here, sums, scratch);
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
