// Attention forward: online softmax over blocks of keys (Dao et al. 2022, "FlashAttention"; Milakov and
// Gimelshein 2018 for the running maximum and sum). See body_products.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/attention/body_movement.h"

namespace mantissa::cpu {
namespace {

/// What a block of queries carries from one block of keys to the next; queries are the lanes.
struct QueryBlock {
    Block q;         // [D, lanes], scaled
    Block o;         // [D, lanes], the sum of exp(score - maximum) times values
    Block scores;    // [key_rows, lanes], then their exponentials
    float* maximum;  // [lanes]
    float* sum;      // [lanes], of exp(score - maximum)
    float* factors;  // [lanes], what sums up to here are multiplied with
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
void hide_later(const Block& scores, std::int64_t first_row, std::int64_t rows, std::int64_t lanes_before,
                float hidden_score) {
    const Float hidden = Lanes::constant(hidden_score);
    for (std::int64_t r = first_row; r < rows; ++r)
        for (std::int64_t lane = 0; lane < scores.lanes; lane += 16) {
            const Float index = counted_from(static_cast<float>(lane));
            const auto before = Lanes::less(index, Lanes::constant(static_cast<float>(r + lanes_before)));
            float* const at = scores.row(r) + lane;
            Lanes::store(at, Lanes::select(before, hidden, Lanes::load(at)));
        }
}

/// Turns the scores of so many keys into exponentials and carries maximum and sum on.
void softmax_step(const QueryBlock& block, std::int64_t keys, float scale) {
    const Float lowest = Lanes::constant(-__builtin_inff()), scales = Lanes::constant(scale);
    const auto score = [&](const float* at) MANTISSA_BODY {
        return Operands::scale_in_operands ? Lanes::load(at) : Lanes::multiply(Lanes::load(at), scales);
    };
    for (std::int64_t lane = 0; lane < query_lanes; lane += 16) {
        float* const scores = block.scores.data + lane;
        const Float before = Lanes::load(block.maximum + lane);
        // A NaN is not taken for a maximum: it comes through by its exponential.
        Float two[2] = {before, before};
        std::int64_t r = 0;
        for (; r + 2 <= keys; r += 2)
            for (int i = 0; i < 2; ++i)
                two[i] = Lanes::maximum(score(scores + (r + i) * query_lanes), two[i]);
        if (r < keys) two[0] = Lanes::maximum(score(scores + r * query_lanes), two[0]);
        const Float maximum = Lanes::maximum(two[0], two[1]);
        // While all are -infinity there is nothing to subtract.
        const Float shift = Lanes::select(Lanes::less(lowest, maximum), maximum, Lanes::constant(0.0f));
        const Float factor = exp_of(Lanes::subtract(before, shift));
        Float sum = Lanes::multiply(Lanes::load(block.sum + lane), factor);
        for (r = 0; r < keys; ++r) {
            const Float e = exp_of(Lanes::subtract(score(scores + r * query_lanes), shift));
            sum = Lanes::add(sum, e);
            Lanes::store(scores + r * query_lanes, e);
        }
        Lanes::store(block.maximum + lane, maximum);
        Lanes::store(block.sum + lane, sum);
        Lanes::store(block.factors + lane, factor);
    }
}

/// 1 / sum into `factors`, the log-sum-exp into `maximum`. A query all of whose scores are -infinity has
/// neither: both are NaN.
void finish_softmax(const QueryBlock& block) {
    for (std::int64_t lane = 0; lane < query_lanes; lane += 16) {
        const Float sum = Lanes::load(block.sum + lane), zero = Lanes::constant(0.0f);
        const Float nan = Lanes::constant(__builtin_nanf(""));
        const auto positive = Lanes::less(zero, sum);
        const Float inverse = Lanes::divide(Lanes::constant(1.0f), sum);
        const Float lse = Lanes::add(Lanes::load(block.maximum + lane), elementary::log(lanes, sum));
        Lanes::store(block.factors + lane, Lanes::select(positive, inverse, nan));
        Lanes::store(block.maximum + lane, Lanes::select(positive, lse, nan));
    }
}

template <class T>
void attend(const Attention& p, std::int64_t head, Range queries, float* scratch, const T* type) {
    const AttentionSize& s = p.size;
    const std::int64_t D = s.head_size, count = queries.last - queries.first, ahead = s.keys - s.queries;
    const QueryBlock block = laid_out(scratch, D);
    float* const wide_k = scratch + forward_scratch(D) - 2 * key_rows * D;
    float* const wide_v = wide_k + key_rows * D;
    Operands::positions(head_of(s, p.q, head, type).from(queries.first), count, D, s.scale, block.q);
    fill(block.o.data, D * query_lanes, 0.0f);
    fill(block.sum, query_lanes, 0.0f);
    fill(block.maximum, query_lanes, -__builtin_inff());

    const HeadRows<const T> k = head_of(s, p.k, head, type), v = head_of(s, p.v, head, type);
    const std::int64_t seen = s.causal ? queries.last + ahead : s.keys;
    for (std::int64_t key = 0; key < seen; key += key_rows) {
        const std::int64_t rows = seen - key < key_rows ? seen - key : key_rows;
        const Rows of_k = Operands::along_head(k.from(key), rows, D, wide_k);
        Operands::product(of_k, block.q, D / Operands::word, block.scores);
        if (s.causal) {
            const std::int64_t before = key - ahead - queries.first;
            // Where the scale is yet to come, a negative one turns infinities round.
            const bool turned = !Operands::scale_in_operands && s.scale < 0;
            hide_later(block.scores, before < 0 ? -before : 0, rows, before,
                       turned ? __builtin_inff() : -__builtin_inff());
        }
        softmax_step(block, rows, s.scale);
        Operands::pair_rows(block.scores, rows);
        const Rows of_v = Operands::along_head(v.from(key), rows, D, wide_v);
        const TransposedRows across = transposed_head(p.workspace, head, D, s.keys, key);
        Operands::gather(Operands::summed(v.from(key), of_v, D, wide_v, across), block.scores, D,
                         block.factors, block.o);
    }
    finish_softmax(block);
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
}  // namespace mantissa::cpu
