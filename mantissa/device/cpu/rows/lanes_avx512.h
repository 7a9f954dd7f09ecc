// Sixteen FP32 lanes in one AVX-512 register: the twin of lanes_generic.h, with the same bits from each
// member. In an unnamed namespace for the reason given there.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/intrinsics.h"
#include "mantissa/numerics/sixteen_bit.h"

#define MANTISSA_LANES [[gnu::always_inline]] static inline
// For long functions that are used often: inlined here, where they take few registers.
#define MANTISSA_LONG_LANES MANTISSA_LANES

#include "mantissa/device/cpu/rows/transpose16_avx2.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct Lanes {
    static constexpr int width = 16;
    static constexpr int registers = 32;
    using Float = __m512;
    using Int = __m512i;
    using Mask = __mmask16;
    struct Doubles {
        __m512d low, high;
    };

    MANTISSA_LANES Float constant(float x) { return _mm512_set1_ps(x); }
    MANTISSA_LANES Int integer(int x) { return _mm512_set1_epi32(x); }
    MANTISSA_LANES Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
    MANTISSA_LANES Float subtract(Float a, Float b) { return _mm512_sub_ps(a, b); }
    MANTISSA_LANES Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
    MANTISSA_LANES Float divide(Float a, Float b) { return _mm512_div_ps(a, b); }
    MANTISSA_LANES Float negate(Float a) {
        return from_bits(_mm512_xor_si512(bits(a), integer(static_cast<int>(0x80000000u))));
    }
    MANTISSA_LANES Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
    MANTISSA_LANES Mask less(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
    MANTISSA_LANES Mask is_nan(Float a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
    MANTISSA_LANES Float select(Mask mask, Float a, Float b) { return _mm512_mask_blend_ps(mask, b, a); }
    MANTISSA_LANES Float minimum(Float a, Float b) { return _mm512_min_ps(a, b); }
    MANTISSA_LANES Float maximum(Float a, Float b) { return _mm512_max_ps(a, b); }

    MANTISSA_LANES Int bits(Float a) { return _mm512_castps_si512(a); }
    MANTISSA_LANES Float from_bits(Int a) { return _mm512_castsi512_ps(a); }
    MANTISSA_LANES Int add_int(Int a, Int b) { return _mm512_add_epi32(a, b); }
    MANTISSA_LANES Int and_int(Int a, Int b) { return _mm512_and_si512(a, b); }
    MANTISSA_LANES Int or_int(Int a, Int b) { return _mm512_or_si512(a, b); }
    template <int Count>
    MANTISSA_LANES Int shift_left(Int a) {
        return _mm512_slli_epi32(a, Count);
    }
    template <int Count>
    MANTISSA_LANES Int shift_right_signed(Int a) {
        return _mm512_srai_epi32(a, Count);
    }
    MANTISSA_LANES Float to_float(Int a) { return _mm512_cvtepi32_ps(a); }

    MANTISSA_LANES Mask first(int count) { return static_cast<Mask>((1u << count) - 1u); }
    MANTISSA_LANES Float load(const float* from) { return _mm512_loadu_ps(from); }
    MANTISSA_LANES Float load(const BF16* from) { return widened_bf16(load_half(from)); }
    MANTISSA_LANES Float load(const FP16* from) { return _mm512_cvtph_ps(load_half(from)); }
    MANTISSA_LANES Float load_masked(const float* from, Mask mask) {
        return _mm512_maskz_loadu_ps(mask, from);
    }
    MANTISSA_LANES Float load_masked(const BF16* from, Mask mask) {
        return widened_bf16(_mm256_maskz_loadu_epi16(mask, from));
    }
    MANTISSA_LANES Float load_masked(const FP16* from, Mask mask) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
    }
    template <class T>
    MANTISSA_LANES Float load_part(const T* from, int count) {
        return load_masked(from, first(count));
    }
    MANTISSA_LANES void store(float* to, Float a) { _mm512_storeu_ps(to, a); }
    MANTISSA_LANES void store(BF16* to, Float a) { store_half(to, narrowed_bf16(a)); }
    MANTISSA_LANES void store(FP16* to, Float a) { store_half(to, narrowed_fp16(a)); }
    MANTISSA_LANES void store_part(float* to, Float a, int count) {
        _mm512_mask_storeu_ps(to, first(count), a);
    }
    MANTISSA_LANES void store_part(BF16* to, Float a, int count) {
        _mm256_mask_storeu_epi16(to, first(count), narrowed_bf16(a));
    }
    MANTISSA_LANES void store_part(FP16* to, Float a, int count) {
        _mm256_mask_storeu_epi16(to, first(count), narrowed_fp16(a));
    }
    static constexpr bool can_stream = true;
    MANTISSA_LANES void stream(float* to, Float a) { _mm512_stream_ps(to, a); }
    MANTISSA_LANES void stream(BF16* to, Float a) { stream_half(to, narrowed_bf16(a)); }
    MANTISSA_LANES void stream(FP16* to, Float a) { stream_half(to, narrowed_fp16(a)); }
    template <class T>
    MANTISSA_LANES void store_two(T* to, Float a, Float b) {
        store(to, a);
        store(to + 16, b);
    }
    MANTISSA_LANES void store_two(BF16* to, Float a, Float b) {
        _mm512_storeu_si512(to, narrowed_bf16(a, b));
    }
    template <class T>
    MANTISSA_LANES void stream_two(T* to, Float a, Float b) {
        stream(to, a);
        stream(to + 16, b);
    }
    MANTISSA_LANES void stream_two(BF16* to, Float a, Float b) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), narrowed_bf16(a, b));
    }
    MANTISSA_LANES void fence() { _mm_sfence(); }

    MANTISSA_LANES float sum(Float a) {
        const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
    }
    MANTISSA_LANES float greatest(Float a) {
        const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
        const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
    }
    MANTISSA_LANES Doubles zero_doubles() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
    MANTISSA_LANES Doubles add_squares(Doubles sums, Float a) {
        // The square of an FP32 number is exact in FP64, so fused or not makes no difference.
        const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(a));
        const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
        return {_mm512_fmadd_pd(low, low, sums.low), _mm512_fmadd_pd(high, high, sums.high)};
    }
    MANTISSA_LANES double sum(Doubles a) {
        const __m512d eight = _mm512_add_pd(a.low, a.high);
        const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
        const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
        return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
    }

    MANTISSA_LANES void transpose16(const std::uint32_t* source, std::int64_t source_stride,
                                    std::uint32_t* target, std::int64_t target_stride) {
        __m512i rows[16];
        for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_si512(source + i * source_stride);
        transpose_words(
            rows, [&](int column, __m512i words) __attribute__((always_inline)) {
                _mm512_storeu_si512(target + column * target_stride, words);
            });
    }
    MANTISSA_LANES void transpose16(const std::uint16_t* source, std::int64_t source_stride,
                                    std::uint16_t* target, std::int64_t target_stride) {
        transpose16_halves(source, source_stride, target, target_stride);
    }
    /// As many rows as make a line of the target, and as many columns; streamed lines are aligned.
    MANTISSA_LANES void transpose_lines(const std::uint32_t* source, std::int64_t source_stride,
                                        std::uint32_t* target, std::int64_t target_stride, bool stream) {
        __m512i rows[16];
        for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_si512(source + i * source_stride);
        const auto line_of = [&](int column) __attribute__((always_inline)) {
            return target + column * target_stride;
        };
        put_transposed(rows, line_of, stream);
    }
    MANTISSA_LANES void transpose_lines(const std::uint16_t* source, std::int64_t source_stride,
                                        std::uint16_t* target, std::int64_t target_stride, bool stream) {
        // Two rows become one of pairs: in its 128-bit lane L the columns 8 L ... 8 L + 3, or the four after
        // these.
        for (int half = 0; half < 2; ++half) {
            __m512i pairs[16];
            for (int i = 0; i < 16; ++i) {
                const __m512i a = _mm512_loadu_si512(source + 2 * i * source_stride);
                const __m512i b = _mm512_loadu_si512(source + (2 * i + 1) * source_stride);
                pairs[i] = half == 0 ? _mm512_unpacklo_epi16(a, b) : _mm512_unpackhi_epi16(a, b);
            }
            const auto line_of = [&](int pair) __attribute__((always_inline)) {
                return target + (pair / 4 * 8 + 4 * half + pair % 4) * target_stride;
            };
            put_transposed(pairs, line_of, stream);
        }
    }

    /// Where x takes the place of a maximum: it is larger, or the first NaN.
    MANTISSA_LANES Mask wins(Float x, Float maximum) {
        const Mask number = _mm512_cmp_ps_mask(maximum, maximum, _CMP_ORD_Q);
        return _mm512_mask_cmp_ps_mask(number, x, maximum, _CMP_NLE_UQ);
    }
    /// A mask of the `count` bytes that are `value`; the other lanes are not set.
    MANTISSA_LANES Mask are(const std::uint8_t* from, int count, std::uint8_t value) {
        const __mmask16 part = first(count);
        return _mm_mask_cmpeq_epi8_mask(part, _mm_maskz_loadu_epi8(part, from),
                                        _mm_set1_epi8(static_cast<char>(value)));
    }
    /// `count` whole numbers from 0 to 255 as bytes.
    MANTISSA_LANES void store(std::uint8_t* to, Float a, int count) {
        _mm_mask_storeu_epi8(to, first(count), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
    }
    /// lanes[index].
    MANTISSA_LANES Float permuted(Float lanes, const std::int32_t (&index)[16]) {
        return _mm512_permutexvar_ps(_mm512_loadu_si512(index), lanes);
    }

  private:
    template <class LineOf>
    MANTISSA_LANES void put_transposed(const __m512i (&rows)[16], LineOf line_of, bool stream) {
        if (stream)
            transpose_words(
                rows, [&](int column, __m512i line) __attribute__((always_inline)) {
                    _mm512_stream_si512(reinterpret_cast<__m512i*>(line_of(column)), line);
                });
        else
            transpose_words(
                rows, [&](int column, __m512i line)
                          __attribute__((always_inline)) { _mm512_storeu_si512(line_of(column), line); });
    }
    /// put(column, its sixteen words) for each column of sixteen rows.
    template <class Put>
    MANTISSA_LANES void transpose_words(const __m512i (&row)[16], Put put) {
        __m512i pair[16], quad[16];
        for (int i = 0; i < 16; i += 2) {
            pair[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
            pair[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
        }
        for (int i = 0; i < 16; i += 4) {
            quad[i] = _mm512_unpacklo_epi64(pair[i], pair[i + 2]);
            quad[i + 1] = _mm512_unpackhi_epi64(pair[i], pair[i + 2]);
            quad[i + 2] = _mm512_unpacklo_epi64(pair[i + 1], pair[i + 3]);
            quad[i + 3] = _mm512_unpackhi_epi64(pair[i + 1], pair[i + 3]);
        }
        // quad[4 i + j] holds, in its 128-bit lane L, column 4 L + j of rows 4 i ... 4 i + 3.
        for (int j = 0; j < 4; ++j) {
            const __m512i even_low = _mm512_shuffle_i32x4(quad[j], quad[4 + j], 0x88);
            const __m512i even_high = _mm512_shuffle_i32x4(quad[8 + j], quad[12 + j], 0x88);
            const __m512i odd_low = _mm512_shuffle_i32x4(quad[j], quad[4 + j], 0xdd);
            const __m512i odd_high = _mm512_shuffle_i32x4(quad[8 + j], quad[12 + j], 0xdd);
            put(j, _mm512_shuffle_i32x4(even_low, even_high, 0x88));
            put(4 + j, _mm512_shuffle_i32x4(odd_low, odd_high, 0x88));
            put(8 + j, _mm512_shuffle_i32x4(even_low, even_high, 0xdd));
            put(12 + j, _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd));
        }
    }
    MANTISSA_LANES __m256i load_half(const void* from) {
        return _mm256_loadu_si256(static_cast<const __m256i*>(from));
    }
    MANTISSA_LANES void store_half(void* to, __m256i a) { _mm256_storeu_si256(static_cast<__m256i*>(to), a); }
    MANTISSA_LANES void stream_half(void* to, __m256i a) {
        _mm256_stream_si256(static_cast<__m256i*>(to), a);
    }
    MANTISSA_LANES Float widened_bf16(__m256i a) {
        return from_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(a), 16));
    }
    /// In the upper half of each lane.
    MANTISSA_LANES __m512i rounded_bf16(Float a) {
        const Mask odd = _mm512_test_epi32_mask(bits(a), integer(0x10000));
        const __m512i even_up = _mm512_add_epi32(bits(a), integer(0x7fff));
        const __m512i rounded = _mm512_mask_add_epi32(even_up, odd, even_up, integer(1));
        return _mm512_mask_or_epi32(rounded, is_nan(a), bits(a), integer(0x400000));
    }
    MANTISSA_LANES __m256i narrowed_bf16(Float a) {
        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bf16(a), 16));
    }
    MANTISSA_LANES __m512i narrowed_bf16(Float a, Float b) {
        alignas(64) static constexpr std::uint16_t upper_halves[32] = {
            1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
            33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
        return _mm512_permutex2var_epi16(rounded_bf16(a), _mm512_load_si512(upper_halves), rounded_bf16(b));
    }
    MANTISSA_LANES __m256i narrowed_fp16(Float a) {
        return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
};

/// A vector of FP32 as wide as registers are. Long sums keep `columns` of them, or twice as many.
struct Vector {
    using Float = __m512;
    static constexpr int width = 16, columns = 7;
    static constexpr bool twice = true, masks = true;
#ifdef __AVX512BF16__
    static constexpr bool pairs = true;
    /// c and the products of two BF16 in each lane.
    MANTISSA_LANES Float add_pairs(Float a, Float b, Float c) {
        return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
    }
#else
    static constexpr bool pairs = false;
#endif
    /// Numbers of BF16, as FP32, become pairs: of a below, of b above.
    MANTISSA_LANES Float pair(Float a, Float b) {
        const __m512i below = _mm512_srli_epi32(_mm512_castps_si512(a), 16);
        return _mm512_castsi512_ps(_mm512_mask_blend_epi16(0xAAAAAAAA, below, _mm512_castps_si512(b)));
    }
    /// The lower number of each pair, with 0 above it.
    MANTISSA_LANES Float lower(Float pairs) {
        return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(0xffff)));
    }
    MANTISSA_LANES Float zero() { return _mm512_setzero_ps(); }
    MANTISSA_LANES Float load(const float* from) { return _mm512_loadu_ps(from); }
    using Extent = Lanes::Mask;
    /// The compiler would make the mask anew for each load.
    MANTISSA_LANES Extent extent(int count) {
        Extent mask = Lanes::first(count);
        asm("" : "+k"(mask));
        return mask;
    }
    template <class T>
    MANTISSA_LANES Float load_widened(const T* from, Extent mask) {
        Float a = Lanes::load_masked(from, mask);
        asm("" : "+v"(a));
        return a;
    }
    MANTISSA_LANES void store(float* to, Float a) { _mm512_storeu_ps(to, a); }
    /// For a value that is used more than once: the compiler would load it as often.
    MANTISSA_LANES Float load_once(const float* from) {
        Float a = load(from);
        asm("" : "+v"(a));
        return a;
    }
    MANTISSA_LANES Float load_broadcast(const float* from) {
        Float a = _mm512_set1_ps(*from);
        asm("" : "+v"(a));
        return a;
    }
    MANTISSA_LANES Float load_permuted(const float* from, const std::int32_t* index) {
        Float a = _mm512_permutexvar_ps(_mm512_loadu_si512(index), load(from));
        asm("" : "+v"(a));
        return a;
    }
    MANTISSA_LANES Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
    MANTISSA_LANES Float multiply_add(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
};

}  // namespace
}  // namespace mantissa::on_cpu
