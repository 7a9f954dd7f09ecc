// A few rows times a matrix of four bits by groups in dot products of four bytes (vpdpbusd), which take one
// operand for unsigned: numbers of the matrix come 8 too large, and sums begin at the corrections. For one
// row 64 bytes of the matrix take nine operations, so that reading them is the bound.
#include "mantissa/device/cpu/contraction/sums_of_four.h"
#include "mantissa/device/cpu/modes/grouped_rows_body.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct VnniGroups {
    using Floats = __m512;
    // Twelve sums and three columns are in registers. Four rows of x of a depth of 3,072 are in L1,
    // too, which eight are not.
    static constexpr int words = 16, rows = 4, columns = 3;
    /// Four groups, those of even place and of odd.
    struct Numbers {
        __m512i even, odd;
        __m512 scales;
    };

    static Numbers whole(const std::uint8_t* b, const BF16* scales) {
        return numbers_of(_mm512_loadu_si512(b), _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)));
    }
    /// Behind the row lies another, or nothing.
    static Numbers part(const std::uint8_t* b, std::int64_t bytes, const BF16* scales, std::int64_t groups) {
        return numbers_of(_mm512_maskz_loadu_epi8((std::uint64_t{1} << bytes) - 1, b),
                          _mm_maskz_loadu_epi16(static_cast<__mmask8>((1u << groups) - 1), scales));
    }
    static Floats zero() { return _mm512_setzero_ps(); }
    static Floats add(Floats totals, const FourOfX& x, std::int64_t, const Numbers& b) {
        const __m512i even = _mm512_load_si512(x.even), odd = _mm512_load_si512(x.odd);
        const __m512i sums = _mm512_dpbusd_epi32(
            _mm512_dpbusd_epi32(_mm512_load_si512(x.corrections), b.even, even), b.odd, odd);
        return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(_mm512_load_ps(x.scales), b.scales),
                               totals);
    }
    template <int Count>
    static void store(const Floats (&of)[Count], float* to, std::int64_t stride) {
        store_sums(of, to, stride);
    }

  private:
    static Numbers numbers_of(__m512i bytes, __m128i four_scales) {
        const __m512i low = _mm512_set1_epi8(15), turn = _mm512_set1_epi8(8);
        constexpr int turned_and_cut = 0x28;  // (a ^ b) & c
        // Each 128 bits have a group. A BF16 number is the upper half of an FP32 one.
        const __m512i places = _mm512_set_epi32(0x07068080, 0x07068080, 0x07068080, 0x07068080,  //
                                                0x05048080, 0x05048080, 0x05048080, 0x05048080,  //
                                                0x03028080, 0x03028080, 0x03028080, 0x03028080,  //
                                                0x01008080, 0x01008080, 0x01008080, 0x01008080);
        return {_mm512_ternarylogic_epi32(bytes, turn, low, turned_and_cut),
                _mm512_ternarylogic_epi32(_mm512_srli_epi16(bytes, 4), turn, low, turned_and_cut),
                _mm512_castsi512_ps(_mm512_shuffle_epi8(_mm512_broadcastq_epi64(four_scales), places))};
    }
};

}  // namespace

void multiply_grouped_rows_avx512_vnni(const GroupedRows& p) { multiply_grouped_rows<VnniGroups>(p); }

}  // namespace mantissa::on_cpu
