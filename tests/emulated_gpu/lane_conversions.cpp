// cvt: between integers, FP64, FP32 and the small formats, in every rounding that PTX has.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "tests/emulated_gpu/lane_functions.h"
#include "tests/emulated_gpu/small_formats.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

// Types as tags where they are no type of C++.
struct Half {
    std::uint16_t bits;
};
struct Brain {
    std::uint16_t bits;
};
template <class T>
constexpr bool is_small = std::is_same_v<T, Half> || std::is_same_v<T, Brain>;
template <class T>
constexpr bool is_float = std::is_floating_point_v<T> || is_small<T>;

template <class T>
double as_double(T x) {
    if constexpr (std::is_same_v<T, Half>)
        return half_to_float(x.bits);
    else if constexpr (std::is_same_v<T, Brain>)
        return bf16_to_float(x.bits);
    else
        return static_cast<double>(x);
}

/// The float beside `nearest` in the direction, unless that is where the value lies already.
float directed(double value, Rounding rounding) {
    const float nearest = static_cast<float>(value);
    if (rounding == Rounding::nearest || std::isnan(value) || std::isinf(value)) return nearest;
    return static_cast<float>(rounded(value, format_fp32, rounding));
}

double directed_to_double(std::uint64_t size, bool negative, Rounding rounding) {
    const double nearest = static_cast<double>(size);
    double out = nearest;
    // 2^64 itself does not fit the comparison below.
    const bool beyond = nearest >= 0x1p64 || static_cast<std::uint64_t>(nearest) > size;
    const bool below = !beyond && static_cast<std::uint64_t>(nearest) < size;
    const bool inwards = rounding == Rounding::zero || (rounding == Rounding::down) != negative;
    if (rounding != Rounding::nearest && beyond && inwards) out = std::nextafter(nearest, 0.0);
    if (rounding != Rounding::nearest && below && !inwards) out = std::nextafter(nearest, 0x1p65);
    return negative ? -out : out;
}

/// An integer of 64 bits as a float: in two steps, through a double that keeps what was cut off in its last
/// bit.
float integer_to_float(std::uint64_t size, bool negative, Rounding rounding) {
    double whole = static_cast<double>(size >> 11 << 11);
    if (size & 2047)
        whole = std::bit_cast<double>(std::bit_cast<std::uint64_t>(whole) | (size >> 53 ? 1 : 0));
    if (size >> 53 == 0) whole = static_cast<double>(size);
    return directed(negative ? -whole : whole, rounding);
}

struct Mode {
    Rounding rounding = Rounding::nearest;
    bool to_integer = false;  ///< a float to a whole float
    bool flush = false, saturate = false, relu = false;
};

template <class D>
D from_double(double x, const Mode& mode) {
    if (mode.saturate) x = x > 0 ? std::min(x, 1.0) : 0.0;  // a NaN is 0
    if (mode.relu && x <= 0) x = 0.0;
    if constexpr (std::is_same_v<D, Half>) {
        return {to_half(x, mode.rounding)};
    } else if constexpr (std::is_same_v<D, Brain>) {
        return {to_bf16_bits(x, mode.rounding)};
    } else if constexpr (std::is_same_v<D, float>) {
        if (std::isnan(x)) return std::bit_cast<float>(std::uint32_t{0x7fffffff});
        const float y = directed(x, mode.rounding);
        return mode.flush ? flush(y) : y;
    } else {
        return x;
    }
}

template <class D, class A>
D to_integer(A a, const Mode& mode) {
    const double whole = on_grid(as_double(a), 0, mode.rounding);
    if (std::isnan(whole)) return 0;
    // The limits as doubles: the upper one of 64 bits is beyond the type.
    const double low = static_cast<double>(std::numeric_limits<D>::min());
    const double high = std::ldexp(1.0, std::numeric_limits<D>::digits);
    if (whole < low) return std::numeric_limits<D>::min();
    if (whole >= high) return std::numeric_limits<D>::max();
    return static_cast<D>(whole);
}

