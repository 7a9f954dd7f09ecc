// Narrowing with AVX2: 16 numbers in two registers.
#include <immintrin.h>

#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/device/cpu/modes/narrowing_body.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct Avx2Narrowing {
    static __m256i whole(const float* x, float factor) {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(factor));
        const __m256 number = _mm256_and_ps(scaled, _mm256_cmp_ps(scaled, scaled, _CMP_ORD_Q));  // NaN: 0
        const __m256 within = _mm256_max_ps(_mm256_min_ps(number, _mm256_set1_ps(127)), _mm256_set1_ps(-128));
        return _mm256_cvtps_epi32(_mm256_round_ps(within, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    static __m128i whole_bytes(const float* x, float factor) {
        const __m256i low = whole(x, factor), high = whole(x + 8, factor);
        // Packing takes halves of 128 bits by turns; the permutation puts them in order.
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
        return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    }
    static void store_bytes(std::int8_t* to, __m128i bytes) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
    }
};

}  // namespace

void narrow_to_s8_avx2(const float* from, float factor, std::int8_t* to, std::int64_t count) {
    narrow_in_steps<Avx2Narrowing>(from, factor, to, count);
}

}  // namespace mantissa::on_cpu
