// The scores of attention's kernels: functions of pairs, masks, and the gradients of operands.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "mantissa/codegen/llvm/attention_block.h"

namespace mantissa::inline v0::codegen {

using llvm::Value;
using By = PairScore::Gradient::By;

/// A thread's rows and columns.
PairSite AttentionBlock::site_of(Value* tile_first, Value* head) {
    std::vector<Value*> all_rows, all_columns;
    const std::vector<ThreadRow> rows = thread_rows(columns());
    for (const ThreadRow& row : rows) all_rows.push_back(number_of(row));
    Value* first = b_.CreateAdd(tile_first, first_column_of_lane());
    for (std::size_t e = 0; e < rows[0].elements.size(); ++e)
        all_columns.push_back(b_.CreateAdd(first, word(column_of(e))));
    const bool rows_may_end = (rows_are_queries() ? kernel_.queries : kernel_.keys) % tiles_.rows() != 0;
    const bool columns_may_end = (rows_are_queries() ? kernel_.keys : kernel_.queries) % columns() != 0;
    if (rows_are_queries()) return {sequence_, head, all_rows, all_columns, rows_may_end, columns_may_end};
    return {sequence_, head, all_columns, all_rows, columns_may_end, rows_may_end};
}

PairValues::Pair AttentionBlock::pair_of(std::size_t row, std::size_t column, Value* score) const {
    return rows_are_queries() ? PairValues::Pair{row, column, score} : PairValues::Pair{column, row, score};
}

AttentionBlock::Values AttentionBlock::score_operands() {
    Values operands;
    const std::size_t first = of_score_ + (masks() ? 1 : 0);
    for (std::size_t i = 0; i < kernel_.score->operands.size(); ++i) operands.push_back(parameter(first + i));
    return operands;
}

std::size_t AttentionBlock::first_gradient() const {
    return of_score_ + (masks() ? 1 : 0) + kernel_.score->operands.size();
}

AttentionBlock::Remade AttentionBlock::remade(const Sums& products, Value* tile_first, Value* head) {
    if (!remakes()) return {products};
    const ScoreCode& code = *kernel_.score->remade;
    PairValues values(b_, lanes_, kernel_, code, score_operands(), site_of(tile_first, head));
    Remade made{products};
    if (kernel_.score->makes(ScoreCode::Makes::slopes)) made.slopes = products;
    if (kernel_.score->makes(ScoreCode::Makes::multipliers)) made.multipliers = products;
    const std::vector<ThreadRow> rows = thread_rows(columns());
    for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::size_t e = 0; e < rows[r].elements.size(); ++e) {
            const std::size_t at = rows[r].elements[e];
            const auto pair = pair_of(r, e, b_.CreateFMul(products[at], number(kernel_.scale)));
            for (std::size_t i = 0; i < code.outputs.size(); ++i) {
                const ScoreCode::Makes makes = code.outputs[i].makes;
                Sums& to = makes == ScoreCode::Makes::scores   ? made.scores
                           : makes == ScoreCode::Makes::slopes ? made.slopes
                                                               : made.multipliers;
                to[at] = values.result(i, pair);
            }
        }
    return made;
}

AttentionBlock::Sums AttentionBlock::hidden_by_mask(const Sums& scores, Value* tile_first, Value* head,
                                                    Value* sees) {
    if (!masks()) return scores;
    return control_.if_then(b_.CreateICmpEQ(sees, word(SeenTilesKernel::some)), scores, [&] {
        PairValues mask(b_, lanes_, kernel_, *kernel_.score->mask, score_operands(),
                        site_of(tile_first, head));
        Sums seen = scores;
        const std::vector<ThreadRow> rows = thread_rows(columns());
        for (std::size_t r = 0; r < rows.size(); ++r)
            for (std::size_t e = 0; e < rows[r].elements.size(); ++e) {
                Value*& score = seen[rows[r].elements[e]];
                score = mask.result(0, pair_of(r, e, score));
            }
        return seen;
    });
}

std::size_t AttentionBlock::row_sums_of_thread() const {
    std::size_t by_rows = 0;
    for (const std::size_t i : score_gradients_of(kernel_))
        by_rows += kernel_.score->gradients[i].by != By::each_pair;
    return by_rows * thread_rows(columns()).size();
}

