// A few rows times a matrix of four bits by groups for AVX2: products of bytes with unsigned ones
// (vpmaddubsw). Numbers below 16 and up to 128 leave the sums of four products within 16 bits.
#include <immintrin.h>

#include "mantissa/device/cpu/modes/grouped_rows.h"

namespace mantissa::inline v0::on_cpu {

namespace {

inline __m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

/// To the nearest whole numbers; a NaN gives 0.
inline __m256i whole_numbers(__m256 x, __m256 factor) {
    const __m256 scaled = _mm256_mul_ps(x, factor);
    const __m256 number = _mm256_and_ps(scaled, _mm256_cmp_ps(scaled, scaled, _CMP_ORD_Q));
    const __m256 within =
        _mm256_max_ps(_mm256_min_ps(number, _mm256_set1_ps(127.0f)), _mm256_set1_ps(-128.0f));
    return _mm256_cvtps_epi32(_mm256_round_ps(within, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/// The largest absolute value of 32, as bits, so that a NaN is larger than all else.
inline float largest_size(const __m256 (&x)[4]) {
    __m256i largest = _mm256_setzero_si256();
    for (const __m256& eight : x)
        largest = _mm256_max_epi32(
            largest, _mm256_and_si256(_mm256_castps_si256(eight), _mm256_set1_epi32(0x7fffffff)));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

/// A group of x: in the first 128 bits its numbers of even place, then those of odd.
inline __m256i quantize_group(const float* x, float* scale) {
    const __m256 values[4] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16),
                              _mm256_loadu_ps(x + 24)};
    const float largest = largest_size(values);
    *scale = largest / 127.0f;
    const __m256 factor = _mm256_set1_ps(largest == 0 ? 0 : 127.0f / largest);
    const __m256i low =
        _mm256_packs_epi32(whole_numbers(values[0], factor), whole_numbers(values[1], factor));
    const __m256i high =
        _mm256_packs_epi32(whole_numbers(values[2], factor), whole_numbers(values[3], factor));
    // Packing takes halves of 128 bits by turns; the first permutation puts fours in order.
    const __m256i ordered =
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    const __m256i apart =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(ordered, apart), 0xd8);
}

void quantize_fours(const float* x, std::int64_t fours, FourOfX* to, std::int64_t stride) {
    for (std::int64_t group = 0; group < fours * groups_together; ++group) {
        FourOfX& four = to[group / groups_together * stride];
        const std::int64_t word = group % groups_together * 4;
        float scale;
        const __m256i numbers = quantize_group(x + group * 32, &scale);
        const __m128i even = _mm256_castsi256_si128(numbers), odd = _mm256_extracti128_si256(numbers, 1);
        _mm_store_si128(reinterpret_cast<__m128i*>(four.even + word * 4), even);
        _mm_store_si128(reinterpret_cast<__m128i*>(four.odd + word * 4), odd);
        const __m128i eights = _mm_set1_epi8(8);
        const __m128i twos = _mm_add_epi16(_mm_maddubs_epi16(eights, even), _mm_maddubs_epi16(eights, odd));
        _mm_store_si128(reinterpret_cast<__m128i*>(four.corrections + word),
                        _mm_madd_epi16(twos, _mm_set1_epi16(-1)));
        _mm_store_ps(four.scales + word, _mm_set1_ps(scale));
    }
}

/// Two groups of b: 8 more than the numbers of even place, and of odd.
struct Pair {
    __m256i even, odd;

    explicit Pair(const std::uint8_t* from) {
        const __m256i low = _mm256_set1_epi8(15);
        const __m256i turned = _mm256_xor_si256(load(from), _mm256_set1_epi8(static_cast<char>(0x88)));
        even = _mm256_and_si256(turned, low);
        odd = _mm256_and_si256(_mm256_srli_epi16(turned, 4), low);
    }
    /// A sum for each word, from `word` of the four on.
    __m256 times(const FourOfX& x, int word) const {
        const __m256i twos = _mm256_add_epi16(_mm256_maddubs_epi16(even, load(x.even + word * 4)),
                                              _mm256_maddubs_epi16(odd, load(x.odd + word * 4)));
        const __m256i sums = _mm256_madd_epi16(twos, _mm256_set1_epi16(1));
        return _mm256_cvtepi32_ps(_mm256_add_epi32(sums, load(x.corrections + word)));
    }
};

/// Adds four groups of one row of b to the sums of some rows.
template <int Rows>
[[gnu::always_inline]] inline void add_groups(const FourOfX* x, const std::uint8_t* b, const BF16* scales,
                                              __m256 (&totals)[Rows]) {
    const Pair pairs[2] = {Pair(b), Pair(b + 32)};
    const __m256i four_scales =
        _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)));
    // For each word that of its group, widened: its bytes follow two of zeros.
    const __m256i first = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 0, 1, -1, -1, 0, 1, -1, -1, 0, 1,  //
                                           -1, -1, 2, 3, -1, -1, 2, 3, -1, -1, 2, 3, -1, -1, 2, 3);
    const __m256i second = _mm256_setr_epi8(-1, -1, 4, 5, -1, -1, 4, 5, -1, -1, 4, 5, -1, -1, 4, 5,  //
                                            -1, -1, 6, 7, -1, -1, 6, 7, -1, -1, 6, 7, -1, -1, 6, 7);
    const __m256 of_b[2] = {_mm256_castsi256_ps(_mm256_shuffle_epi8(four_scales, first)),
                            _mm256_castsi256_ps(_mm256_shuffle_epi8(four_scales, second))};
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r)
        for (int half = 0; half < 2; ++half) {
            const __m256 scale = _mm256_mul_ps(_mm256_load_ps(x[r].scales + half * 8), of_b[half]);
            totals[r] = _mm256_fmadd_ps(pairs[half].times(x[r], half * 8), scale, totals[r]);
        }
}

