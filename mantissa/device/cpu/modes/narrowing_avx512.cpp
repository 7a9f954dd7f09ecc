// Narrowing with AVX-512: 16 numbers in a register.
#include "mantissa/device/cpu/modes/lanes_avx512.h"
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/device/cpu/modes/narrowing_body.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct Avx512Narrowing {
    static __m128i whole_bytes(const float* x, float factor) {
        const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(factor));
        const __mmask16 number = _mm512_cmp_ps_mask(scaled, scaled, _CMP_ORD_Q);  // NaN: 0
        const __m512 within =
            _mm512_max_ps(_mm512_maskz_min_ps(number, scaled, _mm512_set1_ps(127)), _mm512_set1_ps(-128));
        return _mm512_cvtsepi32_epi8(
            _mm512_cvt_roundps_epi32(within, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    static void store_bytes(std::int8_t* to, __m128i bytes) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
    }
};

}  // namespace

void narrow_to_s8_avx512(const float* from, float factor, std::int8_t* to, std::int64_t count) {
    narrow_in_steps<Avx512Narrowing>(from, factor, to, count);
}

}  // namespace mantissa::on_cpu
