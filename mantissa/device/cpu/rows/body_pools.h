// Pools, their gradients, and relu's. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/device/cpu/rows/problems.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// A maximum so far, and which element it was. The first of equals stays, and the first NaN.
struct Largest {
    Float value, index;

    [[gnu::always_inline]] inline void meet(Float x, Float at) {
        const Lanes::Mask wins = Lanes::wins(x, value);
        value = Lanes::select(wins, x, value);
        index = Lanes::select(wins, at, index);
    }
};

/// One pixel of the output. `x` is the image. Elements of the window are counted as lanes, by additions.
template <class X>
void max_pool_pixel(const PoolShape& s, const PoolSpan& rows, const PoolSpan& columns, const X* x, X* y,
                    std::uint8_t* index, bool stream) {
    const std::int64_t C = s.channels;
    const std::int64_t before =
        (rows.first - rows.start) * s.window_columns + (columns.first - columns.start);
    const Float first = Lanes::constant(static_cast<float>(before)), one = Lanes::constant(1.0f);
    // The distance between the last element of one row and the first of the next.
    const Float left_out =
        Lanes::constant(static_cast<float>(s.window_columns - (columns.last - columns.first)));
    for_lanes(C, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const X* row = x + (rows.first * s.columns + columns.first) * C + c;
        Largest largest{load(row, extent), first};
        Float at = first;
        for (std::int64_t h = rows.first; h < rows.last; ++h) {
            const X* from = row;
            for (std::int64_t w = columns.first; w < columns.last; ++w) {
                // The first element of all meets itself, which changes nothing.
                largest.meet(load(from, extent), at);
                at = Lanes::add(at, one);
                from += C;
            }
            at = Lanes::add(at, left_out);
            row += s.columns * C;
        }
        store(y + c, largest.value, extent, stream);
        Lanes::store(index + c, largest.index, lanes_in(extent));
    });
}

void max_pool_rows(const MaxPool& p, Range range, Stores stores) {
    const PoolShape& s = p.shape;
    with_type(p.x.type, [&](auto* type) {
        for (std::int64_t row = range.first; row < range.last; ++row) {
            const auto* x = as(p.x, type) + row / s.output_rows * s.rows * s.columns * s.channels;
            for (std::int64_t q = 0; q < s.output_columns; ++q) {
                const std::int64_t output = (row * s.output_columns + q) * s.channels;
                auto* y = as(p.y, type) + output;
                max_pool_pixel(s, s.row_spans[row % s.output_rows], s.column_spans[q], x, y, p.index + output,
                               may_stream(stores, y));
            }
        }
    });
    Lanes::fence();
}

template <class X>
void average_pool_pixel(const PoolShape& s, const PoolSpan& rows, const PoolSpan& columns, const X* x, X* y,
                        bool stream) {
    const std::int64_t C = s.channels;
    const Float count = Lanes::constant(static_cast<float>(rows.count * columns.count));
    for_stored_lanes(y, C, stream, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        Float sum = Lanes::constant(0.0f);
        for (std::int64_t h = rows.first; h < rows.last; ++h)
            for (std::int64_t w = columns.first; w < columns.last; ++w)
                sum = Lanes::add(sum, load(x + (h * s.columns + w) * C + c, extent));
        return Lanes::divide(sum, count);
    });
}

void average_pool_rows(const AveragePool& p, Range range, Stores stores) {
    const PoolShape& s = p.shape;
    with_type(p.x.type, [&](auto* type) {
        for (std::int64_t row = range.first; row < range.last; ++row) {
            const auto* x = as(p.x, type) + row / s.output_rows * s.rows * s.columns * s.channels;
            for (std::int64_t q = 0; q < s.output_columns; ++q) {
                auto* y = as(p.y, type) + (row * s.output_columns + q) * s.channels;
                average_pool_pixel(s, s.row_spans[row % s.output_rows], s.column_spans[q], x, y,
                                   may_stream(stores, y));
            }
        }
    });
    Lanes::fence();
}

/// The windows that a pixel lies in, each with the element of it that the pixel is.
struct OwnWindows {
    /// A window has up to 256 elements, so that a pixel lies in as many windows at most.
    std::int64_t outputs[256];
    std::uint8_t elements[256];
    int count = 0;

    void find(const PoolShape& s, std::int64_t row, std::int64_t w) {
        const PoolOutputs rows = s.row_outputs[row % s.rows], columns = s.column_outputs[w];
        const std::int64_t image = row / s.rows * s.output_rows, h = row % s.rows;
        count = 0;
        for (std::int64_t p = rows.first; p < rows.last; ++p)
            for (std::int64_t q = columns.first; q < columns.last; ++q) {
                const std::int64_t element =
                    (h - s.row_spans[p].start) * s.window_columns + (w - s.column_spans[q].start);
                outputs[count] = ((image + p) * s.output_columns + q) * s.channels;
                elements[count++] = static_cast<std::uint8_t>(element);
            }
    }
};

void max_pool_grad_rows(const MaxPoolGrad& p, Range range, Stores stores) {
    const PoolShape& s = p.shape;
    OwnWindows own;
    with_type(p.dy.type, [&](auto* type) {
        const auto* dy = as(p.dy, type);
        const Float zero = Lanes::constant(0.0f);
        for (std::int64_t row = range.first; row < range.last; ++row)
            for (std::int64_t w = 0; w < s.columns; ++w) {
                own.find(s, row, w);
                auto* dx = as(p.dx, type) + (row * s.columns + w) * s.channels;
                for_stored_lanes(dx, s.channels, may_stream(stores, dx),
                                 [&](std::int64_t c, auto extent) MANTISSA_BODY {
                                     Float sum = zero;
                                     for (int i = 0; i < own.count; ++i) {
                                         const std::int64_t at = own.outputs[i] + c;
                                         const Lanes::Mask is_own =
                                             Lanes::are(p.index + at, lanes_in(extent), own.elements[i]);
                                         const Float d = load(dy + at, extent);
                                         sum = Lanes::add(sum, Lanes::select(is_own, d, zero));
                                     }
                                     return sum;
                                 });
            }
    });
    Lanes::fence();
}

/// One pixel of the image: the shares of all windows that it lies in, added in their order.
template <class DX>
void average_pool_grad_pixel(const PoolShape& s, std::int64_t row, std::int64_t w, const DX* dy, DX* dx,
                             bool stream) {
    const PoolOutputs rows = s.row_outputs[row % s.rows], columns = s.column_outputs[w];
    const std::int64_t image = row / s.rows * s.output_rows;
    for_stored_lanes(dx, s.channels, stream, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        Float sum = Lanes::constant(0.0f);
        for (std::int64_t p = rows.first; p < rows.last; ++p)
            for (std::int64_t q = columns.first; q < columns.last; ++q) {
                const std::int64_t output = ((image + p) * s.output_columns + q) * s.channels + c;
                const Float count =
                    Lanes::constant(static_cast<float>(s.row_spans[p].count * s.column_spans[q].count));
                sum = Lanes::add(sum, Lanes::divide(load(dy + output, extent), count));
            }
        return sum;
    });
}

void average_pool_grad_rows(const AveragePoolGrad& p, Range range, Stores stores) {
    const PoolShape& s = p.shape;
    with_type(p.dy.type, [&](auto* type) {
        for (std::int64_t row = range.first; row < range.last; ++row)
            for (std::int64_t w = 0; w < s.columns; ++w) {
                auto* dx = as(p.dx, type) + (row * s.columns + w) * s.channels;
                average_pool_grad_pixel(s, row, w, as(p.dy, type), dx, may_stream(stores, dx));
            }
    });
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::on_cpu