inline float total(__m256 x) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

template <int Rows>
void multiply_rows(const GroupedRows& p, const FourOfX* x, float* sums) {
    const std::int64_t whole = p.bytes / bytes_together;
    for (std::int64_t j = 0; j < p.cols; ++j) {
        const std::uint8_t* const b = p.b + j * p.bytes;
        const BF16* const scales = p.scales + j * p.groups;
        __m256 totals[Rows];
        for (__m256& each : totals) each = _mm256_setzero_ps();
        for (std::int64_t four = 0; four < whole; ++four)
            add_groups<Rows>(x + four * p.count, b + four * bytes_together, scales + four * groups_together,
                             totals);
        if (whole * bytes_together < p.bytes) {
            // Behind the row lies another, or nothing.
            alignas(32) std::uint8_t part[bytes_together] = {};
            for (std::int64_t i = whole * bytes_together; i < p.bytes; ++i)
                part[i - whole * bytes_together] = b[i];
            alignas(8) BF16 of_part[groups_together] = {};
            for (std::int64_t i = whole * groups_together; i < p.groups; ++i)
                of_part[i - whole * groups_together] = scales[i];
            add_groups<Rows>(x + whole * p.count, part, of_part, totals);
        }
        for (int r = 0; r < Rows; ++r) sums[r * p.leading + j] = total(totals[r]);
    }
}

void multiply_grouped_rows(const GroupedRows& p) {
    std::int64_t row = 0;
    for (; row + 2 <= p.count; row += 2) multiply_rows<2>(p, p.x + row, p.sums + row * p.leading);
    for (; row < p.count; ++row) multiply_rows<1>(p, p.x + row, p.sums + row * p.leading);
}

}  // namespace

GroupedRowsKernels grouped_rows_avx2() {
    return {.name = "avx2", .quantize = quantize_fours, .multiply = multiply_grouped_rows};
}

}  // namespace mantissa::on_cpu
