// Codes of weights become numbers on their way into panels. AVX-512 looks up 16 or 32 at a time in a block's
// table, made from the 16 numbers and the block's scale: some 20 instructions for 64 weights.
#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/numerics/widen_codes_body.h"

#if defined(__AVX512BW__)
#include "mantissa/device/cpu/intrinsics.h"
#endif

namespace mantissa::inline v0::on_cpu {

namespace {

#if defined(__AVX512BW__)
struct WidenByTable : WidenOneByOne {
    using WidenOneByOne::half_bytes;

    /// The products with the scale as BF16, twice: the index of a half has one bit more.
    static __m512i table_of(const CodedSource& from, float scale, const BF16*) {
        const __m512 numbers = _mm512_mul_ps(_mm512_loadu_ps(from.numbers), _mm512_set1_ps(scale));
        const __m512i bits = _mm512_castps_si512(numbers);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        const __mmask16 nan = _mm512_cmp_ps_mask(numbers, numbers, _CMP_UNORD_Q);
        const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
        const __m256i halves =
            _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
        return _mm512_broadcast_i64x4(halves);
    }
    static __m512i table_of(const CodedSource& from, float scale, const float*) {
        return _mm512_castps_si512(_mm512_mul_ps(_mm512_loadu_ps(from.numbers), _mm512_set1_ps(scale)));
    }

    /// 32 codes in 16 bytes: a byte becomes 32 bits, whose upper half gets its upper code.
    static void look_up(__m128i codes, __m512i table, std::int64_t count, BF16* to) {
        const __m512i bytes = _mm512_cvtepu8_epi32(codes);
        const __m512i index = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
        _mm512_mask_storeu_epi16(to, static_cast<__mmask32>(~std::uint64_t{0} >> (64 - count)),
                                 _mm512_permutexvar_epi16(index, table));
    }
    /// 16 codes in 8 bytes, likewise.
    static void look_up(__m128i codes, __m512i table, std::int64_t count, float* to) {
        const __m512i bytes = _mm512_cvtepu8_epi64(codes);
        const __m512i index = _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28));
        _mm512_mask_storeu_epi32(to, static_cast<__mmask16>(~std::uint64_t{0} >> (64 - count)),
                                 _mm512_permutexvar_epi32(index, table));
    }

    template <class T>
    static void half_bytes(const CodedSource& from, float scale, std::int64_t first, std::int64_t count,
                           T* to) {
        if (first % 2 != 0) return WidenOneByOne::half_bytes(from, scale, first, count, to);
        constexpr std::int64_t at_once = 64 / sizeof(T);
        const __m512i table = table_of(from, scale, to);
        const std::uint8_t* codes = from.codes + first / 2;
        for (; count > 0; count -= at_once, codes += at_once / 2, to += at_once) {
            const std::int64_t some = count < at_once ? count : at_once;
            const auto there = static_cast<__mmask16>(0xffffu >> (16 - (some + 1) / 2));
            look_up(_mm_maskz_loadu_epi8(there, codes), table, some, to);
        }
    }
};
#else
using WidenByTable = WidenOneByOne;
#endif

}  // namespace

void MANTISSA_OF_LEVEL(widen_codes)(const WidenedPart& part) { widen_part<WidenByTable>(part); }

}  // namespace mantissa::on_cpu
