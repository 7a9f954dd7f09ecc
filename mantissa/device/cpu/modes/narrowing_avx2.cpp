// Narrowing with AVX2: 16 numbers in two registers.
#include <immintrin.h>

#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/device/cpu/modes/narrowing_body.h"

namespace mantissa::inline v0::on_cpu {

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
};

}  // namespace

const NarrowingKernels& narrowing_kernels_avx2() { return narrowing_kernels_of<Avx2Narrowing>; }

}  // namespace mantissa::on_cpu
