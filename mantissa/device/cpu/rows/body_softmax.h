// Softmax of a row, for attention over kept keys, whose rows are of any length. See body_loops.h for how this
// file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/numerics/elementary_body.h"
#include "mantissa/numerics/exp2_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// e^(x - shift) is 2 to this.
MANTISSA_LANES Float exponent_of(Float x, Float shift) {
    return Lanes::multiply(Lanes::subtract(x, shift), Lanes::constant(elementary::log2_e));
}

/// NaN gives a number of no meaning.
MANTISSA_LONG_LANES Float power_of_two(Float exponent) { return elementary::exp2_below(lanes, exponent); }

/// Zeros from `first` on.
template <class T>
MANTISSA_LANES void zero_from(T* row, std::int64_t first, std::int64_t last, bool stream) {
    const Float zero = Lanes::constant(0.0f);
    for_stored_lanes(row + first, last - first, stream,
                     [&](std::int64_t, auto) MANTISSA_BODY { return zero; });
}

/// y[c] = value(c, extent) for the `seen` first columns and zero for the others. The vector in which they
/// meet is put together before it is stored: a line stored in parts is first fetched.
template <class Y, class Value>
MANTISSA_LANES void store_seen(Y* y, std::int64_t seen, std::int64_t columns, bool stream, Value value) {
    constexpr std::int64_t line = 64 / sizeof(Y);
    const std::int64_t whole = seen / line * line;
    const std::int64_t next_line = whole + line < columns ? whole + line : columns;
    for_stored_lanes(y, whole, stream, value);
    for_stored_lanes(y + whole, next_line - whole, stream, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const std::int64_t left = seen - whole - c;
        if (left <= 0) return Lanes::constant(0.0f);
        const Part part = {static_cast<int>(left < 16 ? left : 16)};
        return left < lanes_in(extent) ? keep(value(whole + c, part), part, 0.0f) : value(whole + c, extent);
    });
    zero_from(y, next_line, columns, stream);
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

/// exp(x - shift) of each element, in place. Returns their sum, NaN if one of them is.
MANTISSA_LONG_LANES float make_exponentials(float* x, std::int64_t count, float shift) {
    FourSums sums = FourSums::zero();
    // A power of two does not keep a NaN, the exponents do; the adder has the time.
    FourSums exponents = FourSums::zero();
    const Float shifts = Lanes::constant(shift);
    for_lanes_in_four(count, [&](std::int64_t c, int slot, auto extent) MANTISSA_BODY {
        const Float exponent =
            Lanes::maximum(Lanes::constant(elementary::exp2_zero), exponent_of(load(x + c, extent), shifts));
        const Float e = power_of_two(exponent);
        sums.add(slot, keep(e, extent, 0.0f));
        exponents.add(slot, exponent);
        store(x + c, e, extent, false);
    });
    const float exponent = exponents.total();
    return exponent == exponent ? sums.total() : exponent;
}

void softmax_row(float* x, std::int64_t count) {
    const float greatest = greatest_of(x, count, x);
    const Float inverse = Lanes::constant(1.0f / make_exponentials(x, count, greatest));
    for_stored_lanes(x, count, false, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        return Lanes::multiply(load(x + c, extent), inverse);
    });
}

/// limit tanh(x / limit), in place.
void cap_elements(float* x, std::int64_t count, float limit) {
    const Float factor = Lanes::constant(1 / limit), greatest = Lanes::constant(limit);
    for_stored_lanes(x, count, false, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        return Lanes::multiply(elementary::tanh(lanes, Lanes::multiply(load(x + c, extent), factor)),
                               greatest);
    });
}

}  // namespace
}  // namespace mantissa::on_cpu
