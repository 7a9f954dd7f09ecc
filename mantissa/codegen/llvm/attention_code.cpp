// Attention on matrix units: the queries' results, in one go over the keys.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <limits>

#include "mantissa/codegen/llvm/attention_block.h"
#include "mantissa/codegen/llvm/emit.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;
using Makes = AttentionKernel::Makes;

class OutputCode : AttentionBlock {
  public:
    OutputCode(llvm::Module& module, const std::string& name, const AttentionKernel& kernel)
        : AttentionBlock(module, name, kernel) {}

    void run() {
        pool_ = shared_pool(stages * tile_bytes() + std::max(stages * tile_bytes(), rows_bytes()));
        take_rows(kernel_.queries, kernel_.heads, kernel_.causal);
        Value* of_queries = bytes_behind(pool_, 2 * tile_bytes());  // where the second pair of tiles will be
        copy_in(rows(rows(0, kernel_.q, head_, first_), kernel_.queries, first_, of_queries, tiles_.rows()));
        const TileWork tiles =
            key_tiles(1, 2, [&](const Tile& tile, const Values& before) { return one_tile(tile, before); });
        begin_tiles(tiles);
        wait_for_copies();
        barrier();
        q_ = held(of_queries);
        const std::size_t threads_rows = thread_rows(head_size()).size();
        Values start = zeros(rows_of_warp(), head_size());
        start.insert(start.end(), threads_rows, number(-std::numeric_limits<double>::infinity()));
        start.insert(start.end(), threads_rows, number(0));
        finish(over_tiles(tiles, start));
        b_.CreateRetVoid();
    }

  private:
    /// o, the largest scores and the sums of each of the thread's rows.
    Values one_tile(const Tile& tile, const Values& before) {
        Value* first_key = b_.CreateMul(narrow(tile.place), word(columns()));
        Sums products = zeros(rows_of_warp(), columns());
        multiply({{products,
                   {rows_of_warp(), head_size(), columns()},
                   q_,
                   tile_of_stage(tile.number, 0),
                   TileHas::columns}});
        const Remade made = remade(products, first_key, head_);
        Sums scores = hidden_by_keys(made.scores, first_key);
        scores = hidden_by_mask(scores, first_key, head_, tile.sees);
        Values after = before;
        const std::vector<ThreadRow> of_o = thread_rows(head_size()), of_scores = thread_rows(columns());
        const std::size_t count = of_o.size(), largest_at = before.size() - 2 * count;
        Value* c = number(to_binary());
        for (std::size_t r = 0; r < count; ++r) {
            Value*& largest = after[largest_at + r];
            Value*& sum = after[largest_at + count + r];
            Value* highest = scores[of_scores[r].elements[0]];
            for (const std::size_t e : of_scores[r].elements) highest = b_.CreateMaxNum(highest, scores[e]);
            highest = b_.CreateMaxNum(largest, across_row(highest, true));
            Value* offset = b_.CreateFNeg(b_.CreateFMul(shift_of(highest), c));
            Value* correction = exp2(fma(largest, c, offset));
            Value* added = nullptr;
            for (const std::size_t e : of_scores[r].elements) {
                scores[e] = exp2(fma(scores[e], c, offset));
                added = added ? b_.CreateFAdd(added, scores[e]) : scores[e];
            }
            if (!made.multipliers.empty())
                for (const std::size_t e : of_scores[r].elements)
                    scores[e] = b_.CreateFMul(scores[e], made.multipliers[e]);
            largest = highest;
            sum = fma(sum, correction, added);
            for (const std::size_t e : of_o[r].elements) after[e] = b_.CreateFMul(after[e], correction);
        }
        Sums o(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(largest_at));
        multiply({{o,
                   {rows_of_warp(), columns(), head_size()},
                   rounded(scores, columns()),
                   tile_of_stage(tile.number, 1),
                   TileHas::rows}});
        std::ranges::copy(o, after.begin());
        return after;
    }

    /// The shift of a query that has seen nothing yet is 0: scores of -infinity are as far below 0 as below
    /// anything.
    Value* shift_of(Value* highest) {
        if (!kernel_.score) return highest;
        return b_.CreateSelect(is_none(highest), number(0), highest);
    }
    Value* is_none(Value* highest) {
        return b_.CreateFCmpOEQ(highest, number(-std::numeric_limits<double>::infinity()));
    }

    void finish(const Values& made) {
        const std::vector<ThreadRow> all = thread_rows(head_size());
        const std::size_t largest_at = made.size() - 2 * all.size();
        Sums o(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(largest_at));
        for (std::size_t r = 0; r < all.size(); ++r) {
            Value *largest = made[largest_at + r],
                  *sum = across_row(made[largest_at + all.size() + r], false);
            Value* weight = b_.CreateFDiv(number(1), sum);
            // A query that sees nothing has 0, and a log-sum-exp of -infinity.
            if (kernel_.score) weight = b_.CreateSelect(is_none(largest), number(0), weight);
            for (const std::size_t e : all[r].elements) o[e] = b_.CreateFMul(o[e], weight);
            Value* row = number_of(all[r]);
            for_its_first_thread(row, [&] {
                Value* log_of_sum = lanes_.apply("log", {sum}, DType::f32, DType::f32);
                Value* lse = fma(largest, number(scale_left()), log_of_sum);
                if (kernel_.score) lse = b_.CreateSelect(is_none(largest), largest, lse);
                store_f32(lse, of_query(parameter(4), row));
            });
        }
        write(o, 3, kernel_.o, kernel_.queries);
    }

    Operand q_;
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const AttentionKernel& kernel) {
    if (kernel.makes == Makes::output)
        OutputCode(module, name, kernel).run();
    else
        emit_attention_gradient(module, name, kernel);
}

}  // namespace mantissa::codegen
