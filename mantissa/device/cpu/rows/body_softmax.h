// Softmax over the last axis and its gradient. See body_loops.h for how this file is used.
//
// The exponentials are computed twice, once for their sum and once for the result: cheaper than storing them,
// since the result can then be written once, past the caches.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/numerics/elementary_body.h"

namespace mantissa::cpu {
namespace {

MANTISSA_LONG_LANES Float exp_of(Float x) { return elementary::exp(lanes, x); }

/// How many columns of the row count, from the left.
MANTISSA_LANES std::int64_t visible_columns(SoftmaxMask mask, std::int64_t row, std::int64_t columns,
                                            std::int64_t queries) {
    if (mask == SoftmaxMask::none) return columns;
    const std::int64_t seen = row % queries + columns - queries + 1;
    return seen < 0 ? 0 : seen;
}

template <class T>
MANTISSA_LANES void zero_from(T* row, std::int64_t first, std::int64_t last, bool stream) {
    // Up to the next whole vector plainly, so that streaming meets aligned memory.
    std::int64_t c = first;
    for (; c < last && c % 16 != 0; ++c) row[c] = T{};
    const Float zero = Lanes::constant(0.0f);
    for_lanes(last - c, [&](std::int64_t offset, auto extent)
                            MANTISSA_BODY { store(row + c + offset, zero, extent, stream); });
}

/// `ahead` is fetched meanwhile, `x` itself being nothing.
template <class X>
float greatest_of(const X* x, std::int64_t count, const X* ahead) {
    const Float lowest = Lanes::constant(-__builtin_inff());
    Float greatest[4] = {lowest, lowest, lowest, lowest};
    for_lanes_in_four(count, [&](std::int64_t c, int slot, auto extent) MANTISSA_BODY {
        __builtin_prefetch(ahead + c);
        const Float a = keep(load(x + c, extent), extent, -__builtin_inff());
        greatest[slot] = Lanes::maximum(greatest[slot], a);
    });
    return Lanes::greatest(
        Lanes::maximum(Lanes::maximum(greatest[0], greatest[1]), Lanes::maximum(greatest[2], greatest[3])));
}

/// 16 KB: half of the smallest L1.
constexpr std::int64_t scratch_columns = 4096;

/// Sum of exp(x - shift). Keeps the exponentials in `scratch` unless it is null. `ahead` is fetched
/// meanwhile.
template <class X>
float sum_of_exponentials(const X* x, std::int64_t count, float shift, const X* ahead, float* scratch) {
    FourSums sums = FourSums::zero();
    const Float shifts = Lanes::constant(shift);
    for_lanes_in_four(count, [&](std::int64_t c, int slot, auto extent) MANTISSA_BODY {
        __builtin_prefetch(ahead + c);
        const Float e = exp_of(Lanes::subtract(load(x + c, extent), shifts));
        sums.add(slot, keep(e, extent, 0.0f));
        if (scratch) store(scratch + c, e, extent, false);
    });
    return sums.total();
}

/// `next` is the row that follows.
template <class X, class Y>
void softmax_row(const X* x, const X* next, Y* y, std::int64_t count, bool stream) {
    if (count <= scratch_columns) {
        // The search for the maximum is too short to hide a fetch: the next row is fetched under the
        // exponentials.
        const float greatest = greatest_of(x, count, x);
        alignas(64) float scratch[scratch_columns];
        const Float inverse = Lanes::constant(1.0f / sum_of_exponentials(x, count, greatest, next, scratch));
        for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
            store(y + c, Lanes::multiply(load(scratch + c, extent), inverse), extent, stream);
        });
        return;
    }
    const float greatest = greatest_of(x, count, ahead_of(x));
    const Float shifts = Lanes::constant(greatest);
    const Float inverse = Lanes::constant(1.0f / sum_of_exponentials<X>(x, count, greatest, x, nullptr));
    for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const Float e = exp_of(Lanes::subtract(load(x + c, extent), shifts));
        store(y + c, Lanes::multiply(e, inverse), extent, stream);
    });
}

void softmax_rows(const Softmax& p, Range rows, Stores stores) {
    with_types(p.x.type, p.y.type, [&](auto* x_type, auto* y_type) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            const auto* x = as(p.x, x_type) + row * p.columns;
            auto* y = as(p.y, y_type) + row * p.columns;
            const std::int64_t seen = visible_columns(p.mask, row, p.columns, p.queries);
            const bool stream = may_stream(stores, y);
            if (seen > 0) softmax_row(x, x + p.columns, y, seen, stream);
            zero_from(y, seen, p.columns, stream);
        }
    });
    Lanes::fence();
}

template <class Y, class DX>
void softmax_grad_row(const Y* y, const Y* dy, DX* dx, std::int64_t count, bool stream) {
    FourSums sums = FourSums::zero();
    for_lanes_in_four(count, [&](std::int64_t c, int slot, auto extent) MANTISSA_BODY {
        sums.add(slot, Lanes::multiply(load_ahead(y + c, extent), load_ahead(dy + c, extent)));
    });
    const Float sum = Lanes::constant(sums.total());
    for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const Float rest = Lanes::subtract(load(dy + c, extent), sum);
        store(dx + c, Lanes::multiply(load(y + c, extent), rest), extent, stream);
    });
}

void softmax_grad_rows(const SoftmaxGrad& p, Range rows, Stores stores) {
    with_types(p.y.type, p.dx.type, [&](auto* y_type, auto* dx_type) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            const auto* y = as(p.y, y_type) + row * p.columns;
            const auto* dy = as(p.dy, y_type) + row * p.columns;
            auto* dx = as(p.dx, dx_type) + row * p.columns;
            const std::int64_t seen = visible_columns(p.mask, row, p.columns, p.queries);
            const bool stream = may_stream(stores, dx);
            softmax_grad_row(y, dy, dx, seen, stream);
            zero_from(dx, seen, p.columns, stream);
        }
    });
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::cpu
