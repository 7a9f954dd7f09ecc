// FP32 and FP64, and all comparisons.
//
// FP32 as PTX has it: with .ftz subnormal operands and results become zeros of their sign; every NaN that
// comes out is 0x7fffffff. Rounding other than to nearest is the caller's, who sets the processor's mode.
#pragma once

#include "tests/emulated_gpu/lane_loops_body.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

// Comparisons. Of numbers that are no NaN if ordered; with the letter u in PTX also true for a NaN.
struct Equal {
    template <class T>
    static bool of(T a, T b) {
        return a == b;
    }
};
struct NotEqual {
    template <class T>
    static bool of(T a, T b) {
        return a < b || a > b;
    }
};
struct Less {
    template <class T>
    static bool of(T a, T b) {
        return a < b;
    }
};
struct LessEqual {
    template <class T>
    static bool of(T a, T b) {
        return a <= b;
    }
};
struct Greater {
    template <class T>
    static bool of(T a, T b) {
        return a > b;
    }
};
struct GreaterEqual {
    template <class T>
    static bool of(T a, T b) {
        return a >= b;
    }
};
template <class T>
bool unordered(T a, T b) {
    return a != a || b != b;
}
struct NotANumber {
    template <class T>
    static bool of(T a, T b) {
        return unordered(a, b);
    }
};
struct Number {
    template <class T>
    static bool of(T a, T b) {
        return !unordered(a, b);
    }
};
template <class F>
struct OrUnordered {
    template <class T>
    static bool of(T a, T b) {
        return F::of(a, b) || unordered(a, b);
    }
};

inline float flushed(float x) {
    const u32 bits = std::bit_cast<u32>(x);
    return (bits & 0x7f800000) != 0 ? x : std::bit_cast<float>(bits & 0x80000000);
}
template <bool ftz>
float given(float x) {
    return ftz ? flushed(x) : x;
}
template <bool ftz>
float result(float x) {
    if (ftz) x = flushed(x);
    return x != x ? std::bit_cast<float>(u32{0x7fffffff}) : x;
}
template <bool>
double given(double x) {
    return x;
}
template <bool>
double result(double x) {
    return x;
}

template <class F, bool ftz>
struct Float {
    template <class T>
    static T of(T a) {
        return result<ftz>(F::of(given<ftz>(a)));
    }
    template <class T>
    static T of(T a, T b) {
        return result<ftz>(F::of(given<ftz>(a), given<ftz>(b)));
    }
    template <class T>
    static T of(T a, T b, T c) {
        return result<ftz>(F::of(given<ftz>(a), given<ftz>(b), given<ftz>(c)));
    }
};
template <class F>
struct FloatTest {
    static bool of(float a, float b) { return F::of(flushed(a), flushed(b)); }
};
template <class F>
struct Saturated {
    template <class... T>
    static float of(T... a) {
        const float x = F::of(a...);
        return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;  // a NaN is 0
    }
};

