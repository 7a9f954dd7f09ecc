// Pools, their gradients, and relu's. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/device/cpu/rows/image_problems.h"

namespace mantissa::inline v0::on_cpu {
namespace {

// Whole numbers below 256 as lanes and as bytes. Compilers make two instructions of each loop.
template <class Extent>
MANTISSA_LANES Float load_bytes(const std::uint8_t* from, Extent extent) {
    float widened[16] = {};
    for (int i = 0; i < lanes_in(extent); ++i) widened[i] = static_cast<float>(from[i]);
    return Lanes::load(widened);
}
template <class Extent>
MANTISSA_LANES void store_bytes(std::uint8_t* to, Float a, Extent extent) {
    float whole[16];
    Lanes::store(whole, a);
    for (int i = 0; i < lanes_in(extent); ++i)
        to[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(whole[i]));
}

/// A maximum so far, and which element it was.
struct Largest {
    Float value, index;

    /// The first of equals stays, and the first NaN.
    [[gnu::always_inline]] inline void meet(Float x, Float at) {
        const Lanes::Mask stays = Lanes::is_nan(value);
        const Float next = Lanes::select(stays, value, x), next_at = Lanes::select(stays, index, at);
        const Lanes::Mask larger = Lanes::less(value, next), nan = Lanes::is_nan(next);
        value = Lanes::select(larger, next, Lanes::select(nan, next, value));
        index = Lanes::select(larger, next_at, Lanes::select(nan, next_at, index));
    }
};

/// One pixel of the output. `x` is the image.
template <class X>
void max_pool_pixel(const PoolShape& s, const PoolSpan& rows, const PoolSpan& columns, const X* x, X* y,
                    std::uint8_t* index, bool stream) {
    const std::int64_t C = s.channels;
    const auto element = [&](std::int64_t h, std::int64_t w) MANTISSA_BODY {
        return Lanes::constant(static_cast<float>((h - rows.start) * s.window_columns + (w - columns.start)));
    };
    for_lanes(C, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const X* from = x + c;
        const auto at = [&](std::int64_t h, std::int64_t w)
                            MANTISSA_BODY { return load(from + (h * s.columns + w) * C, extent); };
        Largest largest{at(rows.first, columns.first), element(rows.first, columns.first)};
        for (std::int64_t h = rows.first; h < rows.last; ++h)
            for (std::int64_t w = columns.first + (h == rows.first ? 1 : 0); w < columns.last; ++w)
                largest.meet(at(h, w), element(h, w));
        store(y + c, largest.value, extent, stream);
        store_bytes(index + c, largest.index, extent);
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

/// One pixel of the image: what it gets of every window that it lies in, in their order.
/// share(output, row span, column span, channel, extent) is that of one, outputs counted from `output`.
template <class DX, class Share>
MANTISSA_LANES void gather_pixel(const PoolShape& s, std::int64_t row, std::int64_t w, DX* dx, bool stream,
                                 Share share) {
    const PoolOutputs rows = s.row_outputs[row % s.rows], columns = s.column_outputs[w];
    const std::int64_t image = row / s.rows * s.output_rows;
    for_stored_lanes(dx, s.channels, stream, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        Float sum = Lanes::constant(0.0f);
        for (std::int64_t p = rows.first; p < rows.last; ++p)
            for (std::int64_t q = columns.first; q < columns.last; ++q) {
                const std::int64_t output = ((image + p) * s.output_columns + q) * s.channels + c;
                sum = Lanes::add(sum, share(output, s.row_spans[p], s.column_spans[q], extent));
            }
        return sum;
    });
}

void max_pool_grad_rows(const MaxPoolGrad& p, Range range, Stores stores) {
    const PoolShape& s = p.shape;
    with_type(p.dy.type, [&](auto* type) {
        const auto* dy = as(p.dy, type);
        const Float zero = Lanes::constant(0.0f);
        for (std::int64_t row = range.first; row < range.last; ++row)
            for (std::int64_t w = 0; w < s.columns; ++w) {
                auto* dx = as(p.dx, type) + (row * s.columns + w) * s.channels;
                gather_pixel(s, row, w, dx, may_stream(stores, dx),
                             [&](std::int64_t output, const PoolSpan& rows, const PoolSpan& columns,
                                 auto extent) MANTISSA_BODY {
                                 const Float own = Lanes::constant(static_cast<float>(
                                     (row % s.rows - rows.start) * s.window_columns + (w - columns.start)));
                                 const Float index = load_bytes(p.index + output, extent);
                                 const Float d = load(dy + output, extent);
                                 return Lanes::select(Lanes::less(index, own), zero,
                                                      Lanes::select(Lanes::less(own, index), zero, d));
                             });
            }
    });
    Lanes::fence();
}

void average_pool_grad_rows(const AveragePoolGrad& p, Range range, Stores stores) {
    const PoolShape& s = p.shape;
    with_type(p.dy.type, [&](auto* type) {
        const auto* dy = as(p.dy, type);
        for (std::int64_t row = range.first; row < range.last; ++row)
            for (std::int64_t w = 0; w < s.columns; ++w) {
                auto* dx = as(p.dx, type) + (row * s.columns + w) * s.channels;
                gather_pixel(s, row, w, dx, may_stream(stores, dx),
                             [&](std::int64_t output, const PoolSpan& rows, const PoolSpan& columns,
                                 auto extent) MANTISSA_BODY {
                                 const Float count =
                                     Lanes::constant(static_cast<float>(rows.count * columns.count));
                                 return Lanes::divide(load(dy + output, extent), count);
                             });
            }
    });
    Lanes::fence();
}

void relu_grad_elements(const ReluGrad& p, Range range, Stores stores) {
    with_types(p.dy.type, p.y.type, [&](auto* dy_type, auto* y_type) {
        const auto* dy = as(p.dy, dy_type) + range.first;
        const auto* y = as(p.y, y_type) + range.first;
        auto* dx = as(p.dx, y_type) + range.first;
        const Float zero = Lanes::constant(0.0f);
        for_stored_lanes(dx, range.last - range.first, may_stream(stores, dx),
                         [&](std::int64_t c, auto extent) MANTISSA_BODY {
                             const Float d = load_ahead(dy + c, extent), above = load_ahead(y + c, extent);
                             const Float kept = Lanes::select(Lanes::less(zero, above), d, zero);
                             return Lanes::select(Lanes::is_nan(above), d, kept);
                         });
    });
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::on_cpu
