// Arithmetic of integers, which wraps.
#pragma once

#include "tests/emulated_gpu/lane_loops_body.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

/// Twice as wide.
template <class T>
struct WiderOf;
template <>
struct WiderOf<i16> {
    using type = i32;
};
template <>
struct WiderOf<u16> {
    using type = u32;
};
template <>
struct WiderOf<i32> {
    using type = i64;
};
template <>
struct WiderOf<u32> {
    using type = u64;
};
__extension__ typedef __int128 i128;
__extension__ typedef unsigned __int128 u128;
template <>
struct WiderOf<i64> {
    using type = i128;
};
template <>
struct WiderOf<u64> {
    using type = u128;
};
template <class T>
using Wider = typename WiderOf<T>::type;
template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
constexpr int bits_of = static_cast<int>(8 * sizeof(T));

// Integers wrap: all sums are of the unsigned type.
struct Add {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
    }
};
struct Subtract {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(static_cast<u64>(a) - static_cast<u64>(b));
    }
};
struct Multiply {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
    }
};
struct MultiplyHigh {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>((Wider<T>(a) * Wider<T>(b)) >> bits_of<T>);
    }
};
struct MultiplyWide {
    template <class T>
    static Wider<T> of(T a, T b) {
        return static_cast<Wider<T>>(Wider<T>(a) * Wider<T>(b));
    }
};
struct MultiplyAdd {
    template <class T>
    static T of(T a, T b, T c) {
        return Add::of(Multiply::of(a, b), c);
    }
};
struct MultiplyHighAdd {
    template <class T>
    static T of(T a, T b, T c) {
        return Add::of(MultiplyHigh::of(a, b), c);
    }
};
struct MultiplyWideAdd {
    template <class T>
    static Wider<T> of(T a, T b, Wider<T> c) {
        return Add::of(MultiplyWide::of(a, b), c);
    }
};
struct Multiply24 {
    static u32 of(u32 a, u32 b) { return (a & 0xffffff) * (b & 0xffffff); }
    static i32 of(i32 a, i32 b) { return static_cast<i32>(u32(a << 8 >> 8) * u32(b << 8 >> 8)); }
};
struct Divide {
    template <class T>
    static T of(T a, T b) {
        if (b == 0) return static_cast<T>(-1);  // unspecified in PTX
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Subtract::of(T{0}, a);
        return static_cast<T>(a / b);
    }
};
struct Remainder {
    template <class T>
    static T of(T a, T b) {
        if (b == 0) return a;
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
        return static_cast<T>(a % b);
    }
};
struct Minimum {
    template <class T>
    static T of(T a, T b) {
        return b < a ? b : a;
    }
};
struct Maximum {
    template <class T>
    static T of(T a, T b) {
        return a < b ? b : a;
    }
};
struct Absolute {
    template <class T>
    static T of(T a) {
        return a < 0 ? Subtract::of(T{0}, a) : a;
    }
};
struct Negative {
    template <class T>
    static T of(T a) {
        return Subtract::of(T{0}, a);
    }
};
struct SaturatingAdd {
    static i32 of(i32 a, i32 b) {
        const i64 sum = i64{a} + b;
        return static_cast<i32>(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
    }
};
struct SaturatingSubtract {
    static i32 of(i32 a, i32 b) {
        const i64 sum = i64{a} - b;
        return static_cast<i32>(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
    }
};
struct AbsoluteDifference {
    template <class T>
    static T of(T a, T b, T c) {
        return Add::of(c, a < b ? Subtract::of(b, a) : Subtract::of(a, b));
    }
};

template <bool a_signed, bool b_signed>
struct Dot4 {
    static u32 of(u32 a, u32 b, u32 c) {
        u32 sum = c;
        for (int i = 0; i < 4; ++i) {
            const u32 x = a >> (8 * i) & 255, y = b >> (8 * i) & 255;
            sum += u32((a_signed ? i32(std::int8_t(x)) : i32(x)) * (b_signed ? i32(std::int8_t(y)) : i32(y)));
        }
        return sum;
    }
};

inline void list_integers(const LaneSink& sink) {
    const auto each = [&]<class F>(const char* op, F) {
        sink.function(sink.to, op, "s16", two<F, i16, i16, i16>);
        sink.function(sink.to, op, "u16", two<F, u16, u16, u16>);
        sink.function(sink.to, op, "s32", two<F, i32, i32, i32>);
        sink.function(sink.to, op, "u32", two<F, u32, u32, u32>);
        sink.function(sink.to, op, "s64", two<F, i64, i64, i64>);
        sink.function(sink.to, op, "u64", two<F, u64, u64, u64>);
    };
    each("add", Add{});
    each("sub", Subtract{});
    each("mul.lo", Multiply{});
    each("mul.hi", MultiplyHigh{});
    each("div", Divide{});
    each("rem", Remainder{});
    each("min", Minimum{});
    each("max", Maximum{});
    const auto added = [&]<class F>(const char* op, F) {
        sink.function(sink.to, op, "s16", three<F, i16, i16, i16, i16>);
        sink.function(sink.to, op, "u16", three<F, u16, u16, u16, u16>);
        sink.function(sink.to, op, "s32", three<F, i32, i32, i32, i32>);
        sink.function(sink.to, op, "u32", three<F, u32, u32, u32, u32>);
        sink.function(sink.to, op, "s64", three<F, i64, i64, i64, i64>);
        sink.function(sink.to, op, "u64", three<F, u64, u64, u64, u64>);
    };
    added("mad.lo", MultiplyAdd{});
    added("mad.hi", MultiplyHighAdd{});
    added("sad", AbsoluteDifference{});
    const auto wide = [&]<class T>(const char* type, T) {
        sink.function(sink.to, "mul.wide", type, two<MultiplyWide, Wider<T>, T, T>);
        sink.function(sink.to, "mad.wide", type, three<MultiplyWideAdd, Wider<T>, T, T, Wider<T>>);
    };
    wide("s16", i16{});
    wide("u16", u16{});
    wide("s32", i32{});
    wide("u32", u32{});
    const auto with_sign = [&]<class T>(const char* type, T) {
        sink.function(sink.to, "abs", type, one<Absolute, T, T>);
        sink.function(sink.to, "neg", type, one<Negative, T, T>);
    };
    with_sign("s16", i16{});
    with_sign("s32", i32{});
    with_sign("s64", i64{});
    sink.function(sink.to, "add.sat", "s32", two<SaturatingAdd, i32, i32, i32>);
    sink.function(sink.to, "sub.sat", "s32", two<SaturatingSubtract, i32, i32, i32>);
    sink.function(sink.to, "mul24.lo", "s32", two<Multiply24, i32, i32, i32>);
    sink.function(sink.to, "mul24.lo", "u32", two<Multiply24, u32, u32, u32>);
    sink.function(sink.to, "dp4a.u32", "u32", three<Dot4<false, false>, u32, u32, u32, u32>);
    sink.function(sink.to, "dp4a.s32", "s32", three<Dot4<true, true>, u32, u32, u32, u32>);
    sink.function(sink.to, "dp4a.u32", "s32", three<Dot4<false, true>, u32, u32, u32, u32>);
    sink.function(sink.to, "dp4a.s32", "u32", three<Dot4<true, false>, u32, u32, u32, u32>);
}

}  // namespace

}  // namespace mantissa::cuda::ptx
