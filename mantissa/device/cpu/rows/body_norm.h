// Layer norm and its gradient. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::cpu {
namespace {

template <class X, class Y>
void layer_norm_row(const LayerNorm& p, std::int64_t row, const X* x, Y* y, bool stream) {
    const std::int64_t C = p.channels;
    const auto count = static_cast<float>(C);
    FourSums sums = FourSums::zero();
    for_lanes_in_four(
        C, [&](std::int64_t c, int slot, auto extent) MANTISSA_BODY { sums.add(slot, load(x + c, extent)); });
    const float mean = sums.total() / count;
    const Float means = Lanes::constant(mean);

    FourSums squares = FourSums::zero();
    for_lanes_in_four(C, [&](std::int64_t c, int slot, auto extent) MANTISSA_BODY {
        const Float centred = keep(Lanes::subtract(load(x + c, extent), means), extent, 0.0f);
        squares.add(slot, Lanes::multiply(centred, centred));
    });
    const float rstd = 1.0f / __builtin_sqrtf(squares.total() / count + p.eps);
    const Float rstds = Lanes::constant(rstd);

    for_stored_lanes(y, C, stream, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        fetch(x + C + c);
        const Float normal = Lanes::multiply(Lanes::subtract(load(x + c, extent), means), rstds);
        const Float scaled = Lanes::multiply(normal, load(p.gamma + c, extent));
        return Lanes::add(scaled, load(p.beta + c, extent));
    });
    p.mean[row] = mean;
    p.rstd[row] = rstd;
}

void layer_norm_rows(const LayerNorm& p, Range rows, Stores stores) {
    with_types(p.x.type, p.y.type, [&](auto* x_type, auto* y_type) {
        const auto* x = as(p.x, x_type);
        auto* y = as(p.y, y_type);
        for (std::int64_t row = rows.first; row < rows.last; ++row)
            layer_norm_row(p, row, x + row * p.channels, y + row * p.channels,
                           may_stream(stores, y + row * p.channels));
    });
    Lanes::fence();
}

/// dx = rstd (g - mean(g) - n mean(g n)), g = dy gamma, n = (x - mean) rstd; dgamma += dy n, dbeta += dy.
template <class X, class DY>
void layer_norm_grad_row(const LayerNormGrad& p, std::int64_t row, const X* x, const DY* dy, X* dx,
                         bool stream, float* dgamma, float* dbeta) {
    const std::int64_t C = p.channels;
    const Float mean = Lanes::constant(p.mean[row]);
    const Float rstd = Lanes::constant(p.rstd[row]);
    FourSums sum_g = FourSums::zero();
    FourSums sum_gn = FourSums::zero();
    for_lanes_in_four(C, [&](std::int64_t c, int slot, auto extent) MANTISSA_BODY {
        const Float d = load(dy + c, extent);
        const Float centred = Lanes::subtract(load(x + c, extent), mean);
        const Float normal = Lanes::multiply(centred, rstd);
        const Float g = Lanes::multiply(d, load(p.gamma + c, extent));
        sum_g.add(slot, g);
        sum_gn.add(slot, keep(Lanes::multiply(g, normal), extent, 0.0f));
        const Float scaled = Lanes::multiply(d, normal);
        store(dgamma + c, Lanes::add(load(dgamma + c, extent), scaled), extent, false);
        store(dbeta + c, Lanes::add(load(dbeta + c, extent), d), extent, false);
    });
    const Float mean_g = Lanes::constant(sum_g.total() / static_cast<float>(C));
    const Float mean_gn = Lanes::constant(sum_gn.total() / static_cast<float>(C));
    for_stored_lanes(dx, C, stream, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        fetch(x + C + c);
        fetch(dy + C + c);
        const Float normal = Lanes::multiply(Lanes::subtract(load(x + c, extent), mean), rstd);
        const Float g = Lanes::multiply(load(dy + c, extent), load(p.gamma + c, extent));
        const Float rest = Lanes::subtract(Lanes::subtract(g, mean_g), Lanes::multiply(normal, mean_gn));
        return Lanes::multiply(rest, rstd);
    });
}

void layer_norm_grad_rows(const LayerNormGrad& p, Range rows, Stores stores, float* dgamma, float* dbeta) {
    __builtin_memset(dgamma, 0, static_cast<std::size_t>(p.channels) * sizeof(float));
    __builtin_memset(dbeta, 0, static_cast<std::size_t>(p.channels) * sizeof(float));
    with_types(p.x.type, p.dy.type, [&](auto* x_type, auto* dy_type) {
        const auto* x = as(p.x, x_type);
        const auto* dy = as(p.dy, dy_type);
        auto* dx = as(p.dx, x_type);
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            const std::int64_t start = row * p.channels;
            layer_norm_grad_row(p, row, x + start, dy + start, dx + start, may_stream(stores, dx + start),
                                dgamma, dbeta);
        }
    });
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::cpu
