// AdamW, SGD, sums of squares and sums over columns. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct AdamWConstants {
    Float beta1, rest1, beta2, rest2, eps, decay, step, root_correction2, grad_scale;

    explicit AdamWConstants(const AdamWStep& s)
        : beta1(Lanes::constant(s.beta1)),
          rest1(Lanes::constant(1.0f - s.beta1)),
          beta2(Lanes::constant(s.beta2)),
          rest2(Lanes::constant(1.0f - s.beta2)),
          eps(Lanes::constant(s.eps)),
          decay(Lanes::constant(1.0f - s.learning_rate * s.weight_decay)),
          step(Lanes::constant(s.learning_rate / s.bias_correction1)),
          root_correction2(Lanes::constant(__builtin_sqrtf(s.bias_correction2))),
          grad_scale(Lanes::constant(s.grad_scale)) {}
};

template <class G, class C>
void adamw_range(const AdamW& p, const G* gradient, C* copy, Range range) {
    const AdamWConstants k(p.step);
    const bool stream_copy = copy && may_stream(Stores::streaming, copy + range.first);
    for_lanes(range.last - range.first, [&](std::int64_t offset, auto extent) MANTISSA_BODY {
        const std::int64_t c = range.first + offset;
        const Float g = Lanes::multiply(load_ahead(gradient + c, extent), k.grad_scale);
        const Float m = Lanes::add(Lanes::multiply(load_ahead(p.moment1_in + c, extent), k.beta1),
                                   Lanes::multiply(g, k.rest1));
        const Float v = Lanes::add(Lanes::multiply(load_ahead(p.moment2_in + c, extent), k.beta2),
                                   Lanes::multiply(Lanes::multiply(g, g), k.rest2));
        const Float root = Lanes::divide(Lanes::square_root(v), k.root_correction2);
        const Float change = Lanes::divide(Lanes::multiply(m, k.step), Lanes::add(root, k.eps));
        const Float decayed = Lanes::multiply(load_ahead(p.parameter_in + c, extent), k.decay);
        const Float parameter = Lanes::subtract(decayed, change);
        // Plain stores: what was just read is in the cache, and to stream it costs 1.75 times as much.
        store(p.moment1 + c, m, extent, false);
        store(p.moment2 + c, v, extent, false);
        store(p.parameter + c, parameter, extent, false);
        if (copy) store(copy + c, parameter, extent, stream_copy);
    });
}

void adamw_elements(const AdamW& p, Range range) {
    with_types(p.gradient.type, p.copy.type, [&](auto* gradient, auto* copy) {
        adamw_range(p, as(p.gradient, gradient), as(p.copy, copy), range);
    });
    Lanes::fence();
}

struct SgdConstants {
    Float rate, decay, momentum, share, grad_scale;
    bool decays, nesterov, first;

    explicit SgdConstants(const SgdStep& s)
        : rate(Lanes::constant(s.learning_rate)),
          decay(Lanes::constant(s.weight_decay)),
          momentum(Lanes::constant(s.momentum)),
          share(Lanes::constant(s.share)),
          grad_scale(Lanes::constant(s.grad_scale)),
          decays(s.weight_decay > 0),
          nesterov(s.nesterov),
          first(s.first) {}
};

template <class G, class C>
void sgd_range(const Sgd& p, const G* gradient, C* copy, Range range) {
    const SgdConstants k(p.step);
    const float* const buffer_in = p.buffer_in;
    float* const buffer = p.buffer;
    const bool stream_copy = copy && may_stream(Stores::streaming, copy + range.first);
    for_lanes(range.last - range.first, [&](std::int64_t offset, auto extent) MANTISSA_BODY {
        const std::int64_t c = range.first + offset;
        const Float old = load_ahead(p.parameter_in + c, extent);
        Float g = Lanes::multiply(load_ahead(gradient + c, extent), k.grad_scale);
        if (k.decays) g = Lanes::add(g, Lanes::multiply(old, k.decay));
        if (buffer) {
            Float moved = g;
            if (!k.first)
                moved = Lanes::add(Lanes::multiply(load_ahead(buffer_in + c, extent), k.momentum),
                                   Lanes::multiply(g, k.share));
            store(buffer + c, moved, extent, false);
            g = k.nesterov ? Lanes::add(g, Lanes::multiply(moved, k.momentum)) : moved;
        }
        const Float parameter = Lanes::subtract(old, Lanes::multiply(g, k.rate));
        store(p.parameter + c, parameter, extent, false);  // plain, as AdamW's
        if (copy) store(copy + c, parameter, extent, stream_copy);
    });
}

void sgd_elements(const Sgd& p, Range range) {
    with_types(p.gradient.type, p.copy.type, [&](auto* gradient, auto* copy) {
        sgd_range(p, as(p.gradient, gradient), as(p.copy, copy), range);
    });
    Lanes::fence();
}

double squared_norm_elements(const SquaredNorm& p, Range range) {
    double total = 0;
    with_type(p.x.type, [&](auto* type) {
        const auto* x = as(p.x, type) + range.first;
        Lanes::Doubles even = Lanes::zero_doubles();
        Lanes::Doubles odd = Lanes::zero_doubles();
        std::int64_t c = 0;
        const std::int64_t count = range.last - range.first;
        for (; c + 32 <= count; c += 32) {
            even = Lanes::add_squares(even, load_ahead(x + c, Whole{}));
            odd = Lanes::add_squares(odd, load_ahead(x + c + 16, Whole{}));
        }
        for_lanes(count - c, [&](std::int64_t offset, auto extent) MANTISSA_BODY {
            even = Lanes::add_squares(even, load(x + c + offset, extent));
        });
        total = Lanes::sum(even) + Lanes::sum(odd);
    });
    return total;
}

/// Four rows a pass: the sums, in L1, are loaded and stored once for four loads of x. The next four rows are
/// fetched.
void column_sum_part(const ColumnSum& p, Range rows, Range columns, float* sum) {
    const std::int64_t count = columns.last - columns.first;
    __builtin_memset(sum, 0, static_cast<std::size_t>(count) * sizeof(float));
    with_type(p.x.type, [&](auto* type) {
        const auto* x = as(p.x, type) + columns.first;
        const std::int64_t C = p.channels;
        std::int64_t row = rows.first;
        const auto load_row = [&](const auto* from, auto extent) MANTISSA_BODY {
            fetch(from + 4 * C);
            return load(from, extent);
        };
        for (; row + 4 <= rows.last; row += 4) {
            const auto* from = x + row * C;
            for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
                const auto* at = from + c;
                const Float first = Lanes::add(load_row(at, extent), load_row(at + C, extent));
                const Float second = Lanes::add(load_row(at + 2 * C, extent), load_row(at + 3 * C, extent));
                store(sum + c, Lanes::add(load(sum + c, extent), Lanes::add(first, second)), extent, false);
            });
        }
        for (; row < rows.last; ++row)
            for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
                const Float a = load(x + row * C + c, extent);
                store(sum + c, Lanes::add(load(sum + c, extent), a), extent, false);
            });
    });
}

}  // namespace
}  // namespace mantissa::on_cpu
