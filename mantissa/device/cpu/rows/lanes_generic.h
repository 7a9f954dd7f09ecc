// Sixteen FP32 lanes in plain C++ (vector types that GCC and Clang lower to any machine). The operations of
// numerics/elementary_body.h, and further ones of row kernels. The AVX2 and AVX-512 twins have the same
// members.
//
// Everything sits in an unnamed namespace: each including file has its own copy, so that the linker can never
// keep one compiled for an instruction set that the machine lacks.
#pragma once

#include <cstdint>

#include "mantissa/numerics/sixteen_bit.h"

#define MANTISSA_LANES [[gnu::always_inline]] static inline
// For long functions that are used often: inlined sixteen lanes deep, this level took minutes to compile.
#define MANTISSA_LONG_LANES [[gnu::noinline]] static

#include "mantissa/device/cpu/rows/transpose_lines_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct Lanes {
    static constexpr int width = 16;
    static constexpr int registers = 16;
    typedef float F4 __attribute__((vector_size(16)));
    typedef std::int32_t I4 __attribute__((vector_size(16)));
    typedef float F2 __attribute__((vector_size(8)));
    typedef double D2 __attribute__((vector_size(16)));
    struct Float {
        F4 part[4];
    };
    struct Int {
        I4 part[4];
    };
    struct Mask {
        I4 part[4];  // all ones where set
    };
    struct Doubles {
        double lane[16];
    };

    template <class Result, class F>
    MANTISSA_LANES Result each(F f) {
        return {{f(0), f(1), f(2), f(3)}};
    }

    MANTISSA_LANES D2 low(F4 x) { return __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1), D2); }
    MANTISSA_LANES D2 high(F4 x) { return __builtin_convertvector(__builtin_shufflevector(x, x, 2, 3), D2); }
    MANTISSA_LANES F4 all(float x) { return F4{x, x, x, x}; }
    MANTISSA_LANES Float constant(float x) { return {{all(x), all(x), all(x), all(x)}}; }
    MANTISSA_LANES Int integer(int x) {
        const I4 v = {x, x, x, x};
        return {{v, v, v, v}};
    }
    MANTISSA_LANES Float add(Float a, Float b) {
        return each<Float>([&](int k) { return a.part[k] + b.part[k]; });
    }
    MANTISSA_LANES Float subtract(Float a, Float b) {
        return each<Float>([&](int k) { return a.part[k] - b.part[k]; });
    }
    MANTISSA_LANES Float multiply(Float a, Float b) {
        return each<Float>([&](int k) { return a.part[k] * b.part[k]; });
    }
    MANTISSA_LANES Float divide(Float a, Float b) {
        return each<Float>([&](int k) { return a.part[k] / b.part[k]; });
    }
    MANTISSA_LANES Float negate(Float a) {
        return each<Float>([&](int k) { return -a.part[k]; });
    }
    /// Rounded once, as the instruction does. In FP64 the product is exact, and the sum, rounded to FP32, is
    /// nearly always the right one. Two cases are in doubt: FP64's rounding may have put the sum half way
    /// between two numbers, or the sum is below FP32's least normal number, where numbers are closer to one
    /// another. There the library's function is asked.
    MANTISSA_LONG_LANES Float fma(Float a, Float b, Float c) {
        constexpr std::int32_t below_fp32 = 0x1fffffff, half_way = 0x10000000;  // of FP64's low word
        constexpr std::int32_t min_normal = 0x38100000;                         // FP64's high word of 2^-126
        Float sum;
        I4 in_doubt{};
        for (int k = 0; k < 4; ++k) {
            const D2 first = low(a.part[k]) * low(b.part[k]) + low(c.part[k]);
            const D2 second = high(a.part[k]) * high(b.part[k]) + high(c.part[k]);
            sum.part[k] = __builtin_shufflevector(__builtin_convertvector(first, F2),
                                                  __builtin_convertvector(second, F2), 0, 1, 2, 3);
            const I4 words = reinterpret_cast<I4>(first), others = reinterpret_cast<I4>(second);
            const I4 low_words = __builtin_shufflevector(words, others, 0, 2, 4, 6);
            const I4 size = __builtin_shufflevector(words, others, 1, 3, 5, 7) & 0x7fffffff;
            in_doubt |= ((low_words & below_fp32) == half_way) | ((size > 0) & (size < min_normal));
        }
        if ((in_doubt[0] | in_doubt[1] | in_doubt[2] | in_doubt[3]) != 0) [[unlikely]]
            for (int k = 0; k < 4; ++k)
                for (int i = 0; i < 4; ++i)
                    sum.part[k][i] = __builtin_fmaf(a.part[k][i], b.part[k][i], c.part[k][i]);
        return sum;
    }
    MANTISSA_LANES Mask less(Float a, Float b) {
        return each<Mask>([&](int k) { return reinterpret_cast<I4>(a.part[k] < b.part[k]); });
    }

    MANTISSA_LANES Mask is_nan(Float a) {
        return each<Mask>([&](int k) { return reinterpret_cast<I4>(a.part[k] != a.part[k]); });
    }
    MANTISSA_LANES Float select(Mask mask, Float a, Float b) {
        return each<Float>([&](int k) {
            const I4 m = mask.part[k];
            return reinterpret_cast<F4>((m & reinterpret_cast<I4>(a.part[k])) |
                                        (~m & reinterpret_cast<I4>(b.part[k])));
        });
    }
    /// As the instructions: b where either is NaN.
    MANTISSA_LANES Float minimum(Float a, Float b) { return select(less(a, b), a, b); }
    MANTISSA_LANES Float maximum(Float a, Float b) { return select(less(b, a), a, b); }

    MANTISSA_LANES Int bits(Float a) {
        return each<Int>([&](int k) { return reinterpret_cast<I4>(a.part[k]); });
    }
    MANTISSA_LANES Float from_bits(Int a) {
        return each<Float>([&](int k) { return reinterpret_cast<F4>(a.part[k]); });
    }
    typedef std::uint32_t U4 __attribute__((vector_size(16)));
    MANTISSA_LANES Int add_int(Int a, Int b) {
        return each<Int>([&](int k) {
            return reinterpret_cast<I4>(reinterpret_cast<U4>(a.part[k]) + reinterpret_cast<U4>(b.part[k]));
        });
    }
    MANTISSA_LANES Int and_int(Int a, Int b) {
        return each<Int>([&](int k) { return a.part[k] & b.part[k]; });
    }
    MANTISSA_LANES Int or_int(Int a, Int b) {
        return each<Int>([&](int k) { return a.part[k] | b.part[k]; });
    }
    template <int Count>
    MANTISSA_LANES Int shift_left(Int a) {
        return each<Int>(
            [&](int k) { return reinterpret_cast<I4>(reinterpret_cast<U4>(a.part[k]) << Count); });
    }
    template <int Count>
    MANTISSA_LANES Int shift_right_signed(Int a) {
        return each<Int>([&](int k) { return a.part[k] >> Count; });
    }
    MANTISSA_LANES Float to_float(Int a) {
        return each<Float>([&](int k) { return __builtin_convertvector(a.part[k], F4); });
    }

    /// Memory: whole vectors, and the first `count` lanes of one, the others being zero.
    MANTISSA_LANES Float load(const float* from) {
        Float a;
        __builtin_memcpy(&a, from, sizeof a);
        return a;
    }
    MANTISSA_LONG_LANES Float load(const BF16* from) {
        Float a;
        for (int i = 0; i < 16; ++i) set(a, i, static_cast<std::uint32_t>(from[i].bits) << 16);
        return a;
    }
    MANTISSA_LONG_LANES Float load(const FP16* from) {
        Float a;
        for (int i = 0; i < 16; ++i) set(a, i, widened(from[i].bits));
        return a;
    }
    template <class T>
    MANTISSA_LONG_LANES Float load_part(const T* from, int count) {
        T whole[16] = {};
        __builtin_memcpy(whole, from, static_cast<std::size_t>(count) * sizeof(T));
        return load(whole);
    }
    MANTISSA_LANES void store(float* to, Float a) { __builtin_memcpy(to, &a, sizeof a); }
    MANTISSA_LONG_LANES void store(BF16* to, Float a) {
        for (int i = 0; i < 16; ++i) to[i].bits = narrowed_bf16(get(a, i));
    }
    MANTISSA_LONG_LANES void store(FP16* to, Float a) {
        for (int i = 0; i < 16; ++i) to[i].bits = narrowed_fp16(get(a, i));
    }
    template <class T>
    MANTISSA_LONG_LANES void store_part(T* to, Float a, int count) {
        T whole[16];
        store(whole, a);
        __builtin_memcpy(to, whole, static_cast<std::size_t>(count) * sizeof(T));
    }
    /// Past the caches where the level can; `to` is aligned to the vector's bytes.
    template <class T>
    MANTISSA_LANES void stream(T* to, Float a) {
        store(to, a);
    }
    template <class T>
    MANTISSA_LANES void store_two(T* to, Float a, Float b) {
        store(to, a);
        store(to + 16, b);
    }
    template <class T>
    MANTISSA_LANES void stream_two(T* to, Float a, Float b) {
        stream(to, a);
        stream(to + 16, b);
    }
    static constexpr bool can_stream = false;
    /// Makes streamed stores visible before later ones.
    MANTISSA_LANES void fence() {}

    /// Reductions over lanes, always in the same tree: i with i + 8, + 4, + 2, + 1.
    MANTISSA_LANES float sum(Float a) {
        const F4 four = (a.part[0] + a.part[2]) + (a.part[1] + a.part[3]);
        return (four[0] + four[2]) + (four[1] + four[3]);
    }
    MANTISSA_LANES float greatest(Float a) {
        const Float half = maximum(a, {{a.part[2], a.part[3], a.part[2], a.part[3]}});
        const Float four = maximum(half, {{half.part[1], half.part[1], half.part[1], half.part[1]}});
        const F4 v = four.part[0];
        const float even = v[0] > v[2] ? v[0] : v[2];
        const float odd = v[1] > v[3] ? v[1] : v[3];
        return even > odd ? even : odd;
    }
    MANTISSA_LANES Doubles zero_doubles() { return {}; }
    MANTISSA_LANES Doubles add_squares(Doubles sums, Float a) {
        for (int i = 0; i < 16; ++i) {
            const auto x = static_cast<double>(a.part[i / 4][i % 4]);
            sums.lane[i] += x * x;
        }
        return sums;
    }
    MANTISSA_LANES double sum(Doubles a) {
        for (int half = 8; half > 0; half /= 2)
            for (int i = 0; i < half; ++i) a.lane[i] += a.lane[i + half];
        return a.lane[0];
    }

    /// target[c][r] = source[r][c] for 16 rows and columns, strides in elements.
    template <class T>
    MANTISSA_LANES void transpose16(const T* source, std::int64_t source_stride, T* target,
                                    std::int64_t target_stride) {
        for (int c = 0; c < 16; ++c)
            for (int r = 0; r < 16; ++r) target[c * target_stride + r] = source[r * source_stride + c];
    }
    template <class T>
    MANTISSA_LANES void transpose_lines(const T* source, std::int64_t source_stride, T* target,
                                        std::int64_t target_stride, bool stream_lines) {
        transpose_lines_by_sixteen<Lanes>(source, source_stride, target, target_stride, stream_lines);
    }

    /// Where x takes the place of a maximum: it is larger, or the first NaN.
    MANTISSA_LANES Mask wins(Float x, Float maximum) {
        return each<Mask>([&](int k) {
            const F4 a = x.part[k], b = maximum.part[k];
            return reinterpret_cast<I4>(b == b) & ~reinterpret_cast<I4>(a <= b);
        });
    }
    /// A mask of the `count` bytes that are `value`; the other lanes are not set.
    MANTISSA_LANES Mask are(const std::uint8_t* from, int count, std::uint8_t value) {
        Mask mask = {};
        for (int i = 0; i < count; ++i) mask.part[i / 4][i % 4] = from[i] == value ? -1 : 0;
        return mask;
    }
    /// `count` whole numbers from 0 to 255 as bytes.
    MANTISSA_LANES void store(std::uint8_t* to, Float a, int count) {
        for (int i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(a.part[i / 4][i % 4]);
    }
    /// lanes[index].
    MANTISSA_LANES Float permuted(Float lanes, const std::int32_t (&index)[16]) {
        Float out;
        for (int i = 0; i < 16; ++i) out.part[i / 4][i % 4] = lanes.part[index[i] / 4][index[i] % 4];
        return out;
    }

  private:
    MANTISSA_LANES void set(Float& a, int lane, std::uint32_t value) {
        float x;
        __builtin_memcpy(&x, &value, sizeof x);
        a.part[lane / 4][lane % 4] = x;
    }
    MANTISSA_LANES std::uint32_t get(const Float& a, int lane) {
        const float x = a.part[lane / 4][lane % 4];
        std::uint32_t value;
        __builtin_memcpy(&value, &x, sizeof value);
        return value;
    }
    // The conversions of numerics/formats.h once more, in a form without branches on the data's way that this
    // file may contain (see above); a test holds them to agree on every bit.
    MANTISSA_LANES std::uint16_t narrowed_bf16(std::uint32_t x) {
        if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((x >> 16) | 0x40u);
        return static_cast<std::uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
    }
    MANTISSA_LANES std::uint16_t narrowed_fp16(std::uint32_t x) {
        const std::uint32_t sign = (x >> 16) & 0x8000u;
        const std::uint32_t a = x & 0x7fffffffu;
        if (a > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
        if (a >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
        if (a < 0x33000000u) return static_cast<std::uint16_t>(sign);
        if (a >= 0x38800000u)
            return static_cast<std::uint16_t>(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
        const std::uint32_t significand = (a & 0x7fffffu) | 0x800000u;
        const std::uint32_t shift = 126 - (a >> 23);
        const std::uint32_t whole = significand >> shift;
        const std::uint32_t rest = significand & ((1u << shift) - 1u);
        const std::uint32_t half = 1u << (shift - 1);
        return static_cast<std::uint16_t>(sign | (whole + (rest > half || (rest == half && (whole & 1u)))));
    }
    MANTISSA_LANES std::uint32_t widened(std::uint16_t x) {
        const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000u) << 16;
        const std::uint32_t exponent = (x >> 10) & 0x1fu;
        const std::uint32_t fraction = x & 0x3ffu;
        if (exponent == 31) return sign | 0x7f800000u | (fraction << 13) | (fraction ? 0x400000u : 0u);
        if (exponent != 0) return sign | ((exponent + 112u) << 23) | (fraction << 13);
        if (fraction == 0) return sign;
        const auto shift = static_cast<std::uint32_t>(__builtin_clz(fraction)) - 21u;
        return sign | ((113u - shift) << 23) | (((fraction << shift) & 0x3ffu) << 13);
    }
};

/// A vector of FP32 as wide as registers are. Long sums keep `columns` of them.
struct Vector {
    using Float = Lanes::F4;
    static constexpr int width = 4, columns = 7;
    static constexpr bool twice = false, pairs = false, masks = false;
    MANTISSA_LANES Float zero() { return Float{}; }
    MANTISSA_LANES Float load(const float* from) {
        Float a;
        __builtin_memcpy(&a, from, sizeof a);
        return a;
    }
    /// No load is of less than a vector.
    struct Extent {};
    MANTISSA_LANES Extent extent(int) { return {}; }
    template <class T>
    MANTISSA_LANES Float load_widened(const T* from, Extent) {
        return Lanes::load_part(from, width).part[0];
    }
    MANTISSA_LANES void store(float* to, Float a) { __builtin_memcpy(to, &a, sizeof a); }
    /// For a value that is used more than once: the compiler would load it as often.
    MANTISSA_LANES Float load_once(const float* from) {
        Float a = load(from);
        asm("" : "+x"(a));
        return a;
    }
    MANTISSA_LANES Float load_broadcast(const float* from) { return Float{*from, *from, *from, *from}; }
    /// Never called: a block has several vectors.
    MANTISSA_LANES Float load_permuted(const float* from, const std::int32_t*) { return load(from); }
    MANTISSA_LANES Float add(Float a, Float b) { return a + b; }
    MANTISSA_LANES Float multiply_add(Float a, Float b, Float c) { return a * b + c; }
};

}  // namespace
}  // namespace mantissa::on_cpu
