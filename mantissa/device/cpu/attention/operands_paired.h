// How the products take their operands where each multiply-add takes two neighbours in BF16 (vdpbf16ps):
// along the head as pairs lie in memory, along positions after two rows were interleaved. Weights and their
// gradients are rounded to BF16; the scale stays out of the operands, which it would round. See
// body_products.h for how this file is used.
#pragma once

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/attention/body_movement.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// [i] and [16 + i] side by side.
MANTISSA_LANES Float interleaved(__m512i halves) {
    alignas(64) static constexpr std::int16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return Lanes::from_bits(_mm512_permutexvar_epi16(_mm512_load_si512(order), halves));
}

/// Sixteen BF16 of `first`, then sixteen of `second`.
MANTISSA_LANES __m512i rounded(Float first, Float second) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
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
    static constexpr std::int64_t score_rows = query_rows;
    static constexpr std::int64_t first_unit = 1;
    static constexpr bool scale_in_operands = false;

    /// The driver let nothing but BF16 through.
    template <class F>
    MANTISSA_LANES void of_type(DType, F f) {
        f(static_cast<BF16*>(nullptr));
    }

    MANTISSA_LANES HeadRows<const float> words(const HeadRows<const BF16>& x) {
        return {reinterpret_cast<const float*>(x.data), x.stride / 2};
    }

    /// Takes the sign of the factor, which rounds nothing, so that scales are never negative.
    MANTISSA_LANES void positions(const HeadRows<const BF16>& x, std::int64_t count, std::int64_t width,
                                  float factor, const Block& block) {
        const auto signs = Lanes::integer(factor < 0 ? static_cast<int>(0x80008000u) : 0);
        transpose_into(words(x), count, width / 2, block, [=](const float* from, int present) MANTISSA_BODY {
            return Lanes::from_bits(_mm512_xor_si512(Lanes::bits(Lanes::load_part(from, present)), signs));
        });
    }
    MANTISSA_LANES Rows along_head(const HeadRows<const BF16>& x, std::int64_t count, std::int64_t, float*,
                                   const float*) {
        return {words(x).data, words(x).stride, count};
    }
    MANTISSA_LANES Rows part_of(const Rows& x, std::int64_t first, std::int64_t count) {
        return {x.data + first * x.stride, x.stride, count};
    }
    MANTISSA_LANES Rows summed(const HeadRows<const BF16>& x, const Rows& rows, std::int64_t width,
                               float* scratch, const float*) {
        interleave_rows(x, rows.count, width, {scratch, width});
        return {scratch, width, ceil_div(rows.count, 2)};
    }
    /// exp(scale score - shift ln 2) as 2^floor(x) times 2^f, f between 0 and 1, by a polynomial: the minimax
    /// fit of relative error (Remez exchange), its coefficients rounded as in elementary_body.h. NaN
    /// and infinities come through; smaller numbers are 0.
    struct Exponential {
        Float scale, factor;  // the scale of scores, and the scale over ln 2
        explicit Exponential(float of_scores)
            : scale(Lanes::constant(of_scores)), factor(Lanes::constant(of_scores * 0x1.715476p+0f)) {}

        /// The exponential for sums, and so for the log-sum-exp. Its error is 7.6e-8.
        Float operator()(Float score, Float shift) const {
            static constexpr float series[] = {0x1.fffffep-1f, 0x1.62e4eap-1f, 0x1.ebd6c2p-3f,
                                               0x1.c949b8p-5f, 0x1.26bbd2p-7f, 0x1.ebaf42p-10f};
            return power_of_two(series, _mm512_fmsub_ps(score, factor, shift));
        }
        /// The exponential for weights that are only rounded to BF16, by up to 2^-9. Its error is 7.5e-5.
        Float to_round(Float score, Float shift) const {
            static constexpr float series[] = {0x1.fff632p-1f, 0x1.644446p-1f, 0x1.cefb2p-3f, 0x1.3f989cp-4f};
            return power_of_two(series, _mm512_fmsub_ps(score, factor, shift));
        }
        /// The factor of sums when scores are taken from another maximum: exactly 1 where the maximum stays,
        /// lest an error add up from block to block.
        Float exact(Float difference) const { return exp_of(Lanes::multiply(difference, scale)); }
        Float shift(Float maximum) const { return Lanes::multiply(maximum, factor); }
        Float shift_of_sum(Float lse) const { return Lanes::multiply(lse, Lanes::constant(0x1.715476p+0f)); }
        /// Weights up to 2^8 cost no precision; that spares most scalings of o.
        auto stays_small(Float largest, Float before) const {
            return Lanes::less(Lanes::multiply(Lanes::subtract(largest, before), factor),
                               Lanes::constant(8.0f));
        }

      private:
        template <int Count>
        MANTISSA_LANES Float power_of_two(const float (&series)[Count], Float x) {
            const Float f = _mm512_reduce_ps(x, 0x9);  // x - floor(x)
            return _mm512_scalef_ps(elementary::polynomial(lanes, series, f), x);
        }
    };
    MANTISSA_LANES void between_vectors() {}
    MANTISSA_LANES void store_rows(const Block& p, std::int64_t r, std::int64_t lane,
                                   const Float (&weights)[word]) {
        Lanes::store(p.row(r / 2) + lane, interleaved(rounded(weights[0], weights[1])));
    }
    MANTISSA_LANES void end_rows(const Block&, std::int64_t) {}
    /// As store_rows, and in `across` as they are, to be summed over lanes.
    MANTISSA_LANES void store_both_ways(const Block& p, float* across, std::int64_t r, std::int64_t lane,
                                        const Float (&weights)[word]) {
        const __m512i halves = rounded(weights[0], weights[1]);
        Lanes::store(p.row(r / 2) + lane, interleaved(halves));
        auto* const row = reinterpret_cast<std::uint16_t*>(across) + r * p.lanes + lane;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_castsi512_si256(halves));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + p.lanes), _mm512_extracti64x4_epi64(halves, 1));
    }
    MANTISSA_LANES void end_both_ways(const Block&, float*, std::int64_t) {}
    MANTISSA_LANES Rows across(const Block& p, std::int64_t rows, float* scratch) {
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
}  // namespace mantissa::on_cpu
