// The gradients of attention on matrix units: of queries, which go over the keys; of keys and values, which
// go over the queries.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <limits>
#include <numbers>

#include "mantissa/base/whole_units.h"
#include "mantissa/codegen/llvm/attention_block.h"
#include "mantissa/codegen/llvm/emit.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

class QueryGradientCode : AttentionBlock {
  public:
    QueryGradientCode(llvm::Module& module, const std::string& name, const AttentionKernel& kernel)
        : AttentionBlock(module, name, kernel) {}

    void run() {
        const bool all_at_once = stages * 2 * tile_bytes() >= 3 * rows_bytes();
        pool_ = shared_pool(std::max(stages * 2 * tile_bytes(), 2 * rows_bytes()));
        take_rows(kernel_.queries, kernel_.heads, kernel_.causal);
        const auto bring = [&](std::size_t tensor, const HeadPlaces& places, Value* tile) {
            copy_in(rows(rows(tensor, places, head_, first_), kernel_.queries, first_, tile, tiles_.rows()));
        };
        Value *second = bytes_behind(pool_, rows_bytes()), *third = bytes_behind(pool_, 2 * rows_bytes());
        Value* of_output = all_at_once ? third : static_cast<Value*>(pool_);
        bring(1, kernel_.q, pool_);
        bring(0, kernel_.o, second);
        if (all_at_once) bring(4, kernel_.o, of_output);
        wait_for_copies();
        barrier();
        q_ = held(pool_);
        d_o_ = held(second);
        if (!all_at_once) {
            barrier();
            bring(4, kernel_.o, of_output);
            wait_for_copies();
            barrier();
        }
        take_statistics(held(of_output));
        barrier();
        const TileWork tiles =
            key_tiles(2, 3, [&](const Tile& tile, const Values& before) { return one_tile(tile, before); });
        begin_tiles(tiles);
        Values start = zeros(rows_of_warp(), head_size());
        const auto of_dq = static_cast<std::ptrdiff_t>(start.size());
        start.insert(start.end(), row_sums_of_thread(), number(0));
        const Values made = over_tiles(tiles, start);
        if (kernel_.score) write_row_sums({made.begin() + of_dq, made.end()}, kernel_.queries);
        write(scaled({made.begin(), made.begin() + of_dq}, number(kernel_.scale)), 6, kernel_.q,
              kernel_.queries);
        b_.CreateRetVoid();
    }

  private:
    /// Both numbers of a register.
    std::array<Value*, 2> widened(Value* two) {
        if (kernel_.dtype == DType::bf16)
            return {b_.CreateBitCast(b_.CreateShl(two, 16), b_.getFloatTy()),
                    b_.CreateBitCast(b_.CreateAnd(two, word(0xffff0000)), b_.getFloatTy())};
        Value* halves = b_.CreateBitCast(two, llvm::FixedVectorType::get(b_.getHalfTy(), 2));
        const auto one = [&](std::uint64_t i) {
            return b_.CreateFPExt(b_.CreateExtractElement(halves, i), b_.getFloatTy());
        };
        return {one(0), one(1)};
    }

    /// The log-sum-exp and sum(do o) of each of the thread's rows, kept for the gradients of keys, too.
    void take_statistics(const Operand& o) {
        const std::vector<ThreadRow> all = thread_rows(head_size());
        for (std::size_t r = 0; r < all.size(); ++r) {
            Value* delta = number(0);
            for (int j = 0; j < head_size() / 16; ++j)
                for (const std::size_t part : {r % 2, r % 2 + 2}) {  // rows t / 4, or rows 8 behind
                    const int i = static_cast<int>(r / 2);
                    const std::array<Value*, 2> a = widened(o(i, j)[part]), b = widened(d_o_(i, j)[part]);
                    for (const std::size_t e : {0u, 1u}) delta = fma(a[e], b[e], delta);
                }
            delta = across_row(delta, false);
            Value *row = number_of(all[r]), *there = smaller(row, word(kernel_.queries - 1));
            Value* lse = b_.CreateAlignedLoad(b_.getFloatTy(), of_query(parameter(5), there), llvm::Align(4));
            lse = b_.CreateFMul(lse, number(std::numbers::log2e));
            if (kernel_.score) {  // of a query that sees nothing all scores are -infinity, and weigh nothing
                Value* none = b_.CreateFCmpOEQ(lse, number(-std::numeric_limits<double>::infinity()));
                lse = b_.CreateSelect(none, number(0), lse);
            }
            if (kernel_.lse_gradient) {
                Value* at = of_query(parameter(parameters_of(kernel_) - 1), there);
                delta = b_.CreateFSub(delta, b_.CreateAlignedLoad(b_.getFloatTy(), at, llvm::Align(4)));
            }
            for_its_first_thread(row, [&] {
                store_f32(lse, of_query(parameter(7), row));
                const std::int64_t rows = kernel_.sequences * kernel_.heads * kernel_.queries;
                store_f32(delta, of_query(bytes_behind(parameter(7), 4 * rows), row));
            });
            offsets_.push_back(b_.CreateFNeg(lse));
            deltas_.push_back(delta);
        }
    }

