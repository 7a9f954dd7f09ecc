// The loops of peaks.h over the lanes of the contraction and of modes/: nothing but independent
// multiply-adds in registers, as many as the level's registers hold; and nothing but reading. Everything is
// in an anonymous namespace, so that each source keeps its own copy, compiled for its own level.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mantissa::inline v0::on_cpu {

namespace {

/// `one` is a word that holds the factors of each lane. More sums are in flight than latency times units, 4
/// or 5 times 2. The sums grow to a fixed point, so that none is subnormal. The compiler cannot see through
/// the factors, so it neither leaves products out nor computes them only once.
template <class Lanes, int InFlight, class Word>
double multiply_add_loop(std::int64_t rounds, Word one) {
    auto factor = Lanes::broadcast(reinterpret_cast<const std::byte*>(&one));
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
    return static_cast<double>(rounds) * InFlight * Lanes::width * Lanes::depth_of_word * 2;
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
