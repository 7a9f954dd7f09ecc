// The approximate functions. PTX states the largest error of each, not the result: here it is a number within
// that error that is not the correctly rounded one, so that what leans on more than is promised is seen.
// Errors: PTX ISA 8.5, sections 9.7.3 and 9.7.4.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "tests/emulated_gpu/lane_functions.h"
#include "tests/emulated_gpu/small_formats.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

constexpr double of_nan = std::numeric_limits<double>::quiet_NaN();

/// Up or down, as the operand's bits fall: the same operand always gets the same result.
double direction(float x) {
    const std::uint32_t mixed = std::bit_cast<std::uint32_t>(x) * 0x9e3779b1u;
    return mixed >> 31 ? 1.0 : -1.0;
}

/// A number of the format within `tolerance` of `exact`, the one beside the correctly rounded one or further
/// away; that one itself where the tolerance leaves no other.
double beside(double exact, double tolerance, double way, const SmallFormat& format) {
    const double nearest = rounded(exact, format, Rounding::nearest);
    const double far = exact + way * tolerance;
    for (const double candidate :
         {rounded(far, format, way > 0 ? Rounding::down : Rounding::up),
          rounded(exact - way * tolerance, format, way > 0 ? Rounding::up : Rounding::down)})
        if (candidate != nearest && std::isfinite(candidate) && std::fabs(candidate - exact) <= tolerance)
            return candidate;
    return nearest;
}

double ulp(double x, const SmallFormat& format) {
    if (x == 0) return std::ldexp(1.0, format.min_exponent - format.fraction_bits);
    return std::ldexp(1.0, std::max(std::ilogb(x), format.min_exponent) - format.fraction_bits);
}

/// The function and its promised accuracy.
struct Promise {
    double (*exact)(double x);
    double (*tolerance)(double x, double exact);
    bool (*special)(float x);  ///< whether the result is exact: zeros, infinities, NaN
};

double relative(double exact, double exponent) { return std::fabs(exact) * std::exp2(exponent); }

bool zero_or_not_finite(float x) { return x == 0 || !std::isfinite(x); }

constexpr Promise ex2{[](double x) { return std::exp2(x); },
                      [](double, double y) { return 2 * ulp(y, format_fp32); }, zero_or_not_finite};
constexpr Promise lg2{[](double x) { return std::log2(x); },
                      [](double x, double y) { return x > 0.5 && x < 2 ? 0x1p-22 : relative(y, -22); },
                      [](float x) { return x <= 0 || !std::isfinite(x); }};
constexpr Promise rcp{[](double x) { return 1 / x; }, [](double, double y) { return ulp(y, format_fp32); },
                      zero_or_not_finite};
constexpr Promise square_root{[](double x) { return std::sqrt(x); },
                              [](double, double y) { return relative(y, -23); },
                              [](float x) { return x <= 0 || !std::isfinite(x); }};
constexpr Promise rsqrt{[](double x) { return 1 / std::sqrt(x); },
                        [](double, double y) { return relative(y, -22.9); },
                        [](float x) { return x <= 0 || !std::isfinite(x); }};
/// Beyond 100 pi nothing is promised: the error grows with the operand.
double angle_tolerance(double x, double) {
    constexpr double pi = std::numbers::pi;
    const double size = std::fabs(x);
    return size <= 2 * pi ? std::exp2(-20.5) : std::exp2(-14.7) * std::max(1.0, size / (100 * pi));
}
constexpr Promise sine{[](double x) { return std::sin(x); }, angle_tolerance, zero_or_not_finite};
constexpr Promise cosine{[](double x) { return std::cos(x); }, angle_tolerance, zero_or_not_finite};
constexpr Promise tangent{
    [](double x) { return std::tanh(x); }, [](double, double y) { return relative(y, -11); },
    // A subnormal operand is passed through.
    [](float x) { return zero_or_not_finite(x) || std::fpclassify(x) == FP_SUBNORMAL; }};

float approximate(const Promise& promise, float x, bool ftz) {
    if (ftz) x = flush(x);
    const double exact = promise.exact(x);
    if (std::isnan(exact)) return std::bit_cast<float>(std::uint32_t{0x7fffffff});
    double y = exact;
    if (!promise.special(x)) {
        y = beside(exact, promise.tolerance(x, exact), direction(x), format_fp32);
    }
    const float out = static_cast<float>(y);
    return ftz ? flush(out) : out;
}

template <const Promise& promise, bool ftz>
void lanes(std::byte* d, const Sources& s) {
    float a[warp_lanes];
    std::memcpy(a, s.a, sizeof a);
    for (float& x : a) x = approximate(promise, x, ftz);
    std::memcpy(d, a, sizeof a);
}

