// Attention backward: the weights are computed again from the log-sum-exp, block by block, and with them all
// three gradients at once. See body_products.h for how this file is used.
//
//   p = exp(s - lse), dp = do v^T, ds = p (dp - sum(do o)), dv = p^T do, dk = scale ds^T q, dq = scale ds k
//
// With a score function f and factors m of the weights, p = exp(f(s) - lse). Then df = p (m dp - sum(do o)),
// dv = (m p)^T do, ds = f'(s) df. A gradient of lse is subtracted from sum(do o).
#pragma once

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/attention/body_score.h"
#include "mantissa/device/cpu/attention/body_words.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// Values that belong to a block of keys; keys are the lanes.
struct KeyBlock {
    Block k, v;               // [D, lanes], k scaled
    Block dk, dv;             // [D, lanes]
    Block p, ds;              // [query_rows, lanes]: scores and the gradients of weights
    Block weights, d_scores;  // [query_rows, lanes]: p and ds, as products sum over queries
    Block rows_of_k;          // [keys, padded_head], scaled
    float *wide_q, *wide_do;  // [query_rows, D]
    float* across;            // [query_rows, lanes / 2]: ds in pairs along the keys
};

/// Operands and results of a score function beside p, [query_rows, lanes] each.
struct ScoreBlocks {
    float* from = nullptr;  ///< scores as the product gives them; p unless they are read again for sums
    float* slopes = nullptr;
    float* multipliers = nullptr;
    float* cotangents = nullptr;
    float* staged = nullptr;  // [operands, query_rows, lanes]
    float* staged_gradients = nullptr;
};

ScoreBlocks laid_out_scores(const Score& score, const KeyBlock& block, float* scratch) {
    constexpr std::int64_t each = query_rows * key_lanes;
    ScoreBlocks blocks{.from = score.sums ? scratch : block.p.data};
    if (score.slopes) blocks.slopes = scratch + each;
    if (score.multiplies) blocks.multipliers = scratch + 2 * each;
    if (score.sums) blocks.cotangents = scratch + 3 * each;
    blocks.staged = scratch + 4 * each;
    blocks.staged_gradients = blocks.staged + score.operand_count * each;
    return blocks;
}

KeyBlock laid_out_keys(float* scratch, std::int64_t head_size) {
    const auto take = [&](std::int64_t count) {
        float* const part = scratch;
        scratch += count;
        return part;
    };
    KeyBlock block;
    for (Block* b : {&block.k, &block.v, &block.dk, &block.dv}) *b = {take(head_size * key_lanes), key_lanes};
    for (Block* b : {&block.p, &block.ds}) *b = {take(query_rows * key_lanes), key_lanes};
    block.weights = block.p;
    block.d_scores = block.ds;
    if constexpr (Operands::score_rows < query_rows)
        for (Block* b : {&block.weights, &block.d_scores})
            *b = {take(query_rows * key_lanes / Operands::word), key_lanes};
    block.rows_of_k = {take(key_lanes * padded_head(head_size)), padded_head(head_size)};
    block.wide_q = take(query_rows * head_size);
    block.wide_do = take(query_rows * head_size);
    block.across = take(query_rows * key_lanes / 2);
    return block;
}

/// Scores of some rows and the gradients of their weights, by weights and gradients of scores from row
/// `first` on: weights = exp(p - lse), d_scores = weights (ds - delta). Both are 0 in the lanes that row r
/// does not see, from `seen` + r or from `count` on: values of a lane without a key must reach no sum.
struct WeightRows {
    const float *lse, *delta;
    std::int64_t rows, seen, count, first;
};

/// Changes that a score function makes to these weights.
struct OfScores {
    const float* slopes = nullptr;
    const float* multipliers = nullptr;
    float* cotangents = nullptr;  ///< keeps the gradients of the function's results
};

