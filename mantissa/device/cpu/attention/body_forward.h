// Attention forward: online softmax over blocks of keys (Dao et al. 2022, "FlashAttention"; Milakov and
// Gimelshein 2018 for the running maximum and sum). See body_products.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/attention/body_score.h"
#include "mantissa/device/cpu/attention/body_words.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// Values that a block of queries carries from one block of keys to the next; queries are the lanes.
struct QueryBlock {
    Block q;         // [D, lanes], scaled
    Block o;         // [D, lanes], the sum of exp(score - maximum) times values
    Block scores;    // [key_rows, lanes], then their exponentials
    float* maximum;  // [lanes]
    float* sum;      // [lanes], of exp(score - maximum)
    float* factors;  // [lanes], factors of the sums up to here
};

QueryBlock laid_out(float* scratch, std::int64_t head_size) {
    const auto take = [&](std::int64_t count) {
        float* const part = scratch;
        scratch += count;
        return part;
    };
    QueryBlock block;
    block.q = {take(head_size * query_lanes), query_lanes};
    block.o = {take(head_size * query_lanes), query_lanes};
    block.scores = {take(key_rows * query_lanes), query_lanes};
    block.maximum = take(query_lanes);
    block.sum = take(query_lanes);
    block.factors = take(query_lanes);
    return block;
}

/// Row r is a key that stands `lanes_before` + r lanes after the block's first query: lanes below that do not
/// see it.
void hide_later(const Block& scores, std::int64_t first_row, std::int64_t rows, std::int64_t lanes_before) {
    const Float hidden = Lanes::constant(-__builtin_inff());
    for (std::int64_t r = first_row; r < rows; ++r)
        for (std::int64_t lane = 0; lane < scores.lanes; lane += 16) {
            const Float index = counted_from(static_cast<float>(lane));
            const auto before = Lanes::less(index, Lanes::constant(static_cast<float>(r + lanes_before)));
            float* const at = scores.row(r) + lane;
            Lanes::store(at, Lanes::select(before, hidden, Lanes::load(at)));
        }
}

/// The largest of the scores of so many keys and of `before`. NaN is not taken for a maximum: it comes
/// through by its exponential.
MANTISSA_LANES Float largest_score(const float* scores, std::int64_t keys, Float before) {
    Float two[2] = {before, before};
    std::int64_t r = 0;
    for (; r + 2 <= keys; r += 2)
        for (int i = 0; i < 2; ++i)
            two[i] = Lanes::maximum(Lanes::load(scores + (r + i) * query_lanes), two[i]);
    if (r < keys) two[0] = Lanes::maximum(Lanes::load(scores + r * query_lanes), two[0]);
    return Lanes::maximum(two[0], two[1]);
}

/// Turns the scores of so many keys into weights, as the product with the values takes them, and carries
/// maximum and sum on. The maximum is of scores as they are stored, `scale` their factor still to come.
/// Weights that meet the values have `factors` [keys, lanes], where there are any.
template <bool Multiplied>
void softmax_step(const QueryBlock& block, std::int64_t keys, float scale, const float* factors) {
    constexpr int word = Operands::word;
    const Operands::Exponential exponential(scale);
    const Float lowest = Lanes::constant(-__builtin_inff());
    for (std::int64_t lane = 0; lane < query_lanes; lane += 16) {
        float* const scores = block.scores.data + lane;
        const Float before = Lanes::load(block.maximum + lane);
        const Float largest = largest_score(scores, keys, before);
        // As long as weights stay small enough the sums need not be scaled.
        const Float maximum = Lanes::select(exponential.stays_small(largest, before), before, largest);
        // While all are -infinity there is nothing to subtract.
        const Float base = Lanes::select(Lanes::less(lowest, maximum), maximum, Lanes::constant(0.0f));
        const Float shift = exponential.shift(base),
                    factor = exponential.exact(Lanes::subtract(before, base));
        Float sums[word];
        for (int i = 0; i < word; ++i) sums[i] = Lanes::constant(0.0f);
        sums[0] = Lanes::multiply(Lanes::load(block.sum + lane), factor);
        for_words(keys, [&](std::int64_t r, auto there) MANTISSA_BODY {
            if (r % 64 == 0) Operands::between_vectors();
            Float weights[word] = {};
#pragma GCC unroll 2
            for (int i = 0; i < decltype(there)::value; ++i) {
                weights[i] = exponential(Lanes::load(scores + (r + i) * query_lanes), shift);
                sums[i] = Lanes::add(sums[i], weights[i]);
                if constexpr (Multiplied)
                    weights[i] =
                        Lanes::multiply(weights[i], Lanes::load(factors + (r + i) * query_lanes + lane));
            }
            Operands::store_rows(block.scores, r, lane, weights);
        });
        Float sum = sums[0];
        for (int i = 1; i < word; ++i) sum = Lanes::add(sum, sums[i]);
        Lanes::store(block.maximum + lane, maximum);
        Lanes::store(block.sum + lane, sum);
        Lanes::store(block.factors + lane, factor);
    }
    Operands::end_rows(block.scores, keys);
}

