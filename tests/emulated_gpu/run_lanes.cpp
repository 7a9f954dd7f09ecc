// Arithmetic within lanes: all 32 are computed, those that execute are kept.
#include <immintrin.h>

#include <bit>
#include <cmath>

#include "tests/emulated_gpu/run_warp.h"
#include "tests/emulated_gpu/warp.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

template <class T>
void keep(std::byte* d, const std::byte* found, std::uint32_t mask) {
    for (int lane = 0; lane < warp_lanes; ++lane)
        if (mask >> lane & 1)
            std::memcpy(d + sizeof(T) * static_cast<std::size_t>(lane),
                        found + sizeof(T) * static_cast<std::size_t>(lane), sizeof(T));
}

void keep(std::byte* d, const std::byte* found, int width, std::uint32_t mask) {
    switch (width) {
        case 1:
            return keep<std::uint8_t>(d, found, mask);
        case 2:
            return keep<std::uint16_t>(d, found, mask);
        case 4:
            return keep<std::uint32_t>(d, found, mask);
        default:
            return keep<std::uint64_t>(d, found, mask);
    }
}

Sources sources_of(Warp& w, const Instruction& i) {
    return {w.at(i.a), w.at(i.b), w.at(i.c), w.at(i.e), i.number};
}

}  // namespace

void run_lanes(Warp& w, const Instruction& i) {
    const Sources sources = sources_of(w, i);
    if (w.executing == ~0u) {
        i.lanes(w.at(i.d), sources);
    } else {
        alignas(64) std::byte found[8 * warp_lanes];
        i.lanes(found, sources);
        keep(w.at(i.d), found, i.d.width, w.executing);
    }
    ++w.pc;
}

void run_rounded_lanes(Warp& w, const Instruction& i) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | i.rounding);
    run_lanes(w, i);
    _mm_setcsr(before);
}

/// setp: number is the boolean operation with `c`: 0 none, 1 and, 2 or, 3 xor.
void run_compare(Warp& w, const Instruction& i) {
    const std::uint32_t holds = i.test(sources_of(w, i));
    std::uint32_t p = holds, q = ~holds;
    if (i.number != 0) {
        std::uint32_t c = w.predicate(i.c);
        if (i.operand_negated) c = ~c;
        const auto with = [&](std::uint32_t x) {
            return i.number == 1 ? x & c : i.number == 2 ? x | c : x ^ c;
        };
        p = with(holds);
        q = with(~holds);
    }
    w.set_predicate(i.d, p);
    w.set_predicate(i.e, q);
    ++w.pc;
}

/// set: all ones, or the bits of `number` where the result is a float.
void run_set(Warp& w, const Instruction& i) {
    const std::uint32_t holds = i.test(sources_of(w, i));
    std::array<std::uint32_t, warp_lanes> out;
    for (std::size_t lane = 0; lane < warp_lanes; ++lane) out[lane] = holds >> lane & 1 ? i.number : 0;
    w.set(i.d, out);
    ++w.pc;
}

namespace {

void select(Warp& w, const Instruction& i, std::uint32_t first) {
    std::byte *const d = w.at(i.d), *const a = w.at(i.a), *const b = w.at(i.b);
    alignas(64) std::byte found[8 * warp_lanes];
    const std::size_t bytes = static_cast<std::size_t>(i.d.width) * warp_lanes;
    std::memcpy(found, b, bytes);
    keep(found, a, i.d.width, first);
    if (w.executing == ~0u)
        std::memcpy(d, found, bytes);
    else
        keep(d, found, i.d.width, w.executing);
    ++w.pc;
}

}  // namespace

void run_select(Warp& w, const Instruction& i) {
    const std::uint32_t holds = w.predicate(i.c);
    select(w, i, i.operand_negated ? ~holds : holds);
}