    Values one_tile(const Tile& tile, const Values& before) {
        const Extents extents{rows_of_warp(), head_size(), columns()};
        Value* first_key = b_.CreateMul(narrow(tile.place), word(columns()));
        Value* keys = tile_of_stage(tile.number, 0);
        Sums products = zeros(rows_of_warp(), columns()), gradients = products;
        multiply({{products, extents, q_, keys, TileHas::columns},
                  {gradients, extents, d_o_, tile_of_stage(tile.number, 1), TileHas::columns}});
        const Remade made = remade(products, first_key, head_);
        Sums scores = hidden_by_keys(made.scores, first_key);
        scores = hidden_by_mask(scores, first_key, head_, tile.sees);
        const std::vector<ThreadRow> all = thread_rows(columns());
        for (std::size_t r = 0; r < all.size(); ++r)
            for (const std::size_t e : all[r].elements) {
                Value* weight = exp2(fma(scores[e], number(to_binary()), offsets_[r]));
                if (!made.multipliers.empty())
                    gradients[e] = b_.CreateFMul(gradients[e], made.multipliers[e]);
                scores[e] = b_.CreateFMul(weight, b_.CreateFSub(gradients[e], deltas_[r]));
            }
        Values after = before;
        const auto of_dq = static_cast<std::ptrdiff_t>(before.size() - row_sums_of_thread());
        add_score_gradients(products, scores, first_key, head_, {after.begin() + of_dq, after.end()});
        Sums dq(before.begin(), before.begin() + of_dq);
        multiply({{dq,
                   {rows_of_warp(), columns(), head_size()},
                   rounded(through_slopes(scores, made.slopes), columns()),
                   keys,
                   TileHas::rows}});
        std::ranges::copy(dq, after.begin());
        return after;
    }

    Operand q_, d_o_;
    Values offsets_, deltas_;
};

class KeyGradientsCode : AttentionBlock {
  public:
    KeyGradientsCode(llvm::Module& module, const std::string& name, const AttentionKernel& kernel)
        : AttentionBlock(module, name, kernel) {}

    void run() {
        const std::int64_t staged = (tiles_.keeps_both ? 2 : 1) * rows_bytes();
        pool_ = shared_pool(std::max(stages * 2 * tile_bytes(), staged));
        statistics_ = shared_bytes("statistics", std::int64_t{stages} * 2 * statistics_bytes());
        take_rows(kernel_.keys, kernel_.heads / kernel_.group, false);
        hold_rows();
        barrier();
        take_columns();
        const TileWork tiles = query_tiles();
        begin_tiles(tiles);
        const Sums zero = zeros(rows_of_warp(), head_size());
        Values start = zero;
        start.insert(start.end(), zero.begin(), zero.end());
        start.insert(start.end(), row_sums_of_thread(), number(0));
        const Values made = over_tiles(tiles, start);
        const auto half = static_cast<std::ptrdiff_t>(zero.size());
        if (kernel_.score) write_row_sums({made.begin() + 2 * half, made.end()}, kernel_.keys);
        write({made.begin() + half, made.begin() + 2 * half}, 6, kernel_.v, kernel_.keys);
        write(scaled({made.begin(), made.begin() + half}, number(kernel_.scale)), 5, kernel_.k, kernel_.keys);
        b_.CreateRetVoid();
    }

  private:
    std::int64_t statistics_bytes() const { return std::int64_t{4} * columns(); }

    void hold_rows() {
        const auto bring_rows = [&](std::size_t tensor, const HeadPlaces& places, Value* tile) {
            copy_in(rows(rows(tensor, places, head_, first_), kernel_.keys, first_, tile, tiles_.rows()));
        };
        Value* of_values =
            tiles_.keeps_both ? bytes_behind(pool_, rows_bytes()) : shared_bytes("values", rows_bytes());
        bring_rows(2, kernel_.k, pool_);
        bring_rows(3, kernel_.v, of_values);
        wait_for_copies();
        barrier();
        k_ = held(pool_);
        if (tiles_.keeps_both) {
            v_ = held(of_values);
            return;
        }
        Value* own = tile_row(of_values, own_row_);
        v_ = [this, own](int i, int j) { return fragment(own, 16 * i, 16 * j); };
    }

