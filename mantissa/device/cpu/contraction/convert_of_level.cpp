// The conversions of convert.h in plain loops, which the compiler makes vectors of; splits also in vectors
// that round to BF16, where the level has them.
#include <bit>
#include <cstdint>

#include "mantissa/device/cpu/contraction/convert.h"
#ifdef __AVX512BF16__
#include "mantissa/device/cpu/contraction/split_avx512bf16.h"
#endif

namespace mantissa::inline v0::on_cpu {

namespace {

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

constexpr std::uint32_t magnitude_mask = 0x7fffffffu, infinity_bits = 0x7f800000u;

/// Cuts `drop` bits of the fraction off, to nearest and ties to even; toward zero where that would be
/// infinite, and for infinities. A NaN stays one.
template <int drop>
inline std::uint32_t shortened(std::uint32_t bits) {
    constexpr std::uint32_t cut = (1u << drop) - 1;
    const std::uint32_t rounded = bits + (cut >> 1) + ((bits >> drop) & 1);
    const bool is_nan = (bits & magnitude_mask) > infinity_bits;
    const bool overflows = (rounded & magnitude_mask) >= infinity_bits;
    const std::uint32_t kept = overflows ? bits : rounded;
    return (is_nan ? bits | 0x00400000u : kept) & ~cut;
}

/// Zero in place of a subnormal number, as units that multiply BF16 take it.
inline std::uint32_t flushed(std::uint32_t bits) {
    return (bits & magnitude_mask) < 0x00800000u ? bits & ~magnitude_mask : bits;
}

inline bool is_finite_bits(std::uint32_t bits) { return (bits & magnitude_mask) < infinity_bits; }

/// FP16 to FP32, exact; by integers, since the flush of subnormals is on.
inline float widened(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    const std::uint32_t normal = (magnitude << 13) + (112u << 23);
    const std::uint32_t special = (magnitude << 13) + (224u << 23);
    const std::uint32_t subnormal =
        bits_of(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
    const std::uint32_t chosen = magnitude >= 0x7c00u ? special : normal;
    return from_bits((magnitude < 0x0400u ? subnormal : chosen) | sign);
}

/// A number in two parts of BF16: hi, and lo, the rest. Where hi had to be rounded toward zero, lo is too, or
/// their sum could overflow. The rest of an infinity or a NaN is 0.
struct Split {
    std::uint16_t hi, lo;
};
inline Split split(float x) {
    const std::uint32_t bits = flushed(bits_of(x)), hi = shortened<16>(bits);
    const bool finite = is_finite_bits(hi);
    const bool toward_zero = (hi & magnitude_mask) == 0x7f7f0000u;  // the largest BF16
    const std::uint32_t rest = flushed(bits_of(finite ? from_bits(bits) - from_bits(hi) : 0.0f));
    const std::uint32_t lo = toward_zero ? rest & 0xffff0000u : shortened<16>(rest);
    return {static_cast<std::uint16_t>(hi >> 16), static_cast<std::uint16_t>(lo >> 16)};
}

inline bool to_tf32(const void* from, std::int64_t count, void* const* parts) {
    const auto* const x = static_cast<const float*>(from);
    auto* const y = static_cast<float*>(parts[0]);
    for (std::int64_t i = 0; i < count; ++i) y[i] = from_bits(shortened<13>(bits_of(x[i])));
    return true;
}

inline bool widen_fp16(const void* from, std::int64_t count, void* const* parts) {
    const auto* const x = static_cast<const std::uint16_t*>(from);
    auto* const y = static_cast<float*>(parts[0]);
    for (std::int64_t i = 0; i < count; ++i) y[i] = widened(x[i]);
    return true;
}

#ifndef __AVX512BF16__

/// The least magnitude that rounds to BF16's largest number or to infinity: its first part needs a rule of
/// its own.
constexpr std::uint32_t extraordinary_bits = 0x7f7e8000u;

/// shortened<16>() of an ordinary number.
inline std::uint32_t first_part(std::uint32_t bits) {
    return (bits + 0x7fffu + ((bits >> 16) & 1)) & 0xffff0000u;
}

/// The result of split() for rows of ordinary numbers, as nearly all are: a third of the work; false for
/// others.
inline bool split_ordinary(const float* __restrict x, std::int64_t count, std::uint16_t* __restrict hi,
                           std::uint16_t* __restrict lo) {
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t bits = flushed(bits_of(x[i])), magnitude = bits & magnitude_mask;
        largest = magnitude > largest ? magnitude : largest;
        const std::uint32_t first = first_part(bits);
        hi[i] = static_cast<std::uint16_t>(first >> 16);
        lo[i] = static_cast<std::uint16_t>(first_part(flushed(bits_of(from_bits(bits) - from_bits(first)))) >>
                                           16);
    }
    return largest < extraordinary_bits;
}

inline bool split_ordinary(const std::uint16_t* x, std::int64_t count, std::uint16_t* hi, std::uint16_t* lo) {
    constexpr std::int64_t piece = 64;
    float wide[piece];
    bool ordinary = true;
    for (std::int64_t i = 0; i < count; i += piece) {
        const std::int64_t n = count - i < piece ? count - i : piece;
        for (std::int64_t j = 0; j < n; ++j) wide[j] = widened(x[i + j]);
        ordinary = split_ordinary(wide, n, hi + i, lo + i) && ordinary;
    }
    return ordinary;
}

#endif

inline float number(float x) { return x; }
inline float number(std::uint16_t half) { return widened(half); }

/// Parts: hi and lo. FP16 has 11 bits, which two parts of 8 hold.
template <class From>
inline bool split_row(const void* from, std::int64_t count, void* const* parts) {
    const auto* const x = static_cast<const From*>(from);
    auto* const hi = static_cast<std::uint16_t*>(parts[0]);
    auto* const lo = static_cast<std::uint16_t*>(parts[1]);
    if (split_ordinary(x, count, hi, lo)) return true;
    for (std::int64_t i = 0; i < count; ++i) {
        const Split s = split(number(x[i]));
        hi[i] = s.hi;
        lo[i] = s.lo;
    }
    return false;
}

}  // namespace

const ConvertKernels& MANTISSA_OF_LEVEL(convert_kernels)() {
    static constexpr ConvertKernels table = {to_tf32, widen_fp16, split_row<float>, split_row<std::uint16_t>};
    return table;
}

}  // namespace mantissa::on_cpu
