// The contraction's inner kernels for bytes in dot products of four. They take one operand for unsigned, so
// numbers of b come 128 too large.
#include "mantissa/device/cpu/contraction/lanes_avx512vnni.h"
#include "mantissa/device/cpu/contraction/pack_avx512.h"
#include "mantissa/device/cpu/contraction/panel_kernels.h"
#include "mantissa/device/cpu/contraction/rows_along_body.h"
#include "mantissa/device/cpu/contraction/sums_of_four.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// 32 registers, as for FP32.
using ByteProduct = PanelProduct<Avx512S8Lanes, 8, 3>;

constexpr std::uint32_t shift_of_word = 0x80808080;

/// Panels of b, each turned once all of it is in a cache.
void pack_shifted(const PanelCopy& copy) {
    PanelCopy in_cache = copy;
    in_cache.streaming = false;
    widened_panels_avx512<ByteProduct::width>()[0][0](in_cache);
    auto* panel = static_cast<std::byte*>(copy.panel);
    for (std::int64_t line = 0; line < copy.lines; line += ByteProduct::width, panel += copy.panel_bytes) {
        auto* const words = reinterpret_cast<std::uint32_t*>(panel);
        for (std::int64_t i = 0; i < copy.depth * ByteProduct::width; ++i) words[i] ^= shift_of_word;
    }
}

/// Words of four bytes.
struct ByteDots {
    using Row = std::int32_t;
    using Column = std::int32_t;
    using Numbers = __m512i;
    using Weights = __m512i;
    using Sums = __m512i;
    static constexpr int rows = 8, columns = 3, together = 16;

    static Numbers load(const std::int32_t* from) { return _mm512_loadu_si512(from); }
    static Numbers load_first(const std::int32_t* from, std::int64_t count) {
        return _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << count) - 1), from);
    }
    static Weights weights_of(Numbers numbers) {
        return _mm512_xor_si512(numbers, _mm512_set1_epi32(static_cast<int>(shift_of_word)));
    }
    static Sums zero() { return _mm512_setzero_si512(); }
    static Sums add(Sums sums, Numbers x, Weights weights) { return _mm512_dpbusd_epi32(sums, weights, x); }
    template <int Rows>
    static void store(const Sums (&sums)[Rows], float* to, std::int64_t stride) {
        store_sums(sums, to, stride);
    }
};

void multiply_rows(const RowProduct& p) {
    p.count == 1 ? multiply_one_row_along<ByteDots>(p) : multiply_rows_along<ByteDots>(p);
}

}  // namespace

ContractionKernels byte_kernels_avx512_vnni() {
    return {.height = 8,
            .width = ByteProduct::width,
            .shift_of_bytes = 128,
            .multiply = ByteProduct::multiply<>,
            .pack_a = widened_panels_avx512<8>(),
            .pack_b = {{{pack_shifted}}},
            .multiply_row = {{{multiply_rows}}}};
}

}  // namespace mantissa::on_cpu