    /// Finds the tiles of queries that see any of the block's keys.
    void take_columns() {
        Value* first = integer(0);
        if (kernel_.causal)
            first = b_.CreateUDiv(larger(b_.CreateSub(first_, integer(keys_before())), integer(0)),
                                  integer(columns()));
        first_tile_ = first;
        tiles_of_head_ = b_.CreateSub(integer(ceil_div(kernel_.queries, std::int64_t{columns()})), first);
    }

    /// The heads of a group follow one another.
    struct Place {
        Value *head, *tile;
    };
    Place place_of(Value* number) {
        if (kernel_.group == 1) return {head_, b_.CreateAdd(first_tile_, number)};
        Value *short_number = narrow(number), *tiles = narrow(tiles_of_head_);
        const auto wide = [&](Value* x) { return b_.CreateZExt(x, b_.getInt64Ty()); };
        Value* in_group = wide(b_.CreateUDiv(short_number, tiles));
        return {b_.CreateAdd(b_.CreateMul(head_, integer(kernel_.group)), in_group),
                b_.CreateAdd(first_tile_, wide(b_.CreateURem(short_number, tiles)))};
    }
    Value* first_query(Value* number) {
        return narrow(b_.CreateMul(place_of(number).tile, integer(columns())));
    }

    TileWork query_tiles() {
        return {.count = b_.CreateMul(tiles_of_head_, integer(kernel_.group)),
                .bring = [this](const Tile& tile) { bring(tile); },
                .has_work = [this](Value* number) { return is_seen(first_query(number)); },
                .seen_at =
                    [this](Value* number) {
                        const Place place = place_of(number);
                        return std::pair{place.head, place.tile};
                    },
                .body = [this](const Tile& tile, const Values& before) { return one_tile(tile, before); }};
    }

    Value* statistics_of_stage(Value* number, int which) {
        Value* bytes =
            b_.CreateMul(b_.CreateAnd(number, integer(stages - 1)), integer(2 * statistics_bytes()));
        return bytes_behind(b_.CreateGEP(b_.getInt8Ty(), statistics_, bytes), which * statistics_bytes());
    }

