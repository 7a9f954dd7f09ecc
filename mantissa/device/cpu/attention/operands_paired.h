// How the products take their operands where each multiply-add takes two neighbours in BF16 (vdpbf16ps):
// along the head as pairs lie in memory, along positions after two rows were interleaved. Weights and their
// gradients are rounded to BF16; the scale stays out of the operands, which it would round. See
// body_products.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/attention/body_movement.h"

namespace mantissa::cpu {
namespace {

/// [i] and [16 + i] side by side.
MANTISSA_LANES Float interleaved(__m512i halves) {
    alignas(64) static constexpr std::int16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return Lanes::from_bits(_mm512_permutexvar_epi16(_mm512_load_si512(order), halves));
}

MANTISSA_LANES Float pairs_of(Float first, Float second) {
    return interleaved(reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
}

MANTISSA_LANES __m256i sixteen(const BF16* x, int present) {
    return _mm256_maskz_loadu_epi16(Lanes::first(present), x);
}

/// Two rows of elements, the second 0 where there is none.
MANTISSA_LANES Float pairs_of_rows(const BF16* first, const BF16* second, int present) {
    const __m256i below = second ? sixteen(second, present) : _mm256_setzero_si256();
    return interleaved(_mm512_inserti64x4(_mm512_castsi256_si512(sixteen(first, present)), below, 1));
}

struct PairedOperands : VectorProducts {
    static constexpr int word = 2;
    static constexpr bool scale_in_operands = false;

    /// The driver let nothing but BF16 through.
    template <class F>
    MANTISSA_LANES void of_type(DType, F f) {
        f(static_cast<BF16*>(nullptr));
    }

    MANTISSA_LANES HeadRows<const float> words(const HeadRows<const BF16>& x) {
        return {reinterpret_cast<const float*>(x.data), x.stride / 2};
    }

    MANTISSA_LANES void positions(const HeadRows<const BF16>& x, std::int64_t count, std::int64_t width,
                                  float, const Block& block) {
        transpose_into(words(x), count, width / 2, block, [](const float* from, int present) MANTISSA_BODY {
            return Lanes::load_part(from, present);
        });
    }
    MANTISSA_LANES Rows along_head(const HeadRows<const BF16>& x, std::int64_t count, std::int64_t, float*) {
        return {words(x).data, words(x).stride, count};
    }
    MANTISSA_LANES Rows summed(const HeadRows<const BF16>& x, const Rows& rows, std::int64_t width,
                               float* scratch, const TransposedRows&) {
        interleave_rows(x, rows.count, width, {scratch, width});
        return {scratch, width, (rows.count + 1) / 2};
    }
    MANTISSA_LANES void pair_rows(const Block& p, std::int64_t rows) {
        for (std::int64_t r = 0; r < rows; r += 2)
            for (std::int64_t lane = 0; lane < p.lanes; lane += 16) {
                const Float second = r + 1 < rows ? Lanes::load(p.row(r + 1) + lane) : Lanes::constant(0.0f);
                Lanes::store(p.row(r / 2) + lane, pairs_of(Lanes::load(p.row(r) + lane), second));
            }
    }
    MANTISSA_LANES Rows across(const Block& p, std::int64_t rows, float* scratch) {
        auto* to = reinterpret_cast<BF16*>(scratch);
        for (std::int64_t i = 0; i < rows * p.lanes; i += 16) Lanes::store(to + i, Lanes::load(p.data + i));
        return {scratch, p.lanes / 2, rows};
    }
    MANTISSA_LANES void padded(const HeadRows<const BF16>& x, std::int64_t count, std::int64_t width, float,
                               const Block& to) {
        interleave_rows(x, count, width, to);
    }

  protected:
    /// Rows of `to` are stored in whole vectors only where they are padded to them.
    MANTISSA_LANES void interleave_rows(const HeadRows<const BF16>& x, std::int64_t count, std::int64_t width,
                                        const Block& to) {
        for (std::int64_t r = 0; r < count; r += 2)
            for (std::int64_t d = 0; d < width; d += 16) {
                const BF16* const first = x.row(r) + d;
                const int present = static_cast<int>(width - d < 16 ? width - d : 16);
                const int room = static_cast<int>(to.lanes - d < 16 ? to.lanes - d : 16);
                Lanes::store_part(to.row(r / 2) + d,
                                  pairs_of_rows(first, r + 1 < count ? first + x.stride : nullptr, present),
                                  room);
            }
    }
};

}  // namespace
}  // namespace mantissa::cpu
