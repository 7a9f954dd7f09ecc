// The loops of narrowing.h over the lanes of a level, which turn 16 numbers at a time. Everything is in an
// anonymous namespace, so that each source keeps its own copy, compiled for its own level.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/modes/narrowing.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t at_once = 16;

/// Calls `step(from, to)` for every 16 numbers; the last, fewer ones stand in a block of their own,
/// zeros behind them, and what becomes of it is copied: `stored(count)` elements of `to`.
template <class To, class Step, class Stored>
[[gnu::always_inline]] inline void in_steps(const float* from, To* to, std::int64_t count, Step step,
                                            Stored stored) {
    std::int64_t done = 0;
    for (; done + at_once <= count; done += at_once) step(from + done, to + stored(done));
    const std::int64_t rest = count - done;
    if (rest == 0) return;
    float last[at_once] = {};
    To narrowed[at_once];
    for (std::int64_t i = 0; i < rest; ++i) last[i] = from[done + i];
    step(last, narrowed);
    for (std::int64_t i = 0; i < stored(rest); ++i) to[stored(done) + i] = narrowed[i];
}

template <class Lanes>
void narrow_to_s8(const float* from, float factor, std::int8_t* to, std::int64_t count) {
    in_steps(
        from, to, count,
        [factor](const float* x, std::int8_t* out) {
            Lanes::store_bytes(out, Lanes::whole_bytes(x, factor, -128, 127));
        },
        [](std::int64_t n) { return n; });
}

template <class Lanes>
void narrow_to_s4(const float* from, float factor, std::uint8_t* to, std::int64_t count) {
    in_steps(
        from, to, count,
        [factor](const float* x, std::uint8_t* out) {
            const __m128i bytes = Lanes::whole_bytes(x, factor, -8, 7);
            // Of two neighbouring bytes, the lower half of each into one.
            const __m128i low = _mm_and_si128(bytes, _mm_set1_epi16(0x000f));
            const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi16(0x00f0));
            _mm_storel_epi64(reinterpret_cast<__m128i*>(out),
                             _mm_packus_epi16(_mm_or_si128(low, high), _mm_setzero_si128()));
        },
        [](std::int64_t n) { return (n + 1) / 2; });
}

template <class Lanes>
void narrow_to_b1(const float* from, std::uint8_t* to, std::int64_t count) {
    in_steps(
        from, to, count,
        [](const float* x, std::uint8_t* out) {
            const std::uint16_t signs = Lanes::signs(x);
            __builtin_memcpy(out, &signs, sizeof signs);
        },
        [](std::int64_t n) { return (n + 7) / 8; });
}

template <class Lanes>
constexpr NarrowingKernels narrowing_kernels_of{narrow_to_s8<Lanes>, narrow_to_s4<Lanes>,
                                                narrow_to_b1<Lanes>};

}  // namespace

}  // namespace mantissa::on_cpu
