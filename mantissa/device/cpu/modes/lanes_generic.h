// Lanes in plain C++ (vector types that GCC and Clang lower to any machine): FP64, FP16 and bits, as
// peak_body.h wants them, and bytes, as byte_body.h does. The twins for AVX2, AVX-512, VNNI and VPOPCNTDQ
// have the same members. In an anonymous namespace, so that each source keeps its own copy, compiled for its
// own level.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/numerics/formats.h"

#define MANTISSA_MODE_LANES [[gnu::always_inline]] static inline

namespace mantissa::inline v0::on_cpu {
namespace {

template <class Value, class Vector>
struct GenericModeLanes {
    /// Sums of a vector; a word of a panel holds `depth_of_word` elements along the depth.
    static constexpr int width = sizeof(Vector) / sizeof(Value);
    static constexpr int word_bytes = sizeof(Value);
    /// The block of sums in registers: rows, and vectors of columns.
    static constexpr int height = 4, vectors = 2;
    using Sum = Value;
    using Sums = Vector;
    using Words = Vector;

    MANTISSA_MODE_LANES Sums zero() { return Sums{}; }
    MANTISSA_MODE_LANES Sums load(const Sum* from) {
        Sums sums;
        __builtin_memcpy(&sums, from, sizeof sums);
        return sums;
    }
    MANTISSA_MODE_LANES void store(Sum* to, Sums sums) { __builtin_memcpy(to, &sums, sizeof sums); }
    MANTISSA_MODE_LANES Words load_words(const std::byte* panel) {
        Words words;
        __builtin_memcpy(&words, panel, sizeof words);
        return words;
    }
    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) {
        Value value;
        __builtin_memcpy(&value, word, sizeof value);
        return Words{} + value;
    }
    /// The compiler must take it for anything, and for used.
    MANTISSA_MODE_LANES void hide(Sums& a) { asm volatile("" : "+x"(a)); }
};

using GenericDoubles = double __attribute__((vector_size(16)));
using GenericIntegers = std::uint32_t __attribute__((vector_size(16)));  // so that sums wrap

struct GenericF64Lanes : GenericModeLanes<double, GenericDoubles> {
    static constexpr int depth_of_word = 1;
    /// sums + row * column, multiplied and added apart.
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) { return sums + row * column; }
};

/// FP16 numbers as FP32, which holds the product of two of them exactly. Where the sum of the product and a
/// third number is not exact, it is made odd in its last place. Rounding it to FP16 then gives what a single
/// rounding would give: FP32 has 13 places more than FP16, and two are enough.
struct GenericF16Lanes {
    static constexpr int width = 4, depth_of_word = 1;
    using Sums = float __attribute__((vector_size(16)));
    using Words = Sums;
    using Bits = std::int32_t __attribute__((vector_size(16)));

    MANTISSA_MODE_LANES Sums zero() { return Sums{}; }
    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) {
        float value;
        __builtin_memcpy(&value, word, sizeof value);
        return Words{value, value, value, value};
    }
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        const Sums product = row * column, sum = sums + product, of_product = sum - sums;
        const Sums error = (sums - (sum - of_product)) + (product - of_product);
        const Bits bits = bits_of(sum);
        const Bits even = (bits & 1) - 1, inexact = (error < 0) | (error > 0);  // false of a NaN
        const Bits toward = ((bits_of(error) ^ bits) >> 31) | 1;
        return rounded(from_bits(bits + (toward & even & inexact)));
    }
    MANTISSA_MODE_LANES void hide(Sums& a) { asm volatile("" : "+x"(a)); }

  private:
    MANTISSA_MODE_LANES Bits bits_of(Sums a) {
        Bits bits;
        __builtin_memcpy(&bits, &a, sizeof bits);
        return bits;
    }
    MANTISSA_MODE_LANES Sums from_bits(Bits bits) {
        Sums a;
        __builtin_memcpy(&a, &bits, sizeof a);
        return a;
    }
    MANTISSA_MODE_LANES Sums rounded(Sums a) {
        for (int i = 0; i < width; ++i) a[i] = to_f32(to_fp16(a[i]));
        return a;
    }
};

struct GenericS8Lanes : GenericModeLanes<std::uint32_t, GenericIntegers> {
    static constexpr int depth_of_word = 4;
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        for (int shift = 0; shift < 32; shift += 8) sums += byte_at(row, shift) * byte_at(column, shift);
        return sums;
    }

  private:
    /// Extended by its sign.
    MANTISSA_MODE_LANES GenericIntegers byte_at(Words words, int shift) {
        return (((words >> shift) & 0xffu) ^ 0x80u) - 0x80u;
    }
};

struct GenericB1Lanes : GenericModeLanes<std::uint32_t, GenericIntegers> {
    static constexpr int depth_of_word = 32;
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        Words x = row ^ column;
        x -= (x >> 1) & 0x55555555u;  // counts of 2 bits, of 4, of 8, and their sum
        x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
        x = (x + (x >> 4)) & 0x0f0f0f0fu;
        x += x >> 8;
        x += x >> 16;
        return sums + (x & 0x3fu);
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
