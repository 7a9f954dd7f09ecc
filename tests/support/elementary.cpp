#include "tests/support/elementary.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "mantissa/numerics/power_body.h"

namespace mantissa::inline v0::elementary {

namespace {

struct OneFloat {
    using Float = float;
    using Int = std::int32_t;
    using Mask = bool;

    static Float constant(float x) { return x; }
    static Int integer(int x) { return x; }
    static Float add(Float a, Float b) { return a + b; }
    static Float subtract(Float a, Float b) { return a - b; }
    static Float multiply(Float a, Float b) { return a * b; }
    static Float divide(Float a, Float b) { return a / b; }
    static Float negate(Float a) { return -a; }
    static Float fma(Float a, Float b, Float c) { return std::fma(a, b, c); }
    /// The minimum as in vector instructions: b if either is NaN.
    static Float minimum(Float a, Float b) { return a < b ? a : b; }
    static Int bits(Float a) { return std::bit_cast<Int>(a); }
    static Float from_bits(Int a) { return std::bit_cast<Float>(a); }
    static Int add_int(Int a, Int b) {
        return static_cast<Int>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
    }
    static Int subtract_int(Int a, Int b) {
        return static_cast<Int>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b));
    }
    static Int and_int(Int a, Int b) { return a & b; }
    static Int or_int(Int a, Int b) { return a | b; }
    template <int Count>
    static Int shift_left(Int a) {
        return static_cast<Int>(static_cast<std::uint32_t>(a) << Count);
    }
    template <int Count>
    static Int shift_right_signed(Int a) {
        return a >> Count;
    }
    static Float to_float(Int a) { return static_cast<Float>(a); }
    static Float floor(Float a) { return std::floor(a); }
    static Mask less(Float a, Float b) { return a < b; }
    static Mask is_nan(Float a) { return a != a; }
    static Float select(Mask mask, Float a, Float b) { return mask ? a : b; }
};

constexpr OneFloat one{};

}  // namespace

float exp(float x) { return exp(one, x); }
float log(float x) { return log(one, x); }
float tanh(float x) { return tanh(one, x); }
float erf(float x) { return erf(one, x); }
float sin(float x) { return sin(one, x); }
float cos(float x) { return cos(one, x); }
float log1p(float x) { return log1p(one, x); }
float expm1(float x) { return expm1(one, x); }
float pow(float x, float y) { return pow(one, x, y); }

}  // namespace mantissa::elementary
