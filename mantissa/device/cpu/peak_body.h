// The loops of peaks.h over the lanes of the contraction and of the matrix modes: nothing but independent
// multiply-adds in registers, as many as the level's registers hold; and nothing but reading. Everything is
// in an anonymous namespace, so that each source keeps its own copy, compiled for its own level.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mantissa::inline v0::on_cpu {

namespace {

/// `one` is a word that holds the factors of each lane. In flight are more sums than latency times units, 4
/// or 5 times 2. They grow until they no longer do, so that none is subnormal. What the compiler cannot see
/// through it neither leaves out nor computes once for all.
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