template <bool Scored, class Slopes, class Multipliers>
void weights_and_gradients(const KeyBlock& block, const WeightRows& x, float scale, const OfScores& of) {
    constexpr int word = Operands::word;
    const Operands::Exponential exponential(scale);
    const Float zero = Lanes::constant(0.0f);
    for_words(x.rows, [&](std::int64_t r, auto there) MANTISSA_BODY {
        constexpr int count = decltype(there)::value;
        if (r % 16 == 0) Operands::between_vectors();
        Float shifts[count], means[count];
        for (int i = 0; i < count; ++i) {
            float lse = x.lse[r + i];
            if constexpr (Scored)  // of a query that sees nothing: weights are 0
                if (lse == -__builtin_inff()) lse = __builtin_inff();
            shifts[i] = exponential.shift_of_sum(Lanes::constant(lse));
            means[i] = Lanes::constant(x.delta[r + i]);
        }
        for (std::int64_t lane = 0; lane < key_lanes; lane += 16) {
            Float weights[word] = {}, gradients[word] = {};
#pragma GCC unroll 2
            for (int i = 0; i < count; ++i) {
                const std::int64_t row = r + i, end = x.seen + row < x.count ? x.seen + row : x.count;
                const std::int64_t at = row * key_lanes + lane;
                weights[i] = exponential.to_round(Lanes::load(block.p.row(row) + lane), shifts[i]);
                Float of_weight = Lanes::load(block.ds.row(row) + lane);
                if constexpr (Multipliers::value)
                    of_weight = Lanes::multiply(of_weight, Lanes::load(of.multipliers + at));
                gradients[i] = Lanes::multiply(weights[i], Lanes::subtract(of_weight, means[i]));
                if constexpr (Multipliers::value)
                    weights[i] = Lanes::multiply(weights[i], Lanes::load(of.multipliers + at));
                if (end < lane + 16) {
                    const Float ends = Lanes::constant(static_cast<float>(end));
                    const auto visible = Lanes::less(counted_from(static_cast<float>(lane)), ends);
                    weights[i] = Lanes::select(visible, weights[i], zero);
                    gradients[i] = Lanes::select(visible, gradients[i], zero);
                }
                if constexpr (Scored)
                    if (of.cotangents) Lanes::store(of.cotangents + at, gradients[i]);
                if constexpr (Slopes::value)
                    gradients[i] = Lanes::multiply(gradients[i], Lanes::load(of.slopes + at));
            }
            Operands::store_rows(block.weights, x.first + r, lane, weights);
            Operands::store_both_ways(block.d_scores, block.across, x.first + r, lane, gradients);
        }
    });
}

struct Without {
    static constexpr bool value = false;
};
struct With {
    static constexpr bool value = true;
};

void weights_of_scores(const KeyBlock& block, const WeightRows& x, float scale, const OfScores& of) {
    if (of.slopes && of.multipliers)
        weights_and_gradients<true, With, With>(block, x, scale, of);
    else if (of.slopes)
        weights_and_gradients<true, With, Without>(block, x, scale, of);
    else if (of.multipliers)
        weights_and_gradients<true, Without, With>(block, x, scale, of);
    else
        weights_and_gradients<true, Without, Without>(block, x, scale, of);
}

/// Scores and gradients of weights of some queries, in place by weights and gradients of scores. Adds their
/// contributions to the gradients of the score's operands.
void weights_by_function(const ScoreMeeting& m, const SeenLine& line, const KeyBlock& block,
                         const WeightRows& x, float scale, const ScoreBlocks& blocks,
                         const ScoreGradient* gradients) {
    const Score& score = m.score;
    const bool scaled = Operands::scale_in_operands || !score.backward;
    ScoreBlock met{.from = blocks.from,
                   .scores = block.p.data,
                   .slopes = blocks.slopes,
                   .multipliers = blocks.multipliers,
                   .stride = key_lanes,
                   .lanes = x.count,
                   .scale = scaled ? 1.0f : scale};
    place_block(m, met);
    MetOperands operands;
    meet_operands(m, met, query_rows, operands);
    call_functions({score.backward, score.backward_masked}, m, line, met, operands);
    weights_of_scores(block, x, score.backward ? 1.0f : scale,
                      {blocks.slopes, blocks.multipliers, blocks.cotangents});
    if (!score.sums) return;
    met.cotangents = blocks.cotangents;
    call_sums(m, met, operands, gradients, blocks.staged_gradients);
}

