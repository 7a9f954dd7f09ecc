// The functions of the fused linear cross-entropy over the lanes of the row kernels. A level's source
// includes its lanes first, and defines before this file, for its own lanes:
//     any(mask)              whether a lane is set
//     power_of_two(y)        2^y for y <= 127: 0, or next to nothing, where that is too small; NaN stays
// and, where it rounds two vectors to BF16 at a time, store_two and stream_two for that.
// In an anonymous namespace, so that each level keeps its own copy.
#pragma once

#include "mantissa/device/cpu/loss/kernel_table.h"
#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/numerics/exp2_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

constexpr float ln_of_2 = 0x1.62e430p-1f;

/// Below every base that is set: nothing is summed yet.
constexpr float no_base = -1e30f;

/// For a logit of some 7e8 the base is a multiple of 64; beyond, y may be anything.
constexpr float largest_base = 0x1p30f;

/// The largest y is about 2^headroom where a base is set, and stays below 2^limit until it is set again. BF16
/// and FP32 hold any such y and 2^-126 of it; a group's sum stays finite. FP16 ends at 2^16 and 2^-24.
template <class X>
constexpr float limit = 64;
template <>
constexpr float limit<FP16> = 15;
template <class X>
constexpr float headroom = 0;
template <>
constexpr float headroom<FP16> = 8;

/// Thirty-two neighbours.
template <class T>
MANTISSA_LANES void store_two(T* to, Float first, Float second) {
    Lanes::store(to, first);
    Lanes::store(to + 16, second);
}
/// Past the caches; `to` begins a line.
template <class T>
MANTISSA_LANES void stream_two(T* to, Float first, Float second) {
    store(to, first, Whole{}, true);
    store(to + 16, second, Whole{}, true);
}

/// 2^y of a whole number: exactly, or 2^-126 where the power is smaller.
MANTISSA_LONG_LANES Float whole_power_of_two(Float y) {
    return elementary::exp2_inside(lanes, Lanes::maximum(Lanes::constant(elementary::exp2_least), y));
}

/// A block's classes without padding, for sixteen tokens (or fewer) from `column` on.
template <class X>
struct Strip {
    const Exponentials& p;
    const LogitBlock& b;
    std::int64_t count;   ///< classes
    std::int64_t column;  ///< of the block
    X* y;                 ///< of the block's first class and column; null: not wanted

    std::int64_t at() const { return b.group * p.stride + b.column + column; }
    const float* x(std::int64_t i) const { return b.logits + i * b.leading + column; }
    /// Exponentials of class i of the group.
    X* of_group(std::int64_t i) const { return y + (b.group_begin - b.row + i) * p.stride + column; }
    std::int64_t made() const { return b.row - b.group_begin; }
};

/// Raises bases so that the largest logits so far fit: the group's numbers so far are made smaller, by powers
/// of two.
template <class X, class Extent>
[[gnu::noinline]] void raise_bases(const Strip<X>& strip, Float greatest, Lanes::Mask higher, Extent extent) {
    float *const bases = strip.p.bases + strip.at(), *const sums = strip.p.sums + strip.at();
    const Float before = load(bases, extent), shift = Lanes::constant(elementary::rounding_shift);
    const Float rounded =
        Lanes::subtract(Lanes::add(Lanes::multiply(greatest, Lanes::constant(log2_of_e)), shift), shift);
    const Float base = Lanes::select(higher, Lanes::subtract(rounded, Lanes::constant(headroom<X>)), before);
    const Float factor =
        Lanes::select(higher, whole_power_of_two(Lanes::subtract(before, base)), Lanes::constant(1.0f));
    store(bases, base, extent, false);
    store(sums, Lanes::multiply(load(sums, extent), factor), extent, false);
    for (std::int64_t i = 0; strip.y && i < strip.made(); ++i) {
        X* const y = strip.of_group(i);
        store(y, Lanes::multiply(load(y, extent), factor), extent, false);
    }
}

/// Chooses bases that fit all of the strip's logits, before exponentials are made.
template <class X, class Extent>
MANTISSA_LANES void prepare_strip(const Strip<X>& strip, Extent extent) {
    float *const bases = strip.p.bases + strip.at(), *const sums = strip.p.sums + strip.at();
    if (strip.made() == 0) {
        store(bases, Lanes::constant(no_base), extent, false);
        store(sums, Lanes::constant(0.0f), extent, false);
    }
    Float greatest = Lanes::constant(-__builtin_inff());
    for (std::int64_t i = 0; i < strip.count; ++i)
        greatest = Lanes::maximum(load(strip.x(i), extent), greatest);
    const Float fits =
        Lanes::multiply(Lanes::add(load(bases, extent), Lanes::constant(limit<X>)), Lanes::constant(ln_of_2));
    const Lanes::Mask higher = Lanes::less(fits, greatest);
    if (any(higher)) raise_bases(strip, greatest, higher, extent);
}

template <class X, class Extent>
MANTISSA_LANES void make_strip(const Strip<X>& strip, Extent extent) {
    const Float factor = Lanes::constant(log2_of_e);
    const Float less_base = Lanes::negate(load(strip.p.bases + strip.at(), extent));
    Float sum = load(strip.p.sums + strip.at(), extent);
    for (std::int64_t i = 0; i < strip.b.rows; ++i) {
        Float e = Lanes::constant(0.0f);
        if (i < strip.count) {
            e = power_of_two(Lanes::fma(load(strip.x(i), extent), factor, less_base));
            sum = Lanes::add(sum, e);
        }
        if (strip.y) store(strip.y + i * strip.p.stride + strip.column, e, extent, false);
    }
    store(strip.p.sums + strip.at(), sum, extent, false);
}

