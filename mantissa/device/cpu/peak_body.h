// The loops of peaks.h over the lanes of the contraction, and over those here for formats that nothing is
// multiplied in: nothing but independent multiply-adds in registers, as many as the level's registers hold;
// and nothing but reading. Everything is in an anonymous namespace, so that each source keeps its own copy,
// compiled for its own level.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

#define MANTISSA_PEAK_LANES [[gnu::always_inline]] static inline

/// Vectors of so many bytes, in operations that compilers lower to any machine. A word holds `Depth`
/// elements.
template <class Value, int Bytes, int Depth = 1>
struct VectorLanes {
    static constexpr int width = Bytes / static_cast<int>(sizeof(Value)), depth_of_word = Depth;
    typedef Value Sums __attribute__((vector_size(Bytes)));
    using Words = Sums;

    MANTISSA_PEAK_LANES Sums zero() { return Sums{}; }
    MANTISSA_PEAK_LANES Words broadcast(const std::byte* word) {
        Value value;
        __builtin_memcpy(&value, word, sizeof value);
        return Words{} + value;
    }
    /// sums + row * column, multiplied and added apart; whole numbers are unsigned, so that sums wrap.
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) { return sums + row * column; }
    /// The compiler must take it for anything, and for used.
    MANTISSA_PEAK_LANES void hide(Sums& a) { asm volatile("" : "+v"(a)); }
};

/// FP16 numbers as FP32, which holds the product of two of them exactly. Where the sum of the product and a
/// third number is not exact, it is made odd in its last place. Rounding it to FP16 then gives the result of
/// a single rounding: FP32 has 13 places more than FP16, and two are enough.
template <int Bytes>
struct OddLanes : VectorLanes<float, Bytes> {
    using Sums = typename VectorLanes<float, Bytes>::Sums;
    typedef std::int32_t Bits __attribute__((vector_size(Bytes)));

    MANTISSA_PEAK_LANES Sums odd_sum(Sums row, Sums column, Sums sums) {
        const Sums product = row * column, sum = sums + product, of_product = sum - sums;
        const Sums error = (sums - (sum - of_product)) + (product - of_product);
        const Bits bits = reinterpret_cast<Bits>(sum);
        const Bits even = (bits & 1) - 1, inexact = (error < 0) | (error > 0);  // false of a NaN
        const Bits toward = ((reinterpret_cast<Bits>(error) ^ bits) >> 31) | 1;
        return reinterpret_cast<Sums>(bits + (toward & even & inexact));
    }
};

/// Words of factors, as bits.
constexpr std::uint64_t f32_one = 0x3f800000, f64_one = 0x3ff0000000000000, s8_ones = 0x01010101;

/// `one` is a word that holds the factors of each lane. More sums are in flight than latency times units, 4
/// or 5 times 2. The sums grow until they no longer do, so that none is subnormal. The compiler cannot see
/// through the factors, so it neither leaves products out nor computes them only once.
template <class Lanes, int InFlight, std::uint64_t one, int elements_of_word>
double multiply_add_loop(std::int64_t rounds) {
    const std::uint64_t word = one;  // its first bytes are the lowest
    auto factor = Lanes::broadcast(reinterpret_cast<const std::byte*>(&word));
    auto other = factor;  // a bit and itself are no product
    Lanes::hide(other);
    typename Lanes::Sums sums[InFlight];
#pragma GCC unroll 16
    for (int i = 0; i < InFlight; ++i) {
        sums[i] = Lanes::zero();
        Lanes::hide(sums[i]);
    }
    for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
        for (int i = 0; i < InFlight; ++i) {
            Lanes::hide(factor);
            sums[i] = Lanes::multiply_add(factor, other, sums[i]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < InFlight; ++i) Lanes::hide(sums[i]);
    return static_cast<double>(rounds) * InFlight * Lanes::width * elements_of_word * 2;
}

template <class Lanes, int InFlight, std::uint64_t one, int elements_of_word = Lanes::depth_of_word>
FormatUnit unit_of(int instructions, const char* name) {
    return {multiply_add_loop<Lanes, InFlight, one, elements_of_word>, 2.0 * Lanes::width * elements_of_word,
            instructions, name};
}

/// Multiply-adds of a 2:4 sparse first operand, whose zeros are skipped but counted. Each kept number meets
/// words that its position names, so these are read from L1, and tiles are wide and low.
template <class Lanes, int Height, int Vectors>
double sparse_multiply_add_loop(std::int64_t rounds) {
    constexpr int depth = 16, line_bytes = Vectors * Lanes::width * 4;
    struct Kept {
        float number[Height];
        std::uint32_t offset[Height];
    };
    alignas(64) std::byte words[depth * line_bytes] = {};
    Kept kept[depth / 2] = {};
    for (int k = 0; k < depth / 2; ++k)
        for (int i = 0; i < Height; ++i) {
            kept[k].number[i] = 1;
            kept[k].offset[i] = static_cast<std::uint32_t>((k / 2 * 4 + k % 2 * 2 + i % 2) * line_bytes);
        }
    typename Lanes::Sums sums[Height][Vectors];
#pragma GCC unroll 8
    for (int i = 0; i < Height; ++i)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sums[i][v] = Lanes::zero();
    for (std::int64_t round = 0; round < rounds; ++round) {
        asm volatile("" : : "r"(kept), "r"(words) : "memory");
        for (int k = 0; k < depth / 2; ++k)
#pragma GCC unroll 8
            for (int i = 0; i < Height; ++i) {
                const auto row = Lanes::broadcast(reinterpret_cast<const std::byte*>(&kept[k].number[i]));
                const std::byte* const at = words + kept[k].offset[i];
#pragma GCC unroll 8
                for (int v = 0; v < Vectors; ++v)
                    sums[i][v] =
                        Lanes::multiply_add(row, Lanes::load_words(at + v * Lanes::width * 4), sums[i][v]);
            }
    }
#pragma GCC unroll 8
    for (int i = 0; i < Height; ++i)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) Lanes::hide(sums[i][v]);
    return static_cast<double>(rounds) * depth * Height * Vectors * Lanes::width * 2;
}

/// Reads `count` floats, a multiple of 8 vectors, `repeats` times over.
template <class Lanes>
void read_floats(const float* data, std::int64_t count, std::int64_t repeats) {
    for (std::int64_t repeat = 0; repeat < repeats; ++repeat)
        for (std::int64_t i = 0; i < count; i += 8 * Lanes::width) {
#pragma GCC unroll 8
            for (int v = 0; v < 8; ++v) {
                auto read = Lanes::load(data + i + v * Lanes::width);
                Lanes::hide(read);
            }
        }
}

}  // namespace

}  // namespace mantissa::on_cpu