/// slct: where c >= 0; number 1: c is a float, 3: with subnormals flushed. A NaN takes b, -0 is 0.
void run_select_by_sign(Warp& w, const Instruction& i) {
    std::uint32_t first = 0;
    for (int lane = 0; lane < warp_lanes; ++lane) {
        const auto bits = w.lane_of<std::int32_t>(i.c, lane);
        const auto number = std::bit_cast<float>(bits);
        const bool flushed = (i.number & 2) != 0 && std::fpclassify(number) == FP_SUBNORMAL;
        const bool holds = (i.number & 1) != 0 ? flushed || number >= 0 : bits >= 0;
        first |= std::uint32_t{holds} << lane;
    }
    select(w, i, first);
}

/// testp: number in the order finite, infinite, number, notanumber, normal, subnormal.
void run_class_test(Warp& w, const Instruction& i) {
    std::uint32_t holds = 0;
    for (int lane = 0; lane < warp_lanes; ++lane) {
        const bool is_double = i.a.width == 8;
        const double x = is_double ? w.lane_of<double>(i.a, lane) : double{w.lane_of<float>(i.a, lane)};
        const int kind = is_double ? std::fpclassify(x) : std::fpclassify(w.lane_of<float>(i.a, lane));
        const bool of_kind[] = {kind != FP_NAN && kind != FP_INFINITE,
                                kind == FP_INFINITE,
                                kind != FP_NAN,
                                kind == FP_NAN,
                                kind == FP_NORMAL,
                                kind == FP_SUBNORMAL};
        holds |= std::uint32_t{of_kind[i.number]} << lane;
    }
    w.set_predicate(i.d, holds);
    ++w.pc;
}

/// number: 0 mov, 1 and, 2 or, 3 xor, 4 not.
void run_predicate_logic(Warp& w, const Instruction& i) {
    const std::uint32_t a = w.predicate(i.a), b = w.predicate(i.b);
    const std::uint32_t all[] = {a, a & b, a | b, a ^ b, ~a};
    w.set_predicate(i.d, all[i.number]);
    ++w.pc;
}

/// mov of a vector into one register: the first element is the lowest.
void run_pack(Warp& w, const Instruction& i) {
    std::byte* const d = w.at(i.d);
    std::byte found[8 * warp_lanes];
    const auto part = static_cast<std::size_t>(i.d.width) / i.many.size();
    for (std::size_t lane = 0; lane < warp_lanes; ++lane)
        for (std::size_t k = 0; k < i.many.size(); ++k)
            std::memcpy(found + lane * i.d.width + k * part, w.at(i.many[k]) + lane * part, part);
    keep(d, found, i.d.width, w.executing);
    ++w.pc;
}

void run_unpack(Warp& w, const Instruction& i) {
    std::byte from[8 * warp_lanes];
    std::memcpy(from, w.at(i.a), static_cast<std::size_t>(i.a.width) * warp_lanes);
    const auto part = static_cast<std::size_t>(i.a.width) / i.many.size();
    for (std::size_t k = 0; k < i.many.size(); ++k) {
        if (i.many[k].base == Place::nowhere) continue;
        for (std::size_t lane = 0; lane < warp_lanes; ++lane)
            if (w.executing >> lane & 1)
                std::memcpy(w.at(i.many[k]) + lane * part, from + lane * i.a.width + k * part, part);
    }
    ++w.pc;
}

/// Between a caller's parameters and its function's: many has pairs, to and from, targets their bytes a lane.
void run_copy_arguments(Warp& w, const Instruction& i) {
    for (std::size_t k = 0; k < i.targets.size(); ++k)
        for (std::size_t lane = 0; lane < warp_lanes; ++lane)
            if (w.executing >> lane & 1)
                std::memcpy(w.at(i.many[2 * k]) + lane * i.targets[k],
                            w.at(i.many[2 * k + 1]) + lane * i.targets[k], i.targets[k]);
    ++w.pc;
}

}  // namespace mantissa::cuda::ptx