/// Two strips of sixteen tokens, whose classes all count: a line of BF16 at a time.
template <class X>
MANTISSA_LANES void make_two_strips(const Strip<X>& strip, bool stream) {
    float* const sums = strip.p.sums + strip.at();
    const float* const bases = strip.p.bases + strip.at();
    const Float factor = Lanes::constant(log2_of_e);
    const Float left = Lanes::negate(Lanes::load(bases)), right = Lanes::negate(Lanes::load(bases + 16));
    Float left_sum = Lanes::load(sums), right_sum = Lanes::load(sums + 16);
    for (std::int64_t i = 0; i < strip.b.rows; ++i) {
        const float* const x = strip.x(i);
        const Float first = power_of_two(Lanes::fma(Lanes::load(x), factor, left));
        const Float second = power_of_two(Lanes::fma(Lanes::load(x + 16), factor, right));
        left_sum = Lanes::add(left_sum, first);
        right_sum = Lanes::add(right_sum, second);
        X* const y = strip.y + i * strip.p.stride + strip.column;
        if (stream)
            stream_two(y, first, second);
        else
            store_two(y, first, second);
    }
    Lanes::store(sums, left_sum);
    Lanes::store(sums + 16, right_sum);
}

template <class X>
void exponentials_of_block(const Exponentials& p, const LogitBlock& b, X* y) {
    const std::int64_t classes = p.classes - b.row;
    Strip<X> strip{p, b, classes < 0 ? 0 : classes < b.rows ? classes : b.rows, 0, nullptr};
    if (y) strip.y = y + b.row * p.stride + b.column;
    for_lanes(b.columns, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        strip.column = c;
        prepare_strip(strip, extent);
    });
    std::int64_t c = 0;
    for (; y && strip.count == b.rows && c + 32 <= b.columns; c += 32) {
        strip.column = c;
        make_two_strips(strip, p.streaming && b.column % 32 == 0);
    }
    for_lanes(b.columns - c, [&](std::int64_t rest, auto extent) MANTISSA_BODY {
        strip.column = c + rest;
        make_strip(strip, extent);
    });
}

void exponentials(const Exponentials& p, const LogitBlock& block) {
    with_type(p.y.type, [&](auto* type) { exponentials_of_block(p, block, as(p.y, type)); });
}

/// The value of a base whose last bits are powers of two that `limit` does not cover: nothing.
MANTISSA_LANES Float not_a_number_beyond(float most, Float base, Float total) {
    const Float nan = Lanes::constant(__builtin_nanf(""));
    total = Lanes::select(Lanes::less(Lanes::constant(most), base), nan, total);
    return Lanes::select(Lanes::less(base, Lanes::constant(-most)), nan, total);
}

void token_totals(const TokenTotals& p, Range tokens) {
    for_lanes(tokens.last - tokens.first, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const std::int64_t first = tokens.first + c;
        Float base = load(p.bases + first, extent);
        for (std::int64_t group = 1; group < p.groups; ++group)
            base = Lanes::maximum(load(p.bases + group * p.stride + first, extent), base);
        Float total = Lanes::constant(0.0f);
        for (std::int64_t group = 0; group < p.groups; ++group) {
            const std::int64_t at = group * p.stride + first;
            const Float power = whole_power_of_two(Lanes::subtract(load(p.bases + at, extent), base));
            total = Lanes::fma(load(p.sums + at, extent), power, total);
        }
        total = not_a_number_beyond(largest_base, base, total);
        const Float factor = Lanes::divide(Lanes::constant(p.scale), total);
        for (std::int64_t group = 0; group < p.groups; ++group) {
            float* const of_group = p.bases + group * p.stride + first;
            const Float power = whole_power_of_two(Lanes::subtract(load(of_group, extent), base));
            store(of_group, Lanes::multiply(factor, power), extent, false);
        }
        store(p.totals + first, total, extent, false);
        store(p.total_bases + first, base, extent, false);
    });
}

template <class X>
void gradients_of_rows(const LogitGradients& p, const X* y, X* to) {
    for (std::int64_t row = 0; row < p.rows; ++row, y += p.y_leading, to += p.to_leading) {
        const auto gradient = [&](std::int64_t c, auto extent) MANTISSA_BODY {
            return Lanes::multiply(load(y + c, extent), load(p.factors + c, extent));
        };
        std::int64_t c = 0;
        for (; c + 32 <= p.columns; c += 32)
            store_two(to + c, gradient(c, Whole{}), gradient(c + 16, Whole{}));
        for_lanes(p.columns - c, [&](std::int64_t rest, auto extent) MANTISSA_BODY {
            store(to + c + rest, gradient(c + rest, extent), extent, false);
        });
    }
}

void logit_gradients(const LogitGradients& p) {
    with_type(p.type, [&](auto* type) {
        gradients_of_rows(p, as(ConstView{p.y, p.type}, type), as(View{p.to, p.type}, type));
    });
}

}  // namespace
}  // namespace mantissa::on_cpu
