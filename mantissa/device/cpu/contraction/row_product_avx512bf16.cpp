// A few rows of BF16 times a matrix of BF16 whose columns lie along the depth, in dot products of pairs
// (vdpbf16ps). Nothing is widened, so that eight rows take the time of reading the matrix. Numerics:
// docs/numerics.md.
#include "mantissa/device/cpu/contraction/rows_along_body.h"
#include "mantissa/device/cpu/contraction/sums_of_four.h"
#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct PairDots {
    using Row = BF16;
    using Column = BF16;
    using Numbers = __m512bh;
    using Weights = __m512bh;
    using Sums = __m512;
    // 24 sums, the columns and a row are in registers.
    static constexpr int rows = 8, columns = 3, together = 32;

    static Numbers load(const BF16* from) { return reinterpret_cast<Numbers>(_mm512_loadu_si512(from)); }
    static Numbers load_first(const BF16* from, std::int64_t count) {
        const __mmask32 first = (std::uint32_t{1} << count) - 1;
        return reinterpret_cast<Numbers>(_mm512_maskz_loadu_epi16(first, from));
    }
    static Weights weights_of(Numbers numbers) { return numbers; }
    static Sums zero() { return _mm512_setzero_ps(); }
    static Sums add(Sums sums, Numbers x, Weights weights) { return _mm512_dpbf16_ps(sums, x, weights); }
    template <int Rows>
    static void store(const Sums (&sums)[Rows], float* to, std::int64_t stride) {
        store_sums(sums, to, stride);
    }
};

}  // namespace

RowProductKernel row_product_of_pairs_avx512_bf16() { return multiply_rows_along<PairDots>; }

}  // namespace mantissa::on_cpu
