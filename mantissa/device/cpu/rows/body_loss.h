// Cross-entropy over the last axis and its gradient. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/device/cpu/rows/body_softmax.h"
#include "mantissa/numerics/elementary_body.h"

namespace mantissa::cpu {
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

/// 1,024 logits are 4 KB: a chunk is read from memory once and found in L1 by the second look.
constexpr std::int64_t loss_chunk = 1024;

/// log(sum(exp(x))), the running maximum and sum carried from chunk to chunk.
template <class X>
float log_sum_exp(const X* x, std::int64_t count) {
    float greatest = -__builtin_inff();
    float sum = 0;
    for (std::int64_t c = 0; c < count; c += loss_chunk) {
        const std::int64_t length = count - c < loss_chunk ? count - c : loss_chunk;
        const float here = greatest_of(x + c, length, x + c);
        if (here > greatest) {
            sum *= one_exp(greatest - here);  // exp(-infinity) = 0 at the first
            greatest = here;
        }
        // While all are -infinity there is nothing to add; a NaN among them must still come through.
        const float shift = greatest == -__builtin_inff() ? 0.0f : greatest;
        sum += sum_of_exponentials<X>(x + c, length, shift, x + c + loss_chunk, nullptr);
    }
    return greatest == -__builtin_inff() ? greatest + sum : greatest + one_log(sum);
}

void cross_entropy_rows(const CrossEntropy& p, Range rows) {
    with_type(p.logits.type, [&](auto* type) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            const auto* x = as(p.logits, type) + row * p.stride;
            const float lse = log_sum_exp(x, p.classes);
            float target[16];
            Lanes::store(target, Lanes::load_part(x + p.targets[row], 1));
            p.lse[row] = lse;
            p.loss[row] = lse - target[0];
        }
    });
}

template <class X>
void cross_entropy_grad_row(const CrossEntropyGrad& p, std::int64_t row, const X* x, X* dx, bool stream) {
    const Float lse = Lanes::constant(p.lse[row]);
    const Float scale = Lanes::constant(p.scale);
    const std::int64_t target = p.targets[row];
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
}  // namespace mantissa::cpu
