// Cross-entropy over the last axis and its gradient. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/device/cpu/rows/body_softmax.h"
#include "mantissa/numerics/elementary_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

MANTISSA_LANES float one_exp(float x) {
    float lane[16];
    Lanes::store(lane, power_of_two(exponent_of(Lanes::constant(x), Lanes::constant(0.0f))));
    return x == x ? lane[0] : x;
}

MANTISSA_LANES float one_log(float x) {
    float lane[16];
    Lanes::store(lane, elementary::log(lanes, Lanes::constant(x)));
    return lane[0];
}

/// Logits that are looked at together.
constexpr std::int64_t loss_chunk = 1024;

/// How far above the shift a logit may lie: its exponential carries the rounding of a difference of as much,
/// and a row of them stays far from infinity.
constexpr float max_above_shift = 8;

struct Exponentials {
    float sum;       ///< of exp(x - shift), NaN if one of them is
    float greatest;  ///< of x
};

template <class X>
Exponentials exponentials_of(const X* x, std::int64_t count, float shift) {
    FourSums sums = FourSums::zero();
    FourSums exponents = FourSums::zero();  // they keep a NaN, which a power of two does not
    Float greatest = Lanes::constant(-__builtin_inff());
    const Float shifts = Lanes::constant(shift);
    for_lanes_in_four(count, [&](std::int64_t c, int slot, auto extent) MANTISSA_BODY {
        const Float logits = keep(load_ahead(x + c, extent), extent, -__builtin_inff());
        const Float exponent =
            Lanes::maximum(Lanes::constant(elementary::exp2_zero), exponent_of(logits, shifts));
        sums.add(slot, power_of_two(exponent));
        exponents.add(slot, exponent);
        greatest = Lanes::maximum(greatest, logits);
    });
    const float exponent = exponents.total();
    return {exponent == exponent ? sums.total() : exponent, Lanes::greatest(greatest)};
}

/// log(sum(exp(x))). Memory is read once: the maximum of the first chunk is subtracted. A later
/// maximum replaces it where it is so much larger that the exponentials have to be made again.
template <class X>
float log_sum_exp(const X* x, std::int64_t count) {
    float shift = -__builtin_inff();
    float sum = 0;
    for (std::int64_t c = 0; c < count; c += loss_chunk) {
        const std::int64_t length = count - c < loss_chunk ? count - c : loss_chunk;
        if (shift == -__builtin_inff()) shift = greatest_of(x + c, length, ahead_of(x + c));
        // While all are -infinity there is nothing to add; a NaN among them must still come through.
        const float finite_shift = shift == -__builtin_inff() ? 0.0f : shift;
        Exponentials here = exponentials_of(x + c, length, finite_shift);
        if (here.greatest > finite_shift + max_above_shift) {
            sum *= one_exp(finite_shift - here.greatest);
            shift = here.greatest;
            here = exponentials_of(x + c, length, shift);
        }
        sum += here.sum;
    }
    return shift == -__builtin_inff() ? shift + sum : shift + one_log(sum);
}

void cross_entropy_rows(const CrossEntropy& p, Range rows) {
    with_type(p.logits.type, [&](auto* type) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            const auto* x = as(p.logits, type) + row * p.stride;
            const float lse = log_sum_exp(x, p.classes);
            p.lse[row] = lse;
            p.loss[row] = 0;
            if (p.targets[row] < 0) continue;
            float target[16];
            Lanes::store(target, Lanes::load_part(x + p.targets[row], 1));
            p.loss[row] = lse - target[0];
        }
    });
}

template <class X>
void cross_entropy_grad_row(const CrossEntropyGrad& p, std::int64_t row, const X* x, X* dx, bool stream) {
    const Float lse = Lanes::constant(p.lse[row]);
    const std::int64_t target = p.targets[row];
    const Float scale = Lanes::constant(target < 0 ? 0.0f : p.scale);
    // exp, less one at the target: streamed memory cannot be corrected afterwards, so the vector that holds
    // the target is made by itself.
    const auto gradient = [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const Float exponent = exponent_of(load_ahead(x + c, extent), lse);
        Float e = Lanes::select(Lanes::is_nan(exponent), exponent, power_of_two(exponent));
        if (target >= c && target < c + 16) {
            float lane[16];
            Lanes::store(lane, e);
            lane[target - c] -= 1.0f;
            e = Lanes::load(lane);
        }
        return Lanes::multiply(e, scale);
    };
    store_seen(dx, p.classes, p.stride, stream, gradient);
}

void cross_entropy_grad_rows(const CrossEntropyGrad& p, Range rows, Stores stores) {
    with_type(p.logits.type, [&](auto* type) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            const auto* x = as(p.logits, type) + row * p.stride;
            auto* dx = as(p.dlogits, type) + row * p.stride;
            cross_entropy_grad_row(p, row, x, dx, may_stream(stores, dx));
        }
    });
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::on_cpu