    void bring(const Tile& tile) {
        const Place place = place_of(tile.place);
        Value* number = tile.number;
        Value* position = b_.CreateMul(place.tile, integer(columns()));
        bring_tile(rows(1, kernel_.q, place.head, position), kernel_.queries, position,
                   tile_of_stage(number, 0));
        bring_tile(rows(0, kernel_.o, place.head, position), kernel_.queries, position,
                   tile_of_stage(number, 1));
        Value* row = b_.CreateAdd(b_.CreateMul(sequence_, integer(kernel_.heads)), place.head);
        row = b_.CreateAdd(b_.CreateMul(row, integer(kernel_.queries)), position);
        const std::int64_t all = kernel_.sequences * kernel_.heads * kernel_.queries;
        for (int first = 0; first < columns(); first += threads_) {
            Value* column = b_.CreateAdd(thread_, integer(first));
            if_then(is_less(column, integer(columns())), [&] {
                Value* is_there = is_less(b_.CreateAdd(position, column), integer(kernel_.queries));
                Value* bytes = b_.CreateSelect(is_there, word(4), word(0));
                for (const int which : {0, 1}) {
                    Value* from = control_.at(bytes_behind(parameter(4), which * 4 * all),
                                              b_.CreateAdd(row, column), DType::f32);
                    Value* to = control_.at(statistics_of_stage(number, which), column, DType::f32);
                    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_ca_shared_global_4_s, {},
                                       {to, from, bytes});
                }
            });
        }
    }

    /// Whether any query of the tile sees any key of the warp's part.
    Value* is_seen(Value* tile_first) {
        Value* seen = is_less(part_first_, word(kernel_.keys));
        if (!kernel_.causal) return seen;
        Value* last = b_.CreateAdd(tile_first, word(columns() - 1 + keys_before()));
        return b_.CreateAnd(seen, b_.CreateICmpSGE(last, part_first_));
    }

    /// -infinity where a query does not see a key: rows are keys. Queries beyond the last have no gradient; a
    /// function's results for them may be anything.
    Sums hidden_by_queries(const Sums& scores, Value* tile_first) {
        const bool by_end = kernel_.score && kernel_.queries % columns() != 0;
        if (!kernel_.causal && !by_end) return scores;
        Value* hides = kernel_.causal ? is_less(b_.CreateAdd(tile_first, word(keys_before())),
                                                b_.CreateAdd(warp_first_, word(rows_of_warp() - 1)))
                                      : b_.getFalse();
        if (by_end)
            hides =
                b_.CreateOr(hides, is_less(word(kernel_.queries), b_.CreateAdd(tile_first, word(columns()))));
        Value* before = b_.CreateAdd(tile_first, first_column_of_lane());
        return control_.if_then(hides, scores, [&] {
            Sums seen = scores;
            Value* hidden = number(-std::numeric_limits<double>::infinity());
            for (const ThreadRow& row : thread_rows(columns())) {
                Value* first = b_.CreateSub(b_.CreateSub(number_of(row), word(keys_before())), before);
                for (std::size_t e = 0; e < row.elements.size(); ++e) {
                    Value*& score = seen[row.elements[e]];
                    Value* column = word(column_of(e));
                    if (kernel_.causal)
                        score = b_.CreateSelect(b_.CreateICmpSLE(first, column), score, hidden);
                    if (by_end)
                        score = b_.CreateSelect(is_less(column, b_.CreateSub(word(kernel_.queries), before)),
                                                score, hidden);
                }
            }
            return seen;
        });
    }

    /// A number of each of the thread's columns.
    Values of_columns(Value* statistics) {
        Value* bytes = b_.CreateZExt(b_.CreateMul(first_column_of_lane(), word(4)), b_.getInt64Ty());
        Value* base = b_.CreateGEP(b_.getInt8Ty(), statistics, bytes);
        llvm::Type* two = llvm::FixedVectorType::get(b_.getFloatTy(), 2);
        Values all;
        for (int column = 0; column < columns(); column += 8) {
            Value* pair = b_.CreateAlignedLoad(two, bytes_behind(base, 4 * column), llvm::Align(8));
            for (const std::uint64_t e : {0u, 1u}) all.push_back(b_.CreateExtractElement(pair, e));
        }
        return all;
    }

    /// dk, dv, and sums of the score's gradients.
    Values one_tile(const Tile& tile, const Values& before) {
        const Extents extents{rows_of_warp(), head_size(), columns()},
            sums{rows_of_warp(), columns(), head_size()};
        Value *queries = tile_of_stage(tile.number, 0), *d_o = tile_of_stage(tile.number, 1);
        const auto half = static_cast<std::ptrdiff_t>((before.size() - row_sums_of_thread()) / 2);
        Sums dk(before.begin(), before.begin() + half), dv(before.begin() + half, before.begin() + 2 * half);
        Sums products = zeros(rows_of_warp(), columns()), gradients = products;
        multiply({{products, extents, k_, queries, TileHas::columns}});
        const Place place = place_of(tile.place);
        Value* first = narrow(b_.CreateMul(place.tile, integer(columns())));
        const Remade made = remade(products, first, place.head);
        Sums weights = hidden_by_queries(made.scores, first);
        weights = hidden_by_mask(weights, first, place.head, tile.sees);
        const Values lse = of_columns(statistics_of_stage(tile.number, 0));
        for (const ThreadRow& row : thread_rows(columns()))
            for (std::size_t e = 0; e < row.elements.size(); ++e) {
                Value*& weight = weights[row.elements[e]];
                weight = exp2(fma(weight, number(to_binary()), b_.CreateFNeg(lse[e])));
            }
        multiply({{dv, sums, rounded(multiplied(weights, made.multipliers), columns()), d_o, TileHas::rows},
                  {gradients, extents, v_, d_o, TileHas::columns}});
        gradients = multiplied(gradients, made.multipliers);
        const Values delta = of_columns(statistics_of_stage(tile.number, 1));
        for (const ThreadRow& row : thread_rows(columns()))
            for (std::size_t e = 0; e < row.elements.size(); ++e) {
                Value*& gradient = gradients[row.elements[e]];
                gradient = b_.CreateFMul(weights[row.elements[e]], b_.CreateFSub(gradient, delta[e]));
            }
        Values after = before;
        add_score_gradients(products, gradients, first, place.head, {after.begin() + 2 * half, after.end()});
        multiply(
            {{dk, sums, rounded(through_slopes(gradients, made.slopes), columns()), queries, TileHas::rows}});
        std::ranges::copy(dk, after.begin());
        std::ranges::copy(dv, after.begin() + half);
        return after;
    }

    Sums multiplied(Sums numbers, const Sums& multipliers) {
        for (std::size_t i = 0; i < multipliers.size(); ++i)
            numbers[i] = b_.CreateFMul(numbers[i], multipliers[i]);
        return numbers;
    }

    Operand k_, v_;
    llvm::GlobalVariable* statistics_ = nullptr;
    Value *first_tile_ = nullptr, *tiles_of_head_ = nullptr;  ///< of queries
};

}  // namespace

void emit_attention_gradient(llvm::Module& module, const std::string& name, const AttentionKernel& kernel) {
    if (kernel.makes == AttentionKernel::Makes::query_gradient)
        QueryGradientCode(module, name, kernel).run();
    else
        KeyGradientsCode(module, name, kernel).run();
}

}  // namespace mantissa::codegen