/// Sums of the queries of one head that go to dk and dv of a block of keys, and of these that go to dq.
template <class T>
void differentiate_queries(const AttentionGrad& p, std::int64_t head, Range keys, const float* delta,
                           const QueryGradients& to, const KeyBlock& block, float* scratch, const T* type) {
    const AttentionSize& s = p.size;
    const std::int64_t D = s.head_size, count = keys.last - keys.first, ahead = s.keys - s.queries;
    const float scale = s.scale < 0 ? -s.scale : s.scale;  // positions() takes the sign
    const HeadRows<const T> q = head_of(s, p.q, head, type), d_o = head_of(s, p.d_o, head, type);
    const PackedHead packed{p.packed, head, D, s.queries};
    const Score* const score = p.score;
    const ScoreBlocks blocks = score ? laid_out_scores(*score, block, scratch) : ScoreBlocks{};
    const Block dq{to.first + head % s.group * to.stride, padded_head(D)};
    const Block from{score ? blocks.from : block.p.data, key_lanes};
    const std::int64_t first = s.causal && keys.first > ahead ? keys.first - ahead : 0;
    SeenLine line = queries_seen(s, score, head, keys.first);
    line.silent = delta + delta_floats(s) + head * silent_blocks(s);
    const auto meeting = [&](Range queries) {
        return ScoreMeeting{*score,     head / s.heads, head % s.heads, queries,
                            keys.first, false,          blocks.staged};
    };
    const auto trim = [&](Range queries) {
        return rows_seen(meeting(queries), score->backward_mask, count, block.p, query_rows);
    };
    for_seen(line, {first, s.queries}, query_rows, trim, [&](Range queries) {
        const std::int64_t row = queries.first, rows = queries.last - queries.first;
        const auto of_q = Operands::along_head(q.from(row), rows, D, block.wide_q, packed.from(0, row));
        const auto of_do = Operands::along_head(d_o.from(row), rows, D, block.wide_do, packed.from(2, row));
        for (std::int64_t part = 0; part < rows; part += Operands::score_rows) {
            const Range some{row + part,
                             row + (rows - part < Operands::score_rows ? rows : part + Operands::score_rows)};
            const std::int64_t some_rows = some.last - some.first, at = head * s.queries + some.first;
            Operands::product(Operands::part_of(of_q, part, some_rows), block.k, D / Operands::word, from);
            Operands::product(Operands::part_of(of_do, part, some_rows), block.v, D / Operands::word,
                              block.ds);
            const std::int64_t seen = s.causal ? some.first + ahead - keys.first + 1 : key_lanes;
            const WeightRows weights{p.lse + at, delta + at, some_rows, seen, count, part};
            if (score)
                weights_by_function(meeting(some), line, block, weights, scale, blocks, to.score);
            else
                weights_and_gradients<false, Without, Without>(block, weights, scale, {});
        }
        Operands::end_rows(block.weights, rows);
        Operands::end_both_ways(block.d_scores, block.across, rows);
        Operands::spread(Operands::across(block.d_scores, rows, block.across), block.rows_of_k,
                         ceil_div(count, Operands::word), {dq.row(row), dq.lanes});
        Operands::gather(Operands::summed(d_o.from(row), of_do, D, block.wide_do, packed.from(3, row)),
                         block.weights, D, nullptr, block.dv);
        Operands::gather(Operands::summed(q.from(row), of_q, D, block.wide_q, packed.from(1, row)),
                         block.d_scores, D, nullptr, block.dk);
    });
}

template <class T>
void differentiate_keys(const AttentionGrad& p, std::int64_t key_head, Range keys, const float* delta,
                        const QueryGradients& to, float* scratch, const T* type) {
    const AttentionSize& s = p.size;
    const std::int64_t D = s.head_size, count = keys.last - keys.first;
    const KeyBlock block = laid_out_keys(scratch, D);
    const HeadRows<const T> k = key_head_of(s, p.k, key_head, type).from(keys.first);
    Operands::positions(k, count, D, s.scale, block.k);
    Operands::positions(key_head_of(s, p.v, key_head, type).from(keys.first), count, D, 1.0f, block.v);
    Operands::padded(k, count, D, s.scale, block.rows_of_k);
    fill(block.dk.data, D * key_lanes, 0.0f);
    fill(block.dv.data, D * key_lanes, 0.0f);
    float* const of_scores = scratch + backward_scratch(D);
    for (std::int64_t i = 0; i < s.group; ++i)
        differentiate_queries(p, key_head * s.group + i, keys, delta, to, block, of_scores, type);
    fill(block.p.data, key_lanes, s.scale);
    out_of_lanes(block.dk, block.p.data, count, D, key_head_of(s, p.dk, key_head, type).from(keys.first));
    fill(block.p.data, key_lanes, 1.0f);
    out_of_lanes(block.dv, block.p.data, count, D, key_head_of(s, p.dv, key_head, type).from(keys.first));
}