struct FAdd {
    template <class T>
    static T of(T a, T b) {
        return a + b;
    }
};
struct FSubtract {
    template <class T>
    static T of(T a, T b) {
        return a - b;
    }
};
struct FMultiply {
    template <class T>
    static T of(T a, T b) {
        return a * b;
    }
};
struct FDivide {
    template <class T>
    static T of(T a, T b) {
        return a / b;
    }
};
struct FReciprocal {
    template <class T>
    static T of(T a) {
        return T{1} / a;
    }
};
struct FFused {
    static float of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
    static double of(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct FSquareRoot {
    static float of(float a) { return __builtin_sqrtf(a); }
    static double of(double a) { return __builtin_sqrt(a); }
};
// The sign alone: no NaN is made canonical.
template <bool ftz>
struct FAbsolute {
    static float of(float a) { return std::bit_cast<float>(std::bit_cast<u32>(given<ftz>(a)) & 0x7fffffff); }
    static double of(double a) { return std::bit_cast<double>(std::bit_cast<u64>(a) << 1 >> 1); }
};
template <bool ftz>
struct FNegative {
    static float of(float a) { return std::bit_cast<float>(std::bit_cast<u32>(given<ftz>(a)) ^ 0x80000000); }
    static double of(double a) { return std::bit_cast<double>(std::bit_cast<u64>(a) ^ u64{1} << 63); }
};
/// -0 is less than +0; of a number and a NaN it is the number, unless NaN is asked for.
template <bool largest, bool nan>
struct FExtreme {
    template <class T>
    static T of(T a, T b) {
        if (a != a) return nan ? a : b;
        if (b != b) return nan ? b : a;
        if (a == b) return (std::signbit(a) == largest) ? b : a;
        return (a < b) == largest ? b : a;
    }
};
struct FCopySign {
    static float of(float sign, float size) {
        const u32 s = std::bit_cast<u32>(sign), x = std::bit_cast<u32>(size);
        return std::bit_cast<float>((s & 0x80000000) | (x & 0x7fffffff));
    }
    static double of(double sign, double size) { return std::copysign(size, sign); }
};

template <bool ftz, class T>
void list_floats_of(const LaneSink& sink, const char* type) {
    const auto add = [&](const char* plain, const char* flush, LaneFunction function) {
        sink.function(sink.to, ftz ? flush : plain, type, function);
    };
    add("add", "add.ftz", two<Float<FAdd, ftz>, T, T, T>);
    add("sub", "sub.ftz", two<Float<FSubtract, ftz>, T, T, T>);
    add("mul", "mul.ftz", two<Float<FMultiply, ftz>, T, T, T>);
    add("fma", "fma.ftz", three<Float<FFused, ftz>, T, T, T, T>);
    add("div", "div.ftz", two<Float<FDivide, ftz>, T, T, T>);
    add("rcp", "rcp.ftz", one<Float<FReciprocal, ftz>, T, T>);
    add("sqrt", "sqrt.ftz", one<Float<FSquareRoot, ftz>, T, T>);
    add("abs", "abs.ftz", one<FAbsolute<ftz>, T, T>);
    add("neg", "neg.ftz", one<FNegative<ftz>, T, T>);
    add("min", "min.ftz", two<Float<FExtreme<false, false>, ftz>, T, T, T>);
    add("max", "max.ftz", two<Float<FExtreme<true, false>, ftz>, T, T, T>);
}

inline void list_floats(const LaneSink& sink) {
    list_floats_of<false, float>(sink, "f32");
    list_floats_of<true, float>(sink, "f32");
    list_floats_of<false, double>(sink, "f64");
    const auto only = [&](const char* op, LaneFunction function) {
        sink.function(sink.to, op, "f32", function);
    };
    only("min.NaN", two<Float<FExtreme<false, true>, false>, float, float, float>);
    only("max.NaN", two<Float<FExtreme<true, true>, false>, float, float, float>);
    only("min.ftz.NaN", two<Float<FExtreme<false, true>, true>, float, float, float>);
    only("max.ftz.NaN", two<Float<FExtreme<true, true>, true>, float, float, float>);
    only("add.sat", two<Saturated<Float<FAdd, false>>, float, float, float>);
    only("add.ftz.sat", two<Saturated<Float<FAdd, true>>, float, float, float>);
    only("sub.sat", two<Saturated<Float<FSubtract, false>>, float, float, float>);
    only("sub.ftz.sat", two<Saturated<Float<FSubtract, true>>, float, float, float>);
    only("mul.sat", two<Saturated<Float<FMultiply, false>>, float, float, float>);
    only("mul.ftz.sat", two<Saturated<Float<FMultiply, true>>, float, float, float>);
    only("fma.sat", three<Saturated<Float<FFused, false>>, float, float, float, float>);
    only("fma.ftz.sat", three<Saturated<Float<FFused, true>>, float, float, float, float>);
    only("copysign", two<FCopySign, float, float, float>);
    sink.function(sink.to, "copysign", "f64", two<FCopySign, double, double, double>);
}

template <class T>
void list_order(const LaneSink& sink, const char* type) {
    sink.test(sink.to, "eq", type, test<Equal, T>);
    sink.test(sink.to, "ne", type, test<NotEqual, T>);
    sink.test(sink.to, "lt", type, test<Less, T>);
    sink.test(sink.to, "le", type, test<LessEqual, T>);
    sink.test(sink.to, "gt", type, test<Greater, T>);
    sink.test(sink.to, "ge", type, test<GreaterEqual, T>);
    if constexpr (std::is_unsigned_v<T>) {  // lower, lower or same, higher, higher or same
        sink.test(sink.to, "lo", type, test<Less, T>);
        sink.test(sink.to, "ls", type, test<LessEqual, T>);
        sink.test(sink.to, "hi", type, test<Greater, T>);
        sink.test(sink.to, "hs", type, test<GreaterEqual, T>);
    }
    if constexpr (std::is_floating_point_v<T>) {
        sink.test(sink.to, "equ", type, test<OrUnordered<Equal>, T>);
        sink.test(sink.to, "neu", type, test<OrUnordered<NotEqual>, T>);
        sink.test(sink.to, "ltu", type, test<OrUnordered<Less>, T>);
        sink.test(sink.to, "leu", type, test<OrUnordered<LessEqual>, T>);
        sink.test(sink.to, "gtu", type, test<OrUnordered<Greater>, T>);
        sink.test(sink.to, "geu", type, test<OrUnordered<GreaterEqual>, T>);
        sink.test(sink.to, "nan", type, test<NotANumber, T>);
        sink.test(sink.to, "num", type, test<Number, T>);
    }
}

inline void list_tests(const LaneSink& sink) {
    list_order<i16>(sink, "s16");
    list_order<u16>(sink, "u16");
    list_order<i32>(sink, "s32");
    list_order<u32>(sink, "u32");
    list_order<i64>(sink, "s64");
    list_order<u64>(sink, "u64");
    list_order<float>(sink, "f32");
    list_order<double>(sink, "f64");
    const auto bits = [&]<class T>(const char* type, T) {
        sink.test(sink.to, "eq", type, test<Equal, T>);
        sink.test(sink.to, "ne", type, test<NotEqual, T>);
    };
    bits("b16", u16{});
    bits("b32", u32{});
    bits("b64", u64{});
    const auto flush = [&](const char* op, LaneTest tested) { sink.test(sink.to, op, "f32", tested); };
    flush("eq.ftz", test<FloatTest<Equal>, float>);
    flush("ne.ftz", test<FloatTest<NotEqual>, float>);
    flush("lt.ftz", test<FloatTest<Less>, float>);
    flush("le.ftz", test<FloatTest<LessEqual>, float>);
    flush("gt.ftz", test<FloatTest<Greater>, float>);
    flush("ge.ftz", test<FloatTest<GreaterEqual>, float>);
    flush("equ.ftz", test<FloatTest<OrUnordered<Equal>>, float>);
    flush("neu.ftz", test<FloatTest<OrUnordered<NotEqual>>, float>);
    flush("ltu.ftz", test<FloatTest<OrUnordered<Less>>, float>);
    flush("leu.ftz", test<FloatTest<OrUnordered<LessEqual>>, float>);
    flush("gtu.ftz", test<FloatTest<OrUnordered<Greater>>, float>);
    flush("geu.ftz", test<FloatTest<OrUnordered<GreaterEqual>>, float>);
    flush("nan.ftz", test<FloatTest<NotANumber>, float>);
    flush("num.ftz", test<FloatTest<Number>, float>);
}

}  // namespace

}  // namespace mantissa::cuda::ptx