/// 1 / sum into `factors`, the log-sum-exp into `maximum`. A query with scores of -infinity only has neither:
/// both are NaN, or 0 and -infinity where there is a score function.
void finish_softmax(const QueryBlock& block, float scale, bool has_function) {
    const Float scales = Lanes::constant(Operands::scale_in_operands ? 1.0f : scale);
    const Float nan = Lanes::constant(__builtin_nanf(""));
    const Float no_inverse = has_function ? Lanes::constant(0.0f) : nan;
    const Float no_sum = has_function ? Lanes::constant(-__builtin_inff()) : nan;
    for (std::int64_t lane = 0; lane < query_lanes; lane += 16) {
        const Float sum = Lanes::load(block.sum + lane), zero = Lanes::constant(0.0f);
        const auto positive = Lanes::less(zero, sum);
        const auto none = Lanes::less(sum, Lanes::constant(0x1p-126f));  // and no NaN
        const Float inverse = Lanes::divide(Lanes::constant(1.0f), sum);
        const Float maximum = Lanes::multiply(Lanes::load(block.maximum + lane), scales);
        const Float lse = Lanes::add(maximum, elementary::log(lanes, sum));
        const Float other_inverse = Lanes::select(none, no_inverse, nan);
        const Float other_lse = Lanes::select(none, no_sum, nan);
        Lanes::store(block.factors + lane, Lanes::select(positive, inverse, other_inverse));
        Lanes::store(block.maximum + lane, Lanes::select(positive, lse, other_lse));
    }
}

/// A block of scores after its score function: rows are keys.
void remake_scores(const Score& score, const ScoreMeeting& m, const SeenLine& line, const QueryBlock& block,
                   float scale, std::int64_t count, float* multipliers) {
    const ScorePair functions{score.forward, score.forward_masked};
    if (!score.forward) {
        bool hides = false;
        for (std::int64_t key = m.rows.first; key < m.rows.last; key = end_of_table_block(key))
            hides = hides || line.at(key) == Sees::some;
        if (!hides) return;
    }
    ScoreBlock met{.from = block.scores.data,
                   .scores = block.scores.data,
                   .multipliers = multipliers,
                   .stride = query_lanes,
                   .lanes = count,
                   .scale = scale};
    place_block(m, met);
    MetOperands operands;
    meet_operands(m, met, key_rows, operands);
    call_functions(functions, m, line, met, operands);
}

template <class T>
void attend(const Attention& p, std::int64_t head, Range queries, float* scratch, const T* type) {
    const AttentionSize& s = p.size;
    const std::int64_t D = s.head_size, count = queries.last - queries.first, ahead = s.keys - s.queries;
    const QueryBlock block = laid_out(scratch, D);
    const float scale = s.scale < 0 ? -s.scale : s.scale;  // positions() takes the sign
    const Score* const score = p.score;
    const bool has_function = score && score->forward;  // which takes the scale
    const float scale_left = has_function ? 1.0f : scale;
    float* const multipliers = score && score->multiplies ? scratch + forward_scratch(D) : nullptr;
    float* const staged = scratch + forward_scratch(D) + (multipliers ? key_rows * query_lanes : 0);
    float* const wide_k = scratch + forward_scratch(D) - 2 * key_rows * D;
    float* const wide_v = wide_k + key_rows * D;
    Operands::positions(head_of(s, p.q, head, type).from(queries.first), count, D, s.scale, block.q);
    fill(block.o.data, D * query_lanes, 0.0f);
    fill(block.sum, query_lanes, 0.0f);
    fill(block.maximum, query_lanes, -__builtin_inff());

    const std::int64_t key_head = head / s.group;
    const HeadRows<const T> k = key_head_of(s, p.k, key_head, type), v = key_head_of(s, p.v, key_head, type);
    const std::int64_t seen = s.causal ? queries.last + ahead : s.keys;
    const SeenLine line = keys_seen(s, score, head, queries.first);
    const PackedHead packed{p.packed, key_head, D, s.keys};
    const auto meeting = [&](Range keys) {
        return ScoreMeeting{*score, head / s.heads, head % s.heads, keys, queries.first, true, staged};
    };
    const auto trim = [&](Range keys) {
        return rows_seen(meeting(keys), score->forward_mask, count, block.scores, key_rows);
    };
    for_seen(line, {0, seen}, key_rows, trim, [&](Range keys) {
        const std::int64_t key = keys.first, rows = keys.last - keys.first;
        const auto of_k = Operands::along_head(k.from(key), rows, D, wide_k, packed.from(0, key));
        Operands::product(of_k, block.q, D / Operands::word, block.scores);
        if (score)
            remake_scores(*score, meeting(keys), line, block,
                          Operands::scale_in_operands || !has_function ? 1.0f : scale, count, multipliers);
        if (s.causal) {
            const std::int64_t before = key - ahead - queries.first;
            hide_later(block.scores, before < 0 ? -before : 0, rows, before);
        }
        if (multipliers)
            softmax_step<true>(block, rows, scale_left, multipliers);
        else
            softmax_step<false>(block, rows, scale_left, nullptr);
        const float* const v_across = packed.from(1, key);
        const auto of_v = Operands::along_head(v.from(key), rows, D, wide_v, v_across);
        Operands::gather(Operands::summed(v.from(key), of_v, D, wide_v, v_across), block.scores, D,
                         block.factors, block.o);
    });
    finish_softmax(block, scale_left, score != nullptr);
    out_of_lanes(block.o, block.factors, count, D, head_of(s, p.o, head, type).from(queries.first));
    float* const lse = p.lse + head * s.queries + queries.first;
    for_lanes(count, [&](std::int64_t i, auto extent)
                         MANTISSA_BODY { store(lse + i, load(block.maximum + i, Whole{}), extent, false); });
}

void attention_queries(const Attention& p, std::int64_t head, Range queries, float* scratch) {
    [[maybe_unused]] const Operands::Unit unit{};
    Operands::of_type(p.size.dtype, [&](auto* type) { attend(p, head, queries, scratch, type); });
}

}  // namespace
}  // namespace mantissa::on_cpu
