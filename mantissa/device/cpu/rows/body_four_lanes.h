// Four registers of lanes as one operand, for long chains of operations. A core looks ahead over some two
// hundred operations, which are no more than seven or eight GELUs, and most of them wait for the one before;
// four chains side by side keep it busy. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// The operations of numerics/elementary_body.h, as far as GELU needs them, with the bits of `Lanes`.
struct FourLanes {
    struct Float {
        Lanes::Float part[4];
    };
    struct Int {
        Lanes::Int part[4];
    };

    template <class F>
    MANTISSA_LANES Float floats(F part) {
        return {{part(0), part(1), part(2), part(3)}};
    }
    template <class F>
    MANTISSA_LANES Int integers(F part) {
        return {{part(0), part(1), part(2), part(3)}};
    }

#define MANTISSA_OF_EACH(...) [&](int i) MANTISSA_BODY { return Lanes::__VA_ARGS__; }
    MANTISSA_LANES Float constant(float x) { return floats(MANTISSA_OF_EACH(constant((void(i), x)))); }
    MANTISSA_LANES Int integer(int x) { return integers(MANTISSA_OF_EACH(integer((void(i), x)))); }
    MANTISSA_LANES Float add(const Float& a, const Float& b) {
        return floats(MANTISSA_OF_EACH(add(a.part[i], b.part[i])));
    }
    MANTISSA_LANES Float subtract(const Float& a, const Float& b) {
        return floats(MANTISSA_OF_EACH(subtract(a.part[i], b.part[i])));
    }
    MANTISSA_LANES Float multiply(const Float& a, const Float& b) {
        return floats(MANTISSA_OF_EACH(multiply(a.part[i], b.part[i])));
    }
    MANTISSA_LANES Float divide(const Float& a, const Float& b) {
        return floats(MANTISSA_OF_EACH(divide(a.part[i], b.part[i])));
    }
    MANTISSA_LANES Float fma(const Float& a, const Float& b, const Float& c) {
        return floats(MANTISSA_OF_EACH(fma(a.part[i], b.part[i], c.part[i])));
    }
    MANTISSA_LANES Float minimum(const Float& a, const Float& b) {
        return floats(MANTISSA_OF_EACH(minimum(a.part[i], b.part[i])));
    }
    MANTISSA_LANES Float maximum(const Float& a, const Float& b) {
        return floats(MANTISSA_OF_EACH(maximum(a.part[i], b.part[i])));
    }
    MANTISSA_LANES Int bits(const Float& a) { return integers(MANTISSA_OF_EACH(bits(a.part[i]))); }
    MANTISSA_LANES Float from_bits(const Int& a) { return floats(MANTISSA_OF_EACH(from_bits(a.part[i]))); }
    MANTISSA_LANES Int add_int(const Int& a, const Int& b) {
        return integers(MANTISSA_OF_EACH(add_int(a.part[i], b.part[i])));
    }
    MANTISSA_LANES Int and_int(const Int& a, const Int& b) {
        return integers(MANTISSA_OF_EACH(and_int(a.part[i], b.part[i])));
    }
    MANTISSA_LANES Int or_int(const Int& a, const Int& b) {
        return integers(MANTISSA_OF_EACH(or_int(a.part[i], b.part[i])));
    }
    template <int Count>
    MANTISSA_LANES Int shift_left(const Int& a) {
        return integers(MANTISSA_OF_EACH(template shift_left<Count>(a.part[i])));
    }
#undef MANTISSA_OF_EACH
};
constexpr FourLanes four_lanes{};

/// Sixty-four elements at the first touch of their memory.
template <class T>
MANTISSA_LANES FourLanes::Float load_four_ahead(const T* from) {
    return FourLanes::floats([&](int i) MANTISSA_BODY { return load_ahead(from + 16 * i, Whole{}); });
}
/// Sixty-four results of 16 bits.
template <class T>
MANTISSA_LANES void store_four_results(T* to, const FourLanes::Float& a, bool stream) {
    store_results(to, a.part[0], a.part[1], stream);
    store_results(to + 32, a.part[2], a.part[3], stream);
}

}  // namespace
}  // namespace mantissa::on_cpu