/// `full`: 2 ulp everywhere. Else for |b| between 2^-126 and 2^126; beyond that a / b is 0, or NaN of an
/// infinite a.
float divide(float a, float b, bool ftz, bool full) {
    if (ftz) {
        a = flush(a);
        b = flush(b);
    }
    const double exact = double{a} / double{b};
    if (std::isnan(exact)) return std::bit_cast<float>(std::uint32_t{0x7fffffff});
    float out = static_cast<float>(exact);
    if (!full && std::isfinite(b) && std::fabs(b) > 0x1p126f)
        out = std::isinf(a) ? std::bit_cast<float>(std::uint32_t{0x7fffffff}) : std::copysign(0.0f, out);
    else if (std::isfinite(out) && out != 0 && std::isfinite(b))
        out = static_cast<float>(
            beside(exact, 2 * ulp(exact, format_fp32), direction(a) * direction(b), format_fp32));
    return ftz ? flush(out) : out;
}

template <bool ftz, bool full>
void divide_lanes(std::byte* d, const Sources& s) {
    float a[warp_lanes], b[warp_lanes];
    std::memcpy(a, s.a, sizeof a);
    std::memcpy(b, s.b, sizeof b);
    for (int i = 0; i < warp_lanes; ++i) a[i] = divide(a[i], b[i], ftz, full);
    std::memcpy(d, a, sizeof a);
}

// Approximations in 16 bits: 2^x to a relative 2^-9.9 in FP16 and 2^-7 in BF16; tanh to an absolute 2^-10.987
// and 2^-8.
template <bool brain, bool exponential>
std::uint16_t half_approximation(std::uint16_t bits) {
    const SmallFormat& format = brain ? format_bf16 : format_fp16;
    float x = brain ? bf16_to_float(bits) : half_to_float(bits);
    if (brain && exponential) x = flush(x);  // its .ftz is required
    const double exact = std::isnan(x) ? of_nan : exponential ? std::exp2(double{x}) : std::tanh(double{x});
    double y = exact;
    if (!zero_or_not_finite(x)) {
        const double tolerance =
            exponential ? relative(exact, brain ? -7 : -9.9) : std::exp2(brain ? -8 : -10.987);
        y = beside(exact, tolerance, direction(x), format);
    }
    return brain ? to_bf16_bits(y) : to_half(y);
}

template <bool brain, bool exponential, int count>
void half_lanes(std::byte* d, const Sources& s) {
    std::uint16_t a[warp_lanes * count];
    std::memcpy(a, s.a, sizeof a);
    for (std::uint16_t& x : a) x = half_approximation<brain, exponential>(x);
    std::memcpy(d, a, sizeof a);
}

void rsqrt_f64(std::byte* d, const Sources& s) {
    double a[warp_lanes];
    std::memcpy(a, s.a, sizeof a);
    for (double& x : a) {  // no error is stated: three units off
        const double y = 1 / std::sqrt(x);
        x = std::isfinite(y) && y != 0 ? y * (1 + 0x1p-51) : y;
    }
    std::memcpy(d, a, sizeof a);
}

}  // namespace

void list_lane_approximations(const LaneSink& sink) {
    const auto f32 = [&](const char* op, LaneFunction function) {
        sink.function(sink.to, op, "f32", function);
    };
    f32("ex2.approx", lanes<ex2, false>);
    f32("ex2.approx.ftz", lanes<ex2, true>);
    f32("lg2.approx", lanes<lg2, false>);
    f32("lg2.approx.ftz", lanes<lg2, true>);
    f32("rcp.approx", lanes<rcp, false>);
    f32("rcp.approx.ftz", lanes<rcp, true>);
    f32("sqrt.approx", lanes<square_root, false>);
    f32("sqrt.approx.ftz", lanes<square_root, true>);
    f32("rsqrt.approx", lanes<rsqrt, false>);
    f32("rsqrt.approx.ftz", lanes<rsqrt, true>);
    f32("sin.approx", lanes<sine, false>);
    f32("sin.approx.ftz", lanes<sine, true>);
    f32("cos.approx", lanes<cosine, false>);
    f32("cos.approx.ftz", lanes<cosine, true>);
    f32("tanh.approx", lanes<tangent, false>);
    f32("div.approx", divide_lanes<false, false>);
    f32("div.approx.ftz", divide_lanes<true, false>);
    f32("div.full", divide_lanes<false, true>);
    f32("div.full.ftz", divide_lanes<true, true>);
    sink.function(sink.to, "rsqrt.approx", "f64", rsqrt_f64);
    sink.function(sink.to, "ex2.approx", "f16", half_lanes<false, true, 1>);
    sink.function(sink.to, "ex2.approx", "f16x2", half_lanes<false, true, 2>);
    sink.function(sink.to, "ex2.approx.ftz", "bf16", half_lanes<true, true, 1>);
    sink.function(sink.to, "ex2.approx.ftz", "bf16x2", half_lanes<true, true, 2>);
    sink.function(sink.to, "tanh.approx", "f16", half_lanes<false, false, 1>);
    sink.function(sink.to, "tanh.approx", "f16x2", half_lanes<false, false, 2>);
    sink.function(sink.to, "tanh.approx", "bf16", half_lanes<true, false, 1>);
    sink.function(sink.to, "tanh.approx", "bf16x2", half_lanes<true, false, 2>);
}

}  // namespace mantissa::cuda::ptx
