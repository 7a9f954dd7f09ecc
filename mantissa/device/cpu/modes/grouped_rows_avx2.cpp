// A few rows times a matrix of four bits by groups for AVX2: products of bytes with unsigned ones
// (vpmaddubsw). Numbers below 16 and up to 128 leave the sums of four products within 16 bits.
#include <immintrin.h>

#include "mantissa/device/cpu/modes/grouped_rows_body.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct Avx2Groups {
    using Floats = __m256;
    static constexpr int words = 8, rows = 2, columns = 1;
    /// Two groups, those of even place and of odd.
    struct Numbers {
        __m256i even, odd;
        __m256 scales;
    };

    static Numbers whole(const std::uint8_t* b, const BF16* scales) {
        const __m256i low = _mm256_set1_epi8(15);
        const __m256i turned = _mm256_xor_si256(load(b), _mm256_set1_epi8(static_cast<char>(0x88)));
        // For each word the scale of its group, widened: its bytes follow two of zeros.
        const __m256i places = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 0, 1, -1, -1, 0, 1, -1, -1, 0, 1,  //
                                                -1, -1, 2, 3, -1, -1, 2, 3, -1, -1, 2, 3, -1, -1, 2, 3);
        std::int32_t two_scales;
        __builtin_memcpy(&two_scales, scales, sizeof two_scales);
        return {_mm256_and_si256(turned, low), _mm256_and_si256(_mm256_srli_epi16(turned, 4), low),
                _mm256_castsi256_ps(_mm256_shuffle_epi8(_mm256_set1_epi32(two_scales), places))};
    }
    /// Behind the row lies another, or nothing.
    static Numbers part(const std::uint8_t* b, std::int64_t bytes, const BF16* scales, std::int64_t groups) {
        alignas(32) std::uint8_t some[32] = {};
        for (std::int64_t i = 0; i < bytes; ++i) some[i] = b[i];
        BF16 of_some[2] = {};
        for (std::int64_t i = 0; i < groups; ++i) of_some[i] = scales[i];
        return whole(some, of_some);
    }
    static Floats zero() { return _mm256_setzero_ps(); }
    static Floats add(Floats totals, const FourOfX& x, std::int64_t word, const Numbers& b) {
        const __m256i twos = _mm256_add_epi16(_mm256_maddubs_epi16(b.even, load(x.even + word * 4)),
                                              _mm256_maddubs_epi16(b.odd, load(x.odd + word * 4)));
        const __m256i sums =
            _mm256_add_epi32(_mm256_madd_epi16(twos, _mm256_set1_epi16(1)), load(x.corrections + word));
        return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums),
                               _mm256_mul_ps(_mm256_load_ps(x.scales + word), b.scales), totals);
    }
    template <int Count>
    static void store(const Floats (&of)[Count], float* to, std::int64_t stride) {
        for (int i = 0; i < Count; ++i) {
            const __m128 four = _mm_add_ps(_mm256_castps256_ps128(of[i]), _mm256_extractf128_ps(of[i], 1));
            const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_store_ss(to + i * stride, _mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
        }
    }

  private:
    static __m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
};

}  // namespace

void multiply_grouped_rows_avx2(const GroupedRows& p) { multiply_grouped_rows<Avx2Groups>(p); }

}  // namespace mantissa::on_cpu
