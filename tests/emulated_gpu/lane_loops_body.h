// The lane functions that compilers can vectorise: integers, FP32 and FP64. Included by one source an
// instruction set, so all is in an anonymous namespace.
//
// FP32 as PTX has it: with .ftz subnormal operands and results become zeros of their sign; every NaN that
// comes out is 0x7fffffff. Rounding other than to nearest is the caller's, who sets the processor's mode.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tests/emulated_gpu/lane_functions.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

template <class T>
struct Lanes {
    T of[warp_lanes];
    explicit Lanes(const std::byte* from) { std::memcpy(of, from, sizeof of); }
};

template <class F, class D, class A>
void one(std::byte* d, const Sources& s) {
    const Lanes<A> a(s.a);
    D out[warp_lanes];
    for (int i = 0; i < warp_lanes; ++i) out[i] = F::of(a.of[i]);
    std::memcpy(d, out, sizeof out);
}

template <class F, class D, class A, class B>
void two(std::byte* d, const Sources& s) {
    const Lanes<A> a(s.a);
    const Lanes<B> b(s.b);
    D out[warp_lanes];
    for (int i = 0; i < warp_lanes; ++i) out[i] = F::of(a.of[i], b.of[i]);
    std::memcpy(d, out, sizeof out);
}

template <class F, class D, class A, class B, class C>
void three(std::byte* d, const Sources& s) {
    const Lanes<A> a(s.a);
    const Lanes<B> b(s.b);
    const Lanes<C> c(s.c);
    D out[warp_lanes];
    for (int i = 0; i < warp_lanes; ++i) out[i] = F::of(a.of[i], b.of[i], c.of[i]);
    std::memcpy(d, out, sizeof out);
}

template <class F, class A>
std::uint32_t test(const Sources& s) {
    const Lanes<A> a(s.a);
    const Lanes<A> b(s.b);
    std::uint32_t bits = 0;
    for (int i = 0; i < warp_lanes; ++i) bits |= std::uint32_t{F::of(a.of[i], b.of[i])} << i;
    return bits;
}

}  // namespace

}  // namespace mantissa::cuda::ptx
