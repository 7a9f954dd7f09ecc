// The gradient of layer norm. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// dx = rstd (g - mean(g) - n mean(g n)), g = dy gamma, n = (x - mean) rstd; dgamma += dy n, dbeta += dy.
/// `Rows` rows at once, which share the loads and stores of dgamma and dbeta.
template <int Rows, class X, class DY>
void layer_norm_grad_of(const LayerNormGrad& p, std::int64_t row, const X* all_x, const DY* all_dy,
                        Stores stores, float* dgamma, float* dbeta) {
    const std::int64_t C = p.channels;
    const X* x = all_x + row * C;
    const DY* dy = all_dy + row * C;
    X* dx = as(p.dx, x) + row * C;
    Float mean[Rows], rstd[Rows];
    FourSums sum_g[Rows], sum_gn[Rows];
    for (int r = 0; r < Rows; ++r) {
        mean[r] = Lanes::constant(p.mean[row + r]);
        rstd[r] = Lanes::constant(p.rstd[row + r]);
        sum_g[r] = sum_gn[r] = FourSums::zero();
    }
    const auto normal_of = [&](int r, std::int64_t c, auto extent) MANTISSA_BODY {
        return Lanes::multiply(Lanes::subtract(load(x + r * C + c, extent), mean[r]), rstd[r]);
    };
    for_lanes_in_four(C, [&](std::int64_t c, int slot, auto extent) MANTISSA_BODY {
        const Float gamma = load(p.gamma + c, extent);
        Float dgammas = load(dgamma + c, extent);
        Float dbetas = load(dbeta + c, extent);
        for (int r = 0; r < Rows; ++r) {
            fetch(x + (Rows + r) * C + c);
            const Float d = load(dy + r * C + c, extent);
            const Float normal = normal_of(r, c, extent);
            const Float g = Lanes::multiply(d, gamma);
            sum_g[r].add(slot, g);
            sum_gn[r].add(slot, keep(Lanes::multiply(g, normal), extent, 0.0f));
            dgammas = Lanes::add(dgammas, Lanes::multiply(d, normal));
            dbetas = Lanes::add(dbetas, d);
        }
        store(dgamma + c, dgammas, extent, false);
        store(dbeta + c, dbetas, extent, false);
    });
    for (int r = 0; r < Rows; ++r) {
        const Float mean_g = Lanes::constant(sum_g[r].total() / static_cast<float>(C));
        const Float mean_gn = Lanes::constant(sum_gn[r].total() / static_cast<float>(C));
        const bool stream = may_stream(stores, dx + r * C);
        for_stored_lanes(dx + r * C, C, stream, [&](std::int64_t c, auto extent) MANTISSA_BODY {
            fetch(dy + (Rows + r) * C + c);
            const Float normal = normal_of(r, c, extent);
            const Float g = Lanes::multiply(load(dy + r * C + c, extent), load(p.gamma + c, extent));
            const Float rest = Lanes::subtract(Lanes::subtract(g, mean_g), Lanes::multiply(normal, mean_gn));
            return Lanes::multiply(rest, rstd[r]);
        });
    }
}

void layer_norm_grad_rows(const LayerNormGrad& p, Range rows, Stores stores, float* dgamma, float* dbeta) {
    __builtin_memset(dgamma, 0, static_cast<std::size_t>(p.channels) * sizeof(float));
    __builtin_memset(dbeta, 0, static_cast<std::size_t>(p.channels) * sizeof(float));
    with_types(p.x.type, p.dy.type, [&](auto* x_type, auto* dy_type) {
        const auto* x = as(p.x, x_type);
        const auto* dy = as(p.dy, dy_type);
        std::int64_t row = rows.first;
        for (; row + 2 <= rows.last; row += 2) layer_norm_grad_of<2>(p, row, x, dy, stores, dgamma, dbeta);
        if (row < rows.last) layer_norm_grad_of<1>(p, row, x, dy, stores, dgamma, dbeta);
    });
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::on_cpu
