// Sixteen FP32 lanes in two AVX2 registers: the twin of lanes_generic.h, with the same bits from each member.
// In an unnamed namespace for the reason given there.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "mantissa/numerics/sixteen_bit.h"

#define MANTISSA_LANES [[gnu::always_inline]] static inline
// For long functions that are used often: inlined here, where they take few registers.
#define MANTISSA_LONG_LANES MANTISSA_LANES

#include "mantissa/device/cpu/rows/transpose16_avx2.h"
#include "mantissa/device/cpu/rows/transpose_lines_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct Lanes {
    static constexpr int width = 16;
    static constexpr int registers = 16;
    struct Float {
        __m256 low, high;
    };
    struct Int {
        __m256i low, high;
    };
    using Mask = Float;  // all ones where set
    struct Doubles {
        __m256d part[4];
    };

    MANTISSA_LANES Float constant(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
    MANTISSA_LANES Int integer(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
    MANTISSA_LANES Float add(Float a, Float b) {
        return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
    }
    MANTISSA_LANES Float subtract(Float a, Float b) {
        return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
    }
    MANTISSA_LANES Float multiply(Float a, Float b) {
        return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
    }
    MANTISSA_LANES Float divide(Float a, Float b) {
        return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
    }
    MANTISSA_LANES Float negate(Float a) {
        const __m256 sign = _mm256_set1_ps(-0.0f);
        return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
    }
    MANTISSA_LANES Float fma(Float a, Float b, Float c) {
        return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
    }
    MANTISSA_LANES Mask less(Float a, Float b) {
        return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
    }

    MANTISSA_LANES Mask is_nan(Float a) {
        return {_mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q), _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q)};
    }
    MANTISSA_LANES Float select(Mask mask, Float a, Float b) {
        return {_mm256_blendv_ps(b.low, a.low, mask.low), _mm256_blendv_ps(b.high, a.high, mask.high)};
    }
    MANTISSA_LANES Float minimum(Float a, Float b) {
        return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
    }
    MANTISSA_LANES Float maximum(Float a, Float b) {
        return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
    }

    MANTISSA_LANES Int bits(Float a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }
    MANTISSA_LANES Float from_bits(Int a) {
        return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
    }
    MANTISSA_LANES Int add_int(Int a, Int b) {
        return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
    }
    MANTISSA_LANES Int and_int(Int a, Int b) {
        return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
    }
    MANTISSA_LANES Int or_int(Int a, Int b) {
        return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
    }
    template <int Count>
    MANTISSA_LANES Int shift_left(Int a) {
        return {_mm256_slli_epi32(a.low, Count), _mm256_slli_epi32(a.high, Count)};
    }
    template <int Count>
    MANTISSA_LANES Int shift_right_signed(Int a) {
        return {_mm256_srai_epi32(a.low, Count), _mm256_srai_epi32(a.high, Count)};
    }
    MANTISSA_LANES Float to_float(Int a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }

    MANTISSA_LANES __m256 load_half(const float* from) { return _mm256_loadu_ps(from); }
    MANTISSA_LANES __m256 load_half(const BF16* from) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_eight(from)), 16));
    }
    MANTISSA_LANES __m256 load_half(const FP16* from) { return _mm256_cvtph_ps(load_eight(from)); }
    template <class T>
    MANTISSA_LANES Float load(const T* from) {
        return {load_half(from), load_half(from + 8)};
    }
    template <class T>
    MANTISSA_LANES Float load_part(const T* from, int count) {
        T whole[16] = {};
        __builtin_memcpy(whole, from, static_cast<std::size_t>(count) * sizeof(T));
        return load(whole);
    }
    MANTISSA_LANES void store(float* to, Float a) {
        _mm256_storeu_ps(to, a.low);
        _mm256_storeu_ps(to + 8, a.high);
    }
    MANTISSA_LANES void store(BF16* to, Float a) { store_half(to, narrowed_bf16(a)); }
    MANTISSA_LANES void store(FP16* to, Float a) { store_half(to, narrowed_fp16(a)); }
    template <class T>
    MANTISSA_LANES void store_part(T* to, Float a, int count) {
        T whole[16];
        store(whole, a);
        __builtin_memcpy(to, whole, static_cast<std::size_t>(count) * sizeof(T));
    }
    static constexpr bool can_stream = true;
    MANTISSA_LANES void stream(float* to, Float a) {
        _mm256_stream_ps(to, a.low);
        _mm256_stream_ps(to + 8, a.high);
    }
    MANTISSA_LANES void stream(BF16* to, Float a) { stream_half(to, narrowed_bf16(a)); }
    MANTISSA_LANES void stream(FP16* to, Float a) { stream_half(to, narrowed_fp16(a)); }
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
    MANTISSA_LANES void fence() { _mm_sfence(); }

    MANTISSA_LANES float sum(Float a) {
        const __m256 eight = _mm256_add_ps(a.low, a.high);
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
    }
    MANTISSA_LANES float greatest(Float a) {
        const __m256 eight = _mm256_max_ps(a.low, a.high);
        const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
    }
    MANTISSA_LANES Doubles zero_doubles() {
        const __m256d zero = _mm256_setzero_pd();
        return {{zero, zero, zero, zero}};
    }
    MANTISSA_LANES Doubles add_squares(Doubles sums, Float a) {
        // The square of an FP32 number is exact in FP64, so fused or not makes no difference.
        const __m256d part[4] = {_mm256_cvtps_pd(_mm256_castps256_ps128(a.low)),
                                 _mm256_cvtps_pd(_mm256_extractf128_ps(a.low, 1)),
                                 _mm256_cvtps_pd(_mm256_castps256_ps128(a.high)),
                                 _mm256_cvtps_pd(_mm256_extractf128_ps(a.high, 1))};
        for (int k = 0; k < 4; ++k) sums.part[k] = _mm256_fmadd_pd(part[k], part[k], sums.part[k]);
        return sums;
    }
    MANTISSA_LANES double sum(Doubles a) {
        const __m256d low = _mm256_add_pd(a.part[0], a.part[2]);
        const __m256d four = _mm256_add_pd(low, _mm256_add_pd(a.part[1], a.part[3]));
        const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
        return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
    }

    MANTISSA_LANES void transpose16(const std::uint32_t* source, std::int64_t source_stride,
                                    std::uint32_t* target, std::int64_t target_stride) {
        for (int r = 0; r < 16; r += 8)
            for (int c = 0; c < 16; c += 8)
                transpose_eight(source + r * source_stride + c, source_stride, target + c * target_stride + r,
                                target_stride);
    }
    MANTISSA_LANES void transpose16(const std::uint16_t* source, std::int64_t source_stride,
                                    std::uint16_t* target, std::int64_t target_stride) {
        transpose16_halves(source, source_stride, target, target_stride);
    }
    template <class T>
    MANTISSA_LANES void transpose_lines(const T* source, std::int64_t source_stride, T* target,
                                        std::int64_t target_stride, bool stream_lines) {
        transpose_lines_by_sixteen<Lanes>(source, source_stride, target, target_stride, stream_lines);
    }

    /// Where x takes the place of a maximum: it is larger, or the first NaN.
    MANTISSA_LANES Mask wins(Float x, Float maximum) {
        const auto half = [](__m256 a, __m256 b) {
            return _mm256_and_ps(_mm256_cmp_ps(b, b, _CMP_ORD_Q), _mm256_cmp_ps(a, b, _CMP_NLE_UQ));
        };
        return {half(x.low, maximum.low), half(x.high, maximum.high)};
    }
    /// A mask of the `count` bytes that are `value`; of the other lanes nothing is said.
    MANTISSA_LANES Mask are(const std::uint8_t* from, int count, std::uint8_t value) {
        alignas(16) unsigned char bytes[16] = {};
        if (count == 16)
            __builtin_memcpy(bytes, from, 16);
        else
            __builtin_memcpy(bytes, from, static_cast<unsigned>(count));
        const __m128i equal = _mm_cmpeq_epi8(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)),
                                             _mm_set1_epi8(static_cast<char>(value)));
        return {_mm256_castsi256_ps(_mm256_cvtepi8_epi32(equal)),
                _mm256_castsi256_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(equal, 8)))};
    }
    /// `count` whole numbers from 0 to 255 as bytes.
    MANTISSA_LANES void store(std::uint8_t* to, Float a, int count) {
        const auto words = [](__m256 eight) {
            const __m256i whole = _mm256_cvtps_epi32(eight);
            return _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
        };
        alignas(16) unsigned char bytes[16];
        _mm_store_si128(reinterpret_cast<__m128i*>(bytes), _mm_packus_epi16(words(a.low), words(a.high)));
        if (count == 16)
            __builtin_memcpy(to, bytes, 16);
        else
            __builtin_memcpy(to, bytes, static_cast<unsigned>(count));
    }
    /// lanes[index].
    MANTISSA_LANES Float permuted(Float lanes, const std::int32_t (&index)[16]) {
        const auto half = [&](const std::int32_t* from) {
            const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
            const __m256 is_high = _mm256_castsi256_ps(_mm256_cmpgt_epi32(at, _mm256_set1_epi32(7)));
            return _mm256_blendv_ps(_mm256_permutevar8x32_ps(lanes.low, at),
                                    _mm256_permutevar8x32_ps(lanes.high, at), is_high);
        };
        return {half(index), half(index + 8)};
    }

  private:
    MANTISSA_LANES __m128i load_eight(const void* from) {
        return _mm_loadu_si128(static_cast<const __m128i*>(from));
    }
    MANTISSA_LANES void store_half(void* to, __m256i a) { _mm256_storeu_si256(static_cast<__m256i*>(to), a); }
    MANTISSA_LANES void stream_half(void* to, __m256i a) {
        _mm256_stream_si256(static_cast<__m256i*>(to), a);
    }
    MANTISSA_LANES __m256i rounded_bf16(__m256 a) {
        const __m256i all = _mm256_castps_si256(a);
        const __m256i upper = _mm256_srli_epi32(all, 16);
        const __m256i tie =
            _mm256_add_epi32(_mm256_and_si256(upper, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
        const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(all, tie), 16);
        const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
        return _mm256_blendv_epi8(rounded, quiet, nan);
    }
    MANTISSA_LANES __m256i narrowed_bf16(Float a) {
        // The pack works within 128-bit lanes; the permutation puts their quarters in order.
        const __m256i packed = _mm256_packus_epi32(rounded_bf16(a.low), rounded_bf16(a.high));
        return _mm256_permute4x64_epi64(packed, 0xd8);
    }
    MANTISSA_LANES __m256i narrowed_fp16(Float a) {
        return _mm256_set_m128i(_mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT),
                                _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    }

    MANTISSA_LANES void transpose_eight(const std::uint32_t* source, std::int64_t source_stride,
                                        std::uint32_t* target, std::int64_t target_stride) {
        __m256i pair[8], quad[8];
        for (int i = 0; i < 8; i += 2) {
            const __m256i a =
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + i * source_stride));
            const __m256i b =
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + (i + 1) * source_stride));
            pair[i] = _mm256_unpacklo_epi32(a, b);
            pair[i + 1] = _mm256_unpackhi_epi32(a, b);
        }
        for (int i = 0; i < 8; i += 4) {
            quad[i] = _mm256_unpacklo_epi64(pair[i], pair[i + 2]);
            quad[i + 1] = _mm256_unpackhi_epi64(pair[i], pair[i + 2]);
            quad[i + 2] = _mm256_unpacklo_epi64(pair[i + 1], pair[i + 3]);
            quad[i + 3] = _mm256_unpackhi_epi64(pair[i + 1], pair[i + 3]);
        }
        for (int j = 0; j < 4; ++j) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + j * target_stride),
                                _mm256_permute2x128_si256(quad[j], quad[4 + j], 0x20));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + (4 + j) * target_stride),
                                _mm256_permute2x128_si256(quad[j], quad[4 + j], 0x31));
        }
    }
};

