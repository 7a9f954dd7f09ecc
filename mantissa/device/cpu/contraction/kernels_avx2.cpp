// The contraction's inner kernels for AVX2 and FMA.
#include "mantissa/device/cpu/contraction/lanes_avx2.h"
#include "mantissa/device/cpu/contraction/pack_ymm.h"
#include "mantissa/device/cpu/contraction/panel_kernels.h"
#include "mantissa/device/cpu/contraction/rows_along_body.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// 16 registers: 6 x 2 of sums, two of b, one of a. A step along the depth is 12 multiply-adds, 6 cycles on
// two units, for 2 + 6 loads and 20 instructions in all; 12 sums in flight cover the latency of 4 or 5
// cycles.
constexpr int height = 6;
using Product = PanelProduct<Avx2Lanes, height, 2>;

// For processors with AVX2 from the first on: L1 of 32 KB, L2 of 256. 320 deep, panels of b and a are 20 and
// 7.5 KB, and stay in L1 together; a block of a, and two panels of b, the next one being on its way, are
// 232 KB of L2. With 1 MB of L2, chunks and blocks of 256 to 512 deep and 168 to 384 KB differ by less than a
// point.
constexpr std::int64_t depth_in_l1 = 320;
constexpr std::int64_t block_bytes_in_l2 = 192 << 10;

// Bytes: 8 sums, 4 registers of columns, 2 of a row.
constexpr int byte_height = 4;
using ByteProduct = PanelProduct<Avx2S8Lanes, byte_height, 2>;

/// Words of four bytes: sizes of the columns' numbers times those of the rows, with the signs of both
/// (vpmaddubsw). Numbers of at most 127 leave the sum of two products within 16 bits.
struct ByteDots {
    using Row = std::int32_t;
    using Column = std::int32_t;
    using Numbers = __m256i;
    struct Weights {
        __m256i numbers, sizes;
    };
    using Sums = __m256i;
    static constexpr int rows = 4, columns = 1, together = 8;

    static Numbers load(const std::int32_t* from) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    }
    static Numbers load_first(const std::int32_t* from, std::int64_t count) {
        return _mm256_maskload_epi32(from, first_lanes(count));
    }
    static Weights weights_of(Numbers numbers) { return {numbers, _mm256_abs_epi8(numbers)}; }
    static Sums zero() { return _mm256_setzero_si256(); }
    static Sums add(Sums sums, Numbers x, const Weights& weights) {
        const __m256i pairs = _mm256_maddubs_epi16(weights.sizes, _mm256_sign_epi8(x, weights.numbers));
        return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    template <int Rows>
    static void store(const Sums (&sums)[Rows], float* to, std::int64_t stride) {
        for (int r = 0; r < Rows; ++r) {
            const __m128i four =
                _mm_add_epi32(_mm256_castsi256_si128(sums[r]), _mm256_extracti128_si256(sums[r], 1));
            const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
            _mm_store_ss(to + r * stride, _mm_castsi128_ps(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1))));
        }
    }
};

void multiply_byte_rows(const RowProduct& p) {
    p.count == 1 ? multiply_one_row_along<ByteDots>(p) : multiply_rows_along<ByteDots>(p);
}

}  // namespace

ContractionKernels contraction_kernels_avx2() {
    return {.height = height,
            .width = Product::width,
            .max_depth = depth_in_l1,
            .max_block_bytes = block_bytes_in_l2,
            .finish = finish_block_avx2,
            .multiply = Product::multiply<>,
            .multiply_in_place = Product::multiply_in_place<>,
            .multiply_across = Product::multiply_across<>,
            .pack_a = widened_panels_ymm<height>(),
            .pack_b = widened_panels_ymm<Product::width>(),
            .multiply_row = row_product_avx2()};
}

ContractionKernels byte_kernels_avx2() {
    constexpr auto along = PanelSource::along_depth;
    return {.height = byte_height,
            .width = ByteProduct::width,
            .max_depth = depth_in_l1,
            .max_block_bytes = block_bytes_in_l2,
            .multiply = ByteProduct::multiply<>,
            .pack_a = {{{pack_panels<pack_along_depth<Floats, byte_height>, float, byte_height, along>}}},
            .pack_b = widened_panels_ymm<ByteProduct::width>(),
            .multiply_row = {{{multiply_byte_rows}}}};
}

}  // namespace mantissa::on_cpu