template <class D, class A>
D clamped(A a) {
    if (std::cmp_less(a, std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
    if (std::cmp_greater(a, std::numeric_limits<D>::max())) return std::numeric_limits<D>::max();
    return static_cast<D>(a);
}

template <class D, class A>
D convert(A a, const Mode& mode) {
    if constexpr (std::is_same_v<A, float>)
        if (mode.flush) a = flush(a);
    if constexpr (std::is_integral_v<D> && std::is_integral_v<A>) {
        return mode.saturate ? clamped<D>(a) : static_cast<D>(a);
    } else if constexpr (std::is_integral_v<D>) {
        return to_integer<D>(a, mode);
    } else if constexpr (std::is_integral_v<A>) {
        const bool negative = std::cmp_less(a, 0);
        const std::uint64_t size =
            negative ? 0 - static_cast<std::uint64_t>(a) : static_cast<std::uint64_t>(a);
        const double wide = directed_to_double(size, negative, Rounding::zero);
        if constexpr (std::is_same_v<D, double>) return directed_to_double(size, negative, mode.rounding);
        if constexpr (std::is_same_v<D, float>)
            return mode.saturate ? from_double<D>(wide, mode)
                                 : integer_to_float(size, negative, mode.rounding);
        return from_double<D>(wide, mode);
    } else if constexpr (std::is_same_v<D, A> && !is_small<D>) {
        if (!mode.to_integer && !mode.saturate && !mode.relu) return a;
        double x = as_double(a);
        if (mode.to_integer && std::isfinite(x)) x = on_grid(x, 0, mode.rounding);
        return from_double<D>(x, {.flush = mode.flush, .saturate = mode.saturate, .relu = mode.relu});
    } else {
        double x = as_double(a);
        if (mode.to_integer && std::isfinite(x)) x = on_grid(x, 0, mode.rounding);
        return from_double<D>(x, mode);
    }
}

/// A mode as an instruction's number.
std::uint32_t number_of(const Mode& mode) {
    return static_cast<std::uint32_t>(mode.rounding) << 4 | (mode.to_integer ? 1u : 0) |
           (mode.flush ? 2u : 0) | (mode.saturate ? 4u : 0) | (mode.relu ? 8u : 0);
}
Mode mode_of(std::uint32_t number) {
    return {.rounding = static_cast<Rounding>(number >> 4),
            .to_integer = (number & 1) != 0,
            .flush = (number & 2) != 0,
            .saturate = (number & 4) != 0,
            .relu = (number & 8) != 0};
}

/// The plain mode, to nearest and nothing else, is known to the compiler: it is by far the most frequent.
template <class D, class A, bool plain>
void lanes(std::byte* d, const Sources& s) {
    const Mode mode = plain ? Mode{} : mode_of(s.number);
    A a[warp_lanes];
    D out[warp_lanes];
    std::memcpy(a, s.a, sizeof a);
    for (int i = 0; i < warp_lanes; ++i) out[i] = convert<D>(a[i], mode);
    std::memcpy(d, out, sizeof out);
}

template <class D, class A>
LaneConversion pick(Mode mode) {
    if constexpr (!is_float<D> || !is_float<A>) mode.relu = false;
    const std::uint32_t number = number_of(mode);
    return {number == number_of({}) ? lanes<D, A, true> : lanes<D, A, false>, number};
}

template <class D>
LaneConversion pick_from(const std::string& from, const Mode& mode) {
    if (from == "s8") return pick<D, std::int8_t>(mode);
    if (from == "u8") return pick<D, std::uint8_t>(mode);
    if (from == "s16") return pick<D, std::int16_t>(mode);
    if (from == "u16") return pick<D, std::uint16_t>(mode);
    if (from == "s32") return pick<D, std::int32_t>(mode);
    if (from == "u32") return pick<D, std::uint32_t>(mode);
    if (from == "s64") return pick<D, std::int64_t>(mode);
    if (from == "u64") return pick<D, std::uint64_t>(mode);
    if (from == "f16") return pick<D, Half>(mode);
    if (from == "bf16") return pick<D, Brain>(mode);
    if (from == "f32") return pick<D, float>(mode);
    if (from == "f64") return pick<D, double>(mode);
    return {};
}

/// FP32 with the last 13 bits of its fraction gone, ties away from zero (.rna) or to even.
template <int rounding>
void to_tf32(std::byte* d, const Sources& s) {
    float a[warp_lanes];
    std::memcpy(a, s.a, sizeof a);
    for (float& x : a)
        x = std::isnan(x) ? std::bit_cast<float>(std::uint32_t{0x7fffffff})
                          : static_cast<float>(rounded(x, format_tf32, static_cast<Rounding>(rounding)));
    std::memcpy(d, a, sizeof a);
}

/// Two floats to two numbers in one register: the first operand's above.
template <class D, int rounding, bool relu>
void packed(std::byte* d, const Sources& s) {
    float a[warp_lanes], b[warp_lanes];
    std::uint32_t out[warp_lanes];
    std::memcpy(a, s.a, sizeof a);
    std::memcpy(b, s.b, sizeof b);
    constexpr Mode mode{.rounding = static_cast<Rounding>(rounding), .relu = relu};
    for (int i = 0; i < warp_lanes; ++i)
        out[i] = std::uint32_t{from_double<D>(a[i], mode).bits} << 16 | from_double<D>(b[i], mode).bits;
    std::memcpy(d, out, sizeof out);
}

template <class D>
LaneFunction pick_packed(Rounding rounding, bool relu) {
    if (rounding == Rounding::nearest) return relu ? packed<D, 0, true> : packed<D, 0, false>;
    return relu ? packed<D, 1, true> : packed<D, 1, false>;
}

/// Two floats to two FP8 numbers, the first operand's above; .satfinite: beyond the range is the largest
/// number.
template <bool e5m2>
void packed_fp8(std::byte* d, const Sources& s) {
    const SmallFormat& format = e5m2 ? format_e5m2 : format_e4m3;
    float a[warp_lanes], b[warp_lanes];
    std::uint16_t out[warp_lanes];
    std::memcpy(a, s.a, sizeof a);
    std::memcpy(b, s.b, sizeof b);
    const auto bits = [&](float x) {
        const double there =
            std::clamp(rounded(x, format, Rounding::nearest), -format.largest, format.largest);
        return bits_of_format(std::isnan(x) ? x : there, format, 8, 0x7f);
    };
    for (int i = 0; i < warp_lanes; ++i) out[i] = static_cast<std::uint16_t>(bits(a[i]) << 8 | bits(b[i]));
    std::memcpy(d, out, sizeof out);
}

}  // namespace

LaneConversion lane_conversion(const std::string& to, const std::string& from, const std::string& rounding,
                               bool flush, bool saturate, bool relu) {
    static const std::map<std::string, Rounding> directions{
        {"", Rounding::nearest}, {"rn", Rounding::nearest}, {"rni", Rounding::nearest},
        {"rz", Rounding::zero},  {"rzi", Rounding::zero},   {"rm", Rounding::down},
        {"rmi", Rounding::down}, {"rp", Rounding::up},      {"rpi", Rounding::up},
        {"rna", Rounding::away}};
    const auto found = directions.find(rounding);
    if (found == directions.end()) return {};
    const Rounding direction = found->second;
    if (to == "tf32") return {direction == Rounding::away ? to_tf32<4> : to_tf32<0>};
    if (direction == Rounding::away) return {};
    if (to == "f16x2") return {pick_packed<Half>(direction, relu)};
    if (to == "bf16x2") return {pick_packed<Brain>(direction, relu)};
    if (to == "e4m3x2") return {packed_fp8<false>};
    if (to == "e5m2x2") return {packed_fp8<true>};
    const Mode mode{.rounding = direction,
                    .to_integer = rounding.size() == 3,
                    .flush = flush,
                    .saturate = saturate,
                    .relu = relu};
    if (to == "s8") return pick_from<std::int8_t>(from, mode);
    if (to == "u8") return pick_from<std::uint8_t>(from, mode);
    if (to == "s16") return pick_from<std::int16_t>(from, mode);
    if (to == "u16") return pick_from<std::uint16_t>(from, mode);
    if (to == "s32") return pick_from<std::int32_t>(from, mode);
    if (to == "u32") return pick_from<std::uint32_t>(from, mode);
    if (to == "s64") return pick_from<std::int64_t>(from, mode);
    if (to == "u64") return pick_from<std::uint64_t>(from, mode);
    if (to == "f16") return pick_from<Half>(from, mode);
    if (to == "bf16") return pick_from<Brain>(from, mode);
    if (to == "f32") return pick_from<float>(from, mode);
    if (to == "f64") return pick_from<double>(from, mode);
    return {};
}

}  // namespace mantissa::cuda::ptx