void attention_grad_keys(const AttentionGrad& p, std::int64_t key_head, Range keys, const float* delta,
                         const QueryGradients& to, float* scratch) {
    [[maybe_unused]] const Operands::Unit unit{};
    const std::int64_t width = padded_head(p.size.head_size);
    for (std::int64_t i = 0; i < p.size.group; ++i)
        fill(to.first + i * to.stride + to.queries.first * width,
             (to.queries.last - to.queries.first) * width, 0.0f);
    Operands::of_type(p.size.dtype, [&](auto* type) {
        for (std::int64_t key = keys.first; key < keys.last; key += key_lanes) {
            const std::int64_t last = key + key_lanes < keys.last ? key + key_lanes : keys.last;
            differentiate_keys(p, key_head, {key, last}, delta, to, scratch, type);
        }
    });
}

MANTISSA_LANES bool is_zero(float x) { return x == 0; }
MANTISSA_LANES bool is_zero(BF16 x) { return (x.bits & 0x7fff) == 0; }
MANTISSA_LANES bool is_zero(FP16 x) { return (x.bits & 0x7fff) == 0; }

template <class T>
MANTISSA_LANES bool are_zeros(const T* x, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        if (!is_zero(x[i])) return false;
    return true;
}

void attention_delta(const AttentionGrad& p, std::int64_t head, Range queries, float* delta) {
    const AttentionSize& s = p.size;
    Operands::of_type(s.dtype, [&](auto* type) {
        const auto of_do = head_of(s, p.d_o, head, type), of_o = head_of(s, p.o, head, type);
        float* const silent = delta + delta_floats(s) + head * silent_blocks(s);
        for (std::int64_t row = queries.first; row < queries.last; ++row) {
            const auto *const d_o = of_do.row(row), *const o = of_o.row(row);
            float& is_silent = silent[row / table_positions];
            if (row % table_positions == 0) is_silent = 1;
            FourSums sums = FourSums::zero();
            for_lanes_in_four(s.head_size, [&](std::int64_t d, int slot, auto extent) MANTISSA_BODY {
                sums.add(slot, Lanes::multiply(load(d_o + d, extent), load(o + d, extent)));
            });
            const std::int64_t at = head * s.queries + row;
            delta[at] = p.d_lse ? sums.total() - p.d_lse[at] : sums.total();
            // Weights that are no numbers come through, times 0 too.
            if (is_silent != 0 && (delta[at] != 0 || p.lse[at] != p.lse[at] || !are_zeros(d_o, s.head_size)))
                is_silent = 0;
        }
    });
}

void attention_sum_dq(const AttentionGrad& p, std::int64_t head, Range queries, const DqParts& parts) {
    const std::int64_t D = p.size.head_size, width = padded_head(D), part = dq_floats(D, p.size.queries);
    const Float factor = Lanes::constant(Operands::scale_in_operands ? 1.0f : p.size.scale);
    Operands::of_type(p.size.dtype, [&](auto* type) {
        const auto of_dq = head_of(p.size, p.dq, head, type);
        for (std::int64_t row = queries.first; row < queries.last; ++row) {
            auto* const to = of_dq.row(row);
            std::int64_t there[max_segments], count = 0;
            for (std::int64_t i = 0; i < parts.count; ++i)
                if (!parts.seen || (parts.seen[i].first <= row && row < parts.seen[i].last))
                    there[count++] = i;
            for_lanes(D, [&](std::int64_t d, auto extent) MANTISSA_BODY {
                const float* const from = parts.first + row * width + d;
                Float sum = count > 0 ? load(from + there[0] * part, extent) : Lanes::constant(0.0f);
                for (std::int64_t i = 1; i < count; ++i)
                    sum = Lanes::add(sum, load(from + there[i] * part, extent));
                store(to + d, Lanes::multiply(sum, factor), extent, false);
            });
        }
    });
}

}  // namespace
}  // namespace mantissa::on_cpu
