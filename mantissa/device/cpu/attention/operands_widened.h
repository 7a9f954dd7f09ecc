// How the products take their operands where each multiply-add takes one element in FP32: as they are, or
// widened. See body_products.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/attention/body_movement.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct WidenedOperands : VectorProducts {
    static constexpr int word = 1;  ///< elements that a multiply-add takes
    /// Rows of scores that exist at a time, backward.
    static constexpr std::int64_t score_rows = query_rows;
    /// Blocks of rows begin at multiples of this.
    static constexpr std::int64_t first_unit = 1;

    /// Calls f with a null pointer of the tensors' type.
    template <class F>
    MANTISSA_LANES void of_type(DType type, F f) {
        with_type(type, f);
    }

    /// q takes the scale of the scores, or k backward.
    static constexpr bool scale_in_operands = true;

    /// Positions into the lanes, [D / word, lanes].
    template <class T>
    MANTISSA_LANES void positions(const HeadRows<const T>& x, std::int64_t count, std::int64_t width,
                                  float factor, const Block& block) {
        into_lanes(x, count, width, factor, block);
    }
    /// Rows to be multiplied element by element along the head. `packed`: these rows as the level packs them.
    template <class T>
    MANTISSA_LANES Rows along_head(const HeadRows<const T>& x, std::int64_t count, std::int64_t width,
                                   float* scratch, const float* /*packed*/) {
        return widened(x, count, width, scratch);
    }
    MANTISSA_LANES Rows part_of(const Rows& x, std::int64_t first, std::int64_t count) {
        return {x.data + first * x.stride, x.stride, count};
    }
    /// Rows to be summed over.
    template <class T>
    MANTISSA_LANES Rows summed(const HeadRows<const T>&, const Rows& rows, std::int64_t, float*,
                               const float* /*packed*/) {
        return rows;
    }
    /// exp(score - shift). Scores have their scale.
    struct Exponential {
        explicit Exponential(float) {}
        Float operator()(Float score, Float shift) const { return exp_of(Lanes::subtract(score, shift)); }
        Float to_round(Float score, Float shift) const { return (*this)(score, shift); }
        /// The factor of sums when scores are taken from another maximum.
        Float exact(Float difference) const { return exp_of(difference); }
        /// The number to subtract for a maximum, or a log-sum-exp.
        Float shift(Float maximum) const { return maximum; }
        Float shift_of_sum(Float lse) const { return lse; }
        /// Whether weights may go on being taken by the previous maximum: only if it is the largest.
        auto stays_small(Float largest, Float before) const { return Lanes::less(largest, before); }
    };
    /// Called after every few vectors of a long run of them.
    MANTISSA_LANES void between_vectors() {}
    /// Row r of weights, or `word` rows from r on, to be summed over rows.
    MANTISSA_LANES void store_rows(const Block& p, std::int64_t r, std::int64_t lane,
                                   const Float (&weights)[word]) {
        Lanes::store(p.row(r) + lane, weights[0]);
    }
    MANTISSA_LANES void end_rows(const Block&, std::int64_t) {}
    /// As store_rows, to be summed over lanes, too.
    MANTISSA_LANES void store_both_ways(const Block& p, float*, std::int64_t r, std::int64_t lane,
                                        const Float (&weights)[word]) {
        Lanes::store(p.row(r) + lane, weights[0]);
    }
    MANTISSA_LANES void end_both_ways(const Block&, float*, std::int64_t) {}
    MANTISSA_LANES Rows across(const Block& p, std::int64_t rows, float*) { return {p.data, p.lanes, rows}; }
    /// Rows to be summed over, padded with zeros to whole vectors: [count / word, lanes].
    template <class T>
    MANTISSA_LANES void padded(const HeadRows<const T>& x, std::int64_t count, std::int64_t width,
                               float factor, const Block& to) {
        padded_rows(x, count, width, factor, to);
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
