// A few rows times a matrix of four bits by groups for AVX2: products of bytes with unsigned ones
// (vpmaddubsw). A product of numbers below 16 and 128 leaves the sums of sixteen of them within 16 bits, so
// that sums of eight groups are brought together there.
#include <immintrin.h>

#include "mantissa/device/cpu/modes/grouped_rows.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t bytes_together = groups_together * 16;

inline __m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

/// Eight scales, those of even place first, as place_of_group has them.
inline __m256 scales_at(const BF16* scales) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
    return _mm256_permutevar8x32_ps(_mm256_castsi256_ps(wide), _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
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
    /// Eight sums of four products for each group.
    __m256i times(const std::int8_t* x) const {
        return _mm256_add_epi16(_mm256_maddubs_epi16(even, load(x)), _mm256_maddubs_epi16(odd, load(x + 32)));
    }
};

/// Adds eight groups of one row of b to the sums of some rows.
template <int Rows>
[[gnu::always_inline]] inline void add_groups(const GroupedRow* rows, std::int64_t eight,
                                              const std::uint8_t* b, const BF16* scales,
                                              __m256 (&totals)[Rows]) {
    const Pair pairs[4] = {Pair(b), Pair(b + 32), Pair(b + 64), Pair(b + 96)};
    const __m256 of_b = scales_at(scales);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
        const std::int8_t* const x = rows[r].numbers + eight * 256;
        const __m256i half = _mm256_hadd_epi16(pairs[0].times(x), pairs[1].times(x + 64)),
                      other = _mm256_hadd_epi16(pairs[2].times(x + 128), pairs[3].times(x + 192));
        const __m256i sums = _mm256_madd_epi16(_mm256_hadd_epi16(half, other), _mm256_set1_epi16(1));
        const __m256i right = _mm256_add_epi32(sums, load(rows[r].corrections + eight * groups_together));
        const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(rows[r].scales + eight * groups_together), of_b);
        totals[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(right), scale, totals[r]);
    }
}

inline float total(__m256 x) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

template <int Rows>
void multiply(const GroupedRows& p, const GroupedRow* rows, float* sums) {
    const std::int64_t whole = p.bytes / bytes_together;
    for (std::int64_t j = 0; j < p.cols; ++j) {
        const std::uint8_t* const b = p.b + j * p.bytes;
        const BF16* const scales = p.scales + j * p.groups;
        __m256 totals[Rows];
        for (__m256& each : totals) each = _mm256_setzero_ps();
        for (std::int64_t eight = 0; eight < whole; ++eight)
            add_groups<Rows>(rows, eight, b + eight * bytes_together, scales + eight * groups_together,
                             totals);
        if (whole * bytes_together < p.bytes) {
            // Behind the row lies another, or nothing.
            alignas(32) std::uint8_t part[bytes_together] = {};
            for (std::int64_t i = whole * bytes_together; i < p.bytes; ++i)
                part[i - whole * bytes_together] = b[i];
            alignas(16) BF16 of_part[groups_together] = {};
            for (std::int64_t i = whole * groups_together; i < p.groups; ++i)
                of_part[i - whole * groups_together] = scales[i];
            add_groups<Rows>(rows, whole, part, of_part, totals);
        }
        for (int r = 0; r < Rows; ++r) sums[r * p.leading + j] = total(totals[r]);
    }
}

}  // namespace

void grouped_rows_avx2(const GroupedRows& p) {
    std::int64_t row = 0;
    for (; row + 2 <= p.count; row += 2) multiply<2>(p, p.rows + row, p.sums + row * p.leading);
    for (; row < p.count; ++row) multiply<1>(p, p.rows + row, p.sums + row * p.leading);
}

}  // namespace mantissa::on_cpu
