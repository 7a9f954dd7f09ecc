// Attention on matrix units: the queries' results, in one go over the keys.
#include "mantissa/codegen/llvm/attention_code.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <limits>

#include "mantissa/codegen/llvm/attention_block.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;
using Makes = AttentionKernel::Makes;

class OutputCode : AttentionBlock {
  public:
    OutputCode(llvm::Module& module, const std::string& name, const AttentionKernel& kernel)
        : AttentionBlock(module, name, kernel, 5) {}

    void run() {
        pool_ = shared_bytes("tiles", stages * tile_bytes() + std::max(stages * tile_bytes(), rows_bytes()));
        take_rows(kernel_.queries, kernel_.heads, kernel_.causal);
        Value* of_queries = bytes_behind(pool_, 2 * tile_bytes());  // where the second pair of tiles will be
        copy_in(rows(rows(0, kernel_.q, head_, first_), kernel_.queries, first_, of_queries, tiles_.rows()));
        bring_keys(1, 2, integer(0));
        wait_for_copies();
        barrier();
        q_ = held(of_queries);
        const std::size_t threads_rows = thread_rows(head_size()).size();
        Values start = zeros(rows_of_warp(), head_size());
        start.insert(start.end(), threads_rows, number(-std::numeric_limits<double>::infinity()));
        start.insert(start.end(), threads_rows, number(0));
        finish(over_tiles(
            key_tiles_of_rows(), start, [&](Value* next) { bring_keys(1, 2, next); },
            [&](Value* tile) { return sees_tile(first_key(tile)); },
            [&](Value* tile, const Values& before) { return one_tile(tile, before); }));
        b_.CreateRetVoid();
    }

  private:
    /// o, the largest scores and the sums of each of the thread's rows.
    Values one_tile(Value* tile, const Values& before) {
        Sums scores = zeros(rows_of_warp(), columns());
        multiply(scores, {rows_of_warp(), head_size(), columns()}, q_, tile_of_stage(tile, 0),
                 TileHas::columns);
        scores = hidden_by_keys(scores, first_key(tile));
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
            Value* offset = b_.CreateFNeg(b_.CreateFMul(highest, c));
            Value* correction = exp2(fma(largest, c, offset));
            Value* added = nullptr;
            for (const std::size_t e : of_scores[r].elements) {
                scores[e] = exp2(fma(scores[e], c, offset));
                added = added ? b_.CreateFAdd(added, scores[e]) : scores[e];
            }
            largest = highest;
            sum = fma(sum, correction, added);
            for (const std::size_t e : of_o[r].elements) after[e] = b_.CreateFMul(after[e], correction);
        }
        Sums o(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(largest_at));
        multiply(o, {rows_of_warp(), columns(), head_size()}, rounded(scores, columns()),
                 tile_of_stage(tile, 1), TileHas::rows);
        std::ranges::copy(o, after.begin());
        return after;
    }

    void finish(const Values& made) {
        const std::vector<ThreadRow> all = thread_rows(head_size());
        const std::size_t largest_at = made.size() - 2 * all.size();
        Sums o(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(largest_at));
        for (std::size_t r = 0; r < all.size(); ++r) {
            Value *largest = made[largest_at + r],
                  *sum = across_row(made[largest_at + all.size() + r], false);
            Value* weight = b_.CreateFDiv(number(1), sum);
            for (const std::size_t e : all[r].elements) o[e] = b_.CreateFMul(o[e], weight);
            Value* row = number_of(all[r]);
            for_its_first_thread(row, [&] {
                Value* log_of_sum = lanes_.apply("log", {sum}, DType::f32, DType::f32);
                store_f32(fma(largest, number(kernel_.scale), log_of_sum), of_query(parameter(4), row));
            });
        }
        write(o, 3, kernel_.o, kernel_.queries);
    }

    Operand q_;
};

}  // namespace

void emit_attention(llvm::Module& module, const std::string& name, const AttentionKernel& kernel) {
    if (kernel.makes == Makes::output)
        OutputCode(module, name, kernel).run();
    else
        emit_attention_gradient(module, name, kernel);
}

}  // namespace mantissa::codegen