/// A vector of FP32 as wide as registers are. Long sums keep `columns` of them.
struct Vector {
    using Float = __m256;
    static constexpr int width = 8, columns = 7;
    static constexpr bool twice = false, pairs = false, masks = false;
    MANTISSA_LANES Float zero() { return _mm256_setzero_ps(); }
    MANTISSA_LANES Float load(const float* from) { return _mm256_loadu_ps(from); }
    /// No load is of less than a vector.
    struct Extent {};
    MANTISSA_LANES Extent extent(int) { return {}; }
    template <class T>
    MANTISSA_LANES Float load_widened(const T* from, Extent) {
        Float a = Lanes::load_half(from);
        asm("" : "+x"(a));
        return a;
    }
    MANTISSA_LANES void store(float* to, Float a) { _mm256_storeu_ps(to, a); }
    /// For a value that is used more than once: the compiler would load it as often.
    MANTISSA_LANES Float load_once(const float* from) {
        Float a = load(from);
        asm("" : "+x"(a));
        return a;
    }
    MANTISSA_LANES Float load_broadcast(const float* from) { return _mm256_set1_ps(*from); }
    /// Never called: a block has several vectors.
    MANTISSA_LANES Float load_permuted(const float* from, const std::int32_t*) { return load(from); }
    MANTISSA_LANES Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
    MANTISSA_LANES Float multiply_add(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
};

}  // namespace
}  // namespace mantissa::on_cpu
