// Narrowing with AVX2: 16 numbers in two registers.
#include <immintrin.h>

#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/device/cpu/modes/narrowing_body.h"

namespace mantissa::cpu {

namespace {

struct Avx2Narrowing {
    static __m256i whole(const float* x, float factor, float least, float most) {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(factor));
        const __m256 number = _mm256_and_ps(scaled, _mm256_cmp_ps(scaled, scaled, _CMP_ORD_Q));  // NaN: 0
        const __m256 within =
            _mm256_max_ps(_mm256_min_ps(number, _mm256_set1_ps(most)), _mm256_set1_ps(least));
        return _mm256_cvtps_epi32(_mm256_round_ps(within, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    static __m128i whole_bytes(const float* x, float factor, float least, float most) {
        const __m256i low = whole(x, factor, least, most), high = whole(x + 8, factor, least, most);
        // Packing takes halves of 128 bits by turns; the permutation puts them in order.
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
        return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    }
    static void store_bytes(std::int8_t* to, __m128i bytes) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
    }
    static std::uint16_t signs(const float* x) {
        return static_cast<std::uint16_t>(_mm256_movemask_ps(_mm256_loadu_ps(x)) |
                                          _mm256_movemask_ps(_mm256_loadu_ps(x + 8)) << 8);
    }
    static __m256i stochastic(const float* x, const std::uint32_t* random) {
        const __m256 value = _mm256_loadu_ps(x);
        const __m256i bits = _mm256_castps_si256(value);
        const __m256i below = _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(random)),
                                               _mm256_set1_epi32(0xffff));
        const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, below), 16);
        const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
        return _mm256_blendv_epi8(rounded, quiet, nan);
    }
    static void store_stochastic(BF16* to, const float* x, const std::uint32_t* random) {
        const __m256i words = _mm256_packus_epi32(stochastic(x, random), stochastic(x + 8, random + 8));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(words, 0xd8));
    }
};

}  // namespace

const NarrowingKernels& narrowing_kernels_avx2() { return narrowing_kernels_of<Avx2Narrowing>; }

}  // namespace mantissa::cpu
