// Arithmetic of FP16 and BF16, one number a register or two: exact in FP64, rounded once.
#include <cstring>

#include "tests/emulated_gpu/lane_functions.h"
#include "tests/emulated_gpu/small_formats.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

template <bool brain>
double given(std::uint16_t bits, bool ftz) {
    const double x = brain ? bf16_to_float(bits) : half_to_float(bits);
    return ftz && std::fabs(x) < 0x1p-14 ? std::copysign(0.0, x) : x;
}

template <bool brain>
std::uint16_t stored(double x, bool ftz, bool saturate) {
    if (saturate) x = x > 0 ? std::min(x, 1.0) : 0.0;
    const std::uint16_t bits = brain ? to_bf16_bits(x) : to_half(x);
    return ftz && (bits & 0x7c00) == 0 ? bits & 0x8000 : bits;
}

enum class Op { add, subtract, multiply, fuse, fuse_relu, minimum, maximum, minimum_nan, maximum_nan };

double extreme(double a, double b, bool largest, bool nan) {
    if (std::isnan(a) || std::isnan(b))
        return nan || (std::isnan(a) && std::isnan(b)) ? NAN : std::isnan(a) ? b : a;
    if (a == b) return std::signbit(a) == largest ? b : a;
    return (a < b) == largest ? b : a;
}

double apply(Op op, double a, double b, double c) {
    switch (op) {
        case Op::add:
            return a + b;
        case Op::subtract:
            return a - b;
        case Op::multiply:
            return a * b;
        case Op::fuse:
            return a * b + c;  // the product is exact in FP64
        case Op::fuse_relu: {
            const double x = a * b + c;
            return x <= 0 ? 0 : x;
        }
        case Op::minimum:
            return extreme(a, b, false, false);
        case Op::maximum:
            return extreme(a, b, true, false);
        case Op::minimum_nan:
            return extreme(a, b, false, true);
        case Op::maximum_nan:
            return extreme(a, b, true, true);
    }
    return 0;
}

template <bool brain, Op op, int count, bool ftz, bool saturate>
void lanes(std::byte* d, const Sources& s) {
    constexpr bool three = op == Op::fuse || op == Op::fuse_relu;
    std::uint16_t a[warp_lanes * count], b[warp_lanes * count], c[warp_lanes * count] = {};
    std::memcpy(a, s.a, sizeof a);
    std::memcpy(b, s.b, sizeof b);
    if (three) std::memcpy(c, s.c, sizeof c);
    for (int i = 0; i < warp_lanes * count; ++i)
        a[i] = stored<brain>(
            apply(op, given<brain>(a[i], ftz), given<brain>(b[i], ftz), given<brain>(c[i], ftz)), ftz,
            saturate);
    std::memcpy(d, a, sizeof a);
}

/// The sign bit set to `value` or turned.
template <int count, bool turn>
void sign(std::byte* d, const Sources& s) {
    std::uint16_t a[warp_lanes * count];
    std::memcpy(a, s.a, sizeof a);
    for (std::uint16_t& x : a) x = static_cast<std::uint16_t>(turn ? x ^ 0x8000 : x & 0x7fff);
    std::memcpy(d, a, sizeof a);
}

template <bool brain, int count>
void list(const LaneSink& sink, const char* type) {
    const auto add = [&](const char* op, LaneFunction function) {
        sink.function(sink.to, op, type, function);
    };
    add("add", lanes<brain, Op::add, count, false, false>);
    add("sub", lanes<brain, Op::subtract, count, false, false>);
    add("mul", lanes<brain, Op::multiply, count, false, false>);
    add("fma", lanes<brain, Op::fuse, count, false, false>);
    add("fma.relu", lanes<brain, Op::fuse_relu, count, false, false>);
    add("min", lanes<brain, Op::minimum, count, false, false>);
    add("max", lanes<brain, Op::maximum, count, false, false>);
    add("min.NaN", lanes<brain, Op::minimum_nan, count, false, false>);
    add("max.NaN", lanes<brain, Op::maximum_nan, count, false, false>);
    add("abs", sign<count, false>);
    add("neg", sign<count, true>);
    if constexpr (!brain) {
        add("add.ftz", lanes<brain, Op::add, count, true, false>);
        add("sub.ftz", lanes<brain, Op::subtract, count, true, false>);
        add("mul.ftz", lanes<brain, Op::multiply, count, true, false>);
        add("fma.ftz", lanes<brain, Op::fuse, count, true, false>);
        add("add.sat", lanes<brain, Op::add, count, false, true>);
        add("mul.sat", lanes<brain, Op::multiply, count, false, true>);
        add("fma.sat", lanes<brain, Op::fuse, count, false, true>);
    }
}

using Order = bool (*)(double a, double b);

template <bool brain, Order order>
std::uint32_t test(const Sources& s) {
    std::uint16_t a[warp_lanes], b[warp_lanes];
    std::memcpy(a, s.a, sizeof a);
    std::memcpy(b, s.b, sizeof b);
    std::uint32_t bits = 0;
    for (int i = 0; i < warp_lanes; ++i)
        bits |= std::uint32_t{order(given<brain>(a[i], false), given<brain>(b[i], false))} << i;
    return bits;
}

// With the letter u also true of a NaN.
bool order_eq(double a, double b) { return a == b; }
bool order_ne(double a, double b) { return a < b || a > b; }
bool order_lt(double a, double b) { return a < b; }
bool order_le(double a, double b) { return a <= b; }
bool order_gt(double a, double b) { return a > b; }
bool order_ge(double a, double b) { return a >= b; }
bool order_equ(double a, double b) { return !(a < b || a > b); }
bool order_neu(double a, double b) { return !(a == b); }
bool order_ltu(double a, double b) { return !(a >= b); }
bool order_leu(double a, double b) { return !(a > b); }
bool order_gtu(double a, double b) { return !(a <= b); }
bool order_geu(double a, double b) { return !(a < b); }
bool order_nan(double a, double b) { return std::isnan(a) || std::isnan(b); }
bool order_num(double a, double b) { return !std::isnan(a) && !std::isnan(b); }

template <bool brain>
void list_order(const LaneSink& sink, const char* type) {
    const auto add = [&](const char* op, LaneTest function) { sink.test(sink.to, op, type, function); };
    add("eq", test<brain, order_eq>);
    add("ne", test<brain, order_ne>);
    add("lt", test<brain, order_lt>);
    add("le", test<brain, order_le>);
    add("gt", test<brain, order_gt>);
    add("ge", test<brain, order_ge>);
    add("equ", test<brain, order_equ>);
    add("neu", test<brain, order_neu>);
    add("ltu", test<brain, order_ltu>);
    add("leu", test<brain, order_leu>);
    add("gtu", test<brain, order_gtu>);
    add("geu", test<brain, order_geu>);
    add("nan", test<brain, order_nan>);
    add("num", test<brain, order_num>);
}

}  // namespace

void list_lane_halves(const LaneSink& sink) {
    list<false, 1>(sink, "f16");
    list<false, 2>(sink, "f16x2");
    list<true, 1>(sink, "bf16");
    list<true, 2>(sink, "bf16x2");
    list_order<false>(sink, "f16");
    list_order<true>(sink, "bf16");
}

}  // namespace mantissa::cuda::ptx