void AttentionBlock::add_score_gradients(const Sums& products, const Sums& cotangents, Value* tile_first,
                                         Value* head, std::span<Value*> sums) {
    const std::vector<std::size_t> made = score_gradients_of(kernel_);
    if (made.empty()) return;
    const PairSite site = site_of(tile_first, head);
    PairValues values(b_, lanes_, kernel_, *kernel_.score->sums, score_operands(), site);
    const std::vector<ThreadRow> rows = thread_rows(columns());
    struct Stored {
        std::size_t gradient, parameter;
        PairValues::Pair pair;
        Value* value;
    };
    std::vector<Stored> stored;
    for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::size_t e = 0; e < rows[r].elements.size(); ++e) {
            const std::size_t at = rows[r].elements[e];
            auto pair = pair_of(r, e, b_.CreateFMul(products[at], number(kernel_.scale)));
            pair.cotangent = cotangents[at];
            // A pair that nobody sees gives nothing, whatever the function's derivative is there.
            Value* is_none = b_.CreateFCmpOEQ(cotangents[at], number(0));
            std::size_t next = 0;
            for (std::size_t i = 0; i < made.size(); ++i) {
                Value* given = b_.CreateSelect(is_none, number(0), values.result(made[i], pair));
                if (kernel_.score->gradients[made[i]].by == By::each_pair)
                    stored.push_back({made[i], first_gradient() + i, pair, given});
                else {
                    Value*& sum = sums[next++ * rows.size() + r];
                    sum = b_.CreateFAdd(sum, given);
                }
            }
        }
    for (const Stored& one : stored)  // once all values are made: they are for the code behind them
        store_of_pair(kernel_.score->gradients[one.gradient], site, one.pair, one.value,
                      parameter(one.parameter));
}

AttentionBlock::Sums AttentionBlock::through_slopes(Sums gradients, const Sums& slopes) {
    for (std::size_t i = 0; i < slopes.size(); ++i) {
        Value* is_none = b_.CreateFCmpOEQ(gradients[i], number(0));
        gradients[i] = b_.CreateSelect(is_none, number(0), b_.CreateFMul(gradients[i], slopes[i]));
    }
    return gradients;
}

void AttentionBlock::store_of_pair(const PairScore::Gradient& gradient, const PairSite& site,
                                   const PairValues::Pair& pair, Value* value, Value* to) {
    Value *query = site.queries[pair.query], *key = site.keys[pair.key];
    Value* is_there = b_.CreateAnd(is_less(query, word(kernel_.queries)), is_less(key, word(kernel_.keys)));
    if_then(is_there, [&] {
        const auto& [dtype, places] = kernel_.score->operands[gradient.operand];
        const auto wide = [&](Value* x) { return b_.CreateZExt(x, b_.getInt64Ty()); };
        Value* element = integer(places.start);
        const std::pair<Value*, std::int64_t> along[] = {{site.sequence, places.sequence},
                                                         {site.head, places.head},
                                                         {wide(query), places.query},
                                                         {wide(key), places.key}};
        for (const auto& [position, step] : along)
            element = b_.CreateAdd(element, b_.CreateMul(position, integer(step)));
        store(value, to, element, dtype);
    });
}

/// [B, H, T], or [B, G, S] of the block's head of keys.
void AttentionBlock::write_row_sums(std::span<Value* const> sums, std::int64_t all) {
    const std::vector<std::size_t> made = score_gradients_of(kernel_);
    const std::vector<ThreadRow> rows = thread_rows(columns());
    std::size_t next = 0;
    for (std::size_t i = 0; i < made.size(); ++i) {
        if (kernel_.score->gradients[made[i]].by == By::each_pair) continue;
        for (std::size_t r = 0; r < rows.size(); ++r) {
            Value *sum = across_row(sums[next++], false), *row = number_of(rows[r]);
            Value* is_first = b_.CreateICmpEQ(b_.CreateAnd(lane_, word(3)), word(0));
            if_then(b_.CreateAnd(is_first, is_less(row, word(all))), [&] {
                Value* at = b_.CreateAdd(b_.CreateMul(head_of_all_, integer(all)),
                                         b_.CreateZExt(row, b_.getInt64Ty()));
                store_f32(sum, control_.at(parameter(first_gradient() + i), at, DType::f32));
            });
        }
    }
}

}  // namespace mantissa::codegen
