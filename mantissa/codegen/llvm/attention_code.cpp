// Attention and its gradients on matrix units. A block of threads has some rows, queries or keys, in
// registers, and goes over the columns, keys or queries, a tile in shared memory at a time, of which the next
// is on its way. Each warp has rows of its own, so that only tiles are shared.
#include "mantissa/codegen/llvm/attention_code.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <limits>
#include <numbers>

#include "mantissa/base/whole_units.h"
#include "mantissa/codegen/llvm/matrix_code.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;
using Makes = AttentionKernel::Makes;

constexpr int stages = 2;  // pairs of tiles: one is read while the next is on its way

struct AttentionBuilder {
    llvm::IRBuilder<> own_builder;
};

/// What the three kernels share: the block's rows, tiles of columns, scores.
class AttentionCode : AttentionBuilder, protected MatrixCode {
  protected:
    AttentionCode(llvm::Module& module, const std::string& name, const AttentionKernel& kernel,
                  std::size_t parameters)
        : AttentionBuilder{llvm::IRBuilder<>(module.getContext())},
          MatrixCode(module, own_builder, {name, parameters, tiles_of(kernel).threads()},
                     {.dtype = kernel.dtype,
                      .head_size = static_cast<int>(kernel.head_size),
                      .columns = tiles_of(kernel).head_size,
                      .pitch = tiles_of(kernel).pitch(),
                      .aligned = moves_whole_rows(kernel)}),
          kernel_(kernel),
          tiles_(tiles_of(kernel)) {}

    int rows_of_warp() const { return tiles_.rows_of_warp; }
    int columns() const { return tiles_.columns; }
    int head_size() const { return tiles_.head_size; }
    std::int64_t tile_bytes() const { return std::int64_t{tiles_.columns} * tiles_.pitch(); }
    std::int64_t rows_bytes() const { return std::int64_t{tiles_.rows()} * tiles_.pitch(); }
    /// Keys that a query of position 0 sees before it, where causal: query i sees keys up to i + these.
    std::int64_t keys_before() const { return kernel_.keys - kernel_.queries; }
    double to_binary() const { return kernel_.scale * std::numbers::log2e; }

    /// Which rows the block has, of `all` in each of `heads`; `last_first` where the last have the most to
    /// do.
    void take_rows(std::int64_t all, std::int64_t heads, bool last_first) {
        const std::int64_t tiles = parts_of(all, std::int64_t{tiles_.rows()});
        const std::int64_t all_heads = kernel_.sequences * heads;
        Value* tile = b_.CreateUDiv(block_, integer(all_heads));
        if (last_first) tile = b_.CreateSub(integer(tiles - 1), tile);
        head_of_all_ = b_.CreateURem(block_, integer(all_heads));
        sequence_ = b_.CreateUDiv(head_of_all_, integer(heads));
        head_ = b_.CreateURem(head_of_all_, integer(heads));
        first_ = b_.CreateMul(tile, integer(tiles_.rows()));
        own_row_ = b_.CreateMul(warp_, word(rows_of_warp()));
        warp_first_ = b_.CreateAdd(narrow(first_), own_row_);
    }

    Value* narrow(Value* x) { return b_.CreateTrunc(x, b_.getInt32Ty()); }
    Value* key_head() { return b_.CreateUDiv(head_, integer(kernel_.group)); }
    Value* smaller(Value* a, Value* b) { return b_.CreateSelect(is_less(a, b), a, b); }
    Value* larger(Value* a, Value* b) { return b_.CreateSelect(is_less(a, b), b, a); }

    /// Rows of a head from a position on.
    Rows rows(std::size_t tensor, const HeadPlaces& places, Value* head, Value* position) {
        Value* element =
            b_.CreateAdd(integer(places.start), b_.CreateMul(sequence_, integer(places.sequence)));
        element = b_.CreateAdd(element, b_.CreateMul(head, integer(places.head)));
        element = b_.CreateAdd(element, b_.CreateMul(position, integer(places.position)));
        return {.at = control_.at(parameter(tensor), element, kernel_.dtype), .position = places.position};
    }
    Rows rows(const Rows& from, std::int64_t all, Value* position, Value* tile, int count) {
        return {from.at, from.position, b_.CreateSub(integer(all), position), tile, count};
    }

    Value* tile_of_stage(Value* number, int which) {
        Value* bytes = b_.CreateMul(b_.CreateAnd(number, integer(stages - 1)), integer(2 * tile_bytes()));
        return bytes_behind(b_.CreateGEP(b_.getInt8Ty(), pool_, bytes), which * tile_bytes());
    }

    /// The warp's own rows of a tile, in registers.
    Operand held(Value* tile) {
        std::vector<Fragment> all;
        Value* own = tile_row(tile, own_row_);
        for (int i = 0; i < rows_of_warp() / 16; ++i)
            for (int j = 0; j < head_size() / 16; ++j) all.push_back(fragment(own, 16 * i, 16 * j));
        return [all, per_row = head_size() / 16](int i, int j) {
            return all[static_cast<std::size_t>(i * per_row + j)];
        };
    }

    /// For each of a thread's rows: its number, and where its elements are in sums of `columns` columns.
    struct ThreadRow {
        int behind = 0;                     ///< the warp's first row and t / 4
        std::vector<std::size_t> elements;  ///< two of each 8 columns
    };
    std::vector<ThreadRow> thread_rows(int columns_of_sums) const {
        std::vector<ThreadRow> all;
        const int blocks = columns_of_sums / 8;
        for (int i = 0; i < rows_of_warp() / 16; ++i)
            for (const int half : {0, 1}) {
                ThreadRow row{.behind = 16 * i + 8 * half, .elements = {}};
                for (int block = 0; block < blocks; ++block)
                    for (const int e : {0, 1})
                        row.elements.push_back(
                            static_cast<std::size_t>(4 * (i * blocks + block) + 2 * half + e));
                all.push_back(std::move(row));
            }
        return all;
    }
    /// i32
    Value* number_of(const ThreadRow& row) {
        return b_.CreateAdd(b_.CreateAdd(warp_first_, b_.CreateLShr(lane_, 2)), word(row.behind));
    }
    /// Of element 0 of a row in a tile.
    Value* first_column_of_lane() { return b_.CreateMul(b_.CreateAnd(lane_, word(3)), word(2)); }
    static int column_of(std::size_t element) { return static_cast<int>(element / 2 * 8 + element % 2); }

    /// -infinity where a query does not see a key: rows are queries.
    Sums hidden_by_keys(const Sums& scores, Value* tile_first) {
        Value* hides = b_.CreateICmpSGT(b_.CreateAdd(tile_first, word(columns())), word(kernel_.keys));
        if (kernel_.causal)
            hides = b_.CreateOr(hides, b_.CreateICmpSGT(b_.CreateAdd(tile_first, word(columns() - 1)),
                                                        b_.CreateAdd(warp_first_, word(keys_before()))));
        return control_.if_then(hides, scores, [&] {
            Sums seen = scores;
            for (const ThreadRow& row : thread_rows(columns())) {
                Value* last = word(kernel_.keys - 1);
                if (kernel_.causal) last = smaller(last, b_.CreateAdd(number_of(row), word(keys_before())));
                last = b_.CreateSub(last, b_.CreateAdd(tile_first, first_column_of_lane()));
                for (std::size_t e = 0; e < row.elements.size(); ++e)
                    seen[row.elements[e]] =
                        b_.CreateSelect(b_.CreateICmpSGE(last, word(column_of(e))), seen[row.elements[e]],
                                        number(-std::numeric_limits<double>::infinity()));
            }
            return seen;
        });
    }

    Value* key_tiles_of_rows() {
        Value* seen = integer(kernel_.keys);
        if (kernel_.causal)
            seen = smaller(seen, b_.CreateAdd(first_, integer(tiles_.rows() + keys_before())));
        return b_.CreateUDiv(b_.CreateAdd(seen, integer(columns() - 1)), integer(columns()));
    }
    /// Whether any of the warp's queries sees any key of the tile.
    Value* sees_tile(Value* tile_first) {
        Value* sees = is_less(warp_first_, word(kernel_.queries));
        if (!kernel_.causal) return sees;
        Value* last = b_.CreateAdd(warp_first_, word(rows_of_warp() - 1 + keys_before()));
        return b_.CreateAnd(sees, b_.CreateICmpSLE(tile_first, last));
    }

    /// Begins to bring in tiles of keys and values.
    void bring_keys(std::size_t k, std::size_t v, Value* number) {
        Value *position = b_.CreateMul(number, integer(columns())), *head = key_head();
        copy_in(rows(rows(k, kernel_.k, head, position), kernel_.keys, position, tile_of_stage(number, 0),
                     columns()));
        copy_in(rows(rows(v, kernel_.v, head, position), kernel_.keys, position, tile_of_stage(number, 1),
                     columns()));
    }

    /// Goes over tiles: `bring` begins to bring one in, `body` computes where `has_work`.
    Values over_tiles(Value* count, const Values& start, const std::function<void(Value*)>& bring,
                      const std::function<Value*(Value*)>& has_work,
                      const std::function<Values(Value*, const Values&)>& body) {
        return control_.loop(
            "tiles", integer(0), count, integer(1), start, [&](Value* number, const Values& carried) {
                wait_for_copies();
                barrier();  // and the tiles before have been read by all
                Value* next = b_.CreateAdd(number, integer(1));
                if_then(is_less(next, count), [&] { bring(next); });
                return control_.if_then(has_work(number), carried, [&] { return body(number, carried); });
            });
    }

    /// Writes the warps' sums over head size to a tensor, by way of the pool.
    void write(const Sums& sums, std::size_t tensor, const HeadPlaces& places, std::int64_t all) {
        barrier();
        put(sums, head_size(), pool_, own_row_);
        barrier();
        copy_out(rows(rows(tensor, places, head_, first_), all, first_, pool_, tiles_.rows()));
    }

    Sums scaled(Sums sums, Value* by) {
        for (Value*& one : sums) one = b_.CreateFMul(one, by);
        return sums;
    }

    /// Where the FP32 number of a query stands in [B, H, T].
    Value* of_query(Value* base, Value* row) {
        Value* at = b_.CreateAdd(b_.CreateMul(head_of_all_, integer(kernel_.queries)),
                                 b_.CreateZExt(row, b_.getInt64Ty()));
        return control_.at(base, at, DType::f32);
    }
    void for_its_first_thread(Value* row, const std::function<void()>& body) {
        Value* is_first = b_.CreateICmpEQ(b_.CreateAnd(lane_, word(3)), word(0));
        if_then(b_.CreateAnd(is_first, is_less(row, word(kernel_.queries))), body);
    }
    void store_f32(Value* value, Value* at) { b_.CreateAlignedStore(value, at, llvm::Align(4)); }

    const AttentionKernel& kernel_;
    AttentionTiles tiles_;
    llvm::GlobalVariable* pool_ = nullptr;
    // i64: the block's head among all of its kind, its sequence, its head in it, its first row.
    Value *head_of_all_ = nullptr, *sequence_ = nullptr, *head_ = nullptr, *first_ = nullptr;
    // i32: the warp's first row in the block and among all.
    Value *own_row_ = nullptr, *warp_first_ = nullptr;
};

class OutputCode : AttentionCode {
  public:
    OutputCode(llvm::Module& module, const std::string& name, const AttentionKernel& kernel)
        : AttentionCode(module, name, kernel, 5) {}

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
    Value* first_key(Value* tile) { return b_.CreateMul(narrow(tile), word(columns())); }

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

class QueryGradientCode : AttentionCode {
  public:
    QueryGradientCode(llvm::Module& module, const std::string& name, const AttentionKernel& kernel)
        : AttentionCode(module, name, kernel, 8) {}

    void run() {
        const bool all_at_once = stages * 2 * tile_bytes() >= 3 * rows_bytes();
        pool_ = shared_bytes("tiles", std::max(stages * 2 * tile_bytes(), 2 * rows_bytes()));
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
        bring_keys(2, 3, integer(0));
        const Values dq = over_tiles(
            key_tiles_of_rows(), zeros(rows_of_warp(), head_size()),
            [&](Value* next) { bring_keys(2, 3, next); },
            [&](Value* tile) { return sees_tile(first_key(tile)); },
            [&](Value* tile, const Values& before) { return one_tile(tile, before); });
        write(scaled(dq, number(kernel_.scale)), 6, kernel_.q, kernel_.queries);
        b_.CreateRetVoid();
    }

  private:
    Value* first_key(Value* tile) { return b_.CreateMul(narrow(tile), word(columns())); }

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
                for (const std::size_t part : {r % 2, r % 2 + 2}) {  // rows t / 4 or those 8 behind
                    const int i = static_cast<int>(r / 2);
                    const std::array<Value*, 2> a = widened(o(i, j)[part]), b = widened(d_o_(i, j)[part]);
                    for (const std::size_t e : {0u, 1u}) delta = fma(a[e], b[e], delta);
                }
            delta = across_row(delta, false);
            Value *row = number_of(all[r]), *there = smaller(row, word(kernel_.queries - 1));
            Value* lse = b_.CreateAlignedLoad(b_.getFloatTy(), of_query(parameter(5), there), llvm::Align(4));
            lse = b_.CreateFMul(lse, number(std::numbers::log2e));
            for_its_first_thread(row, [&] {
                store_f32(lse, of_query(parameter(7), row));
                const std::int64_t rows = kernel_.sequences * kernel_.heads * kernel_.queries;
                store_f32(delta, of_query(bytes_behind(parameter(7), 4 * rows), row));
            });
            offsets_.push_back(b_.CreateFNeg(lse));
            deltas_.push_back(delta);
        }
    }

    Values one_tile(Value* tile, const Values& before) {
        const Extents products{rows_of_warp(), head_size(), columns()};
        Value* keys = tile_of_stage(tile, 0);
        Sums scores = zeros(rows_of_warp(), columns()), gradients = scores;
        multiply(scores, products, q_, keys, TileHas::columns);
        multiply(gradients, products, d_o_, tile_of_stage(tile, 1), TileHas::columns);
        scores = hidden_by_keys(scores, first_key(tile));
        const std::vector<ThreadRow> all = thread_rows(columns());
        for (std::size_t r = 0; r < all.size(); ++r)
            for (const std::size_t e : all[r].elements) {
                Value* weight = exp2(fma(scores[e], number(to_binary()), offsets_[r]));
                scores[e] = b_.CreateFMul(weight, b_.CreateFSub(gradients[e], deltas_[r]));
            }
        Sums dq = before;
        multiply(dq, {rows_of_warp(), columns(), head_size()}, rounded(scores, columns()), keys,
                 TileHas::rows);
        return dq;
    }

    Operand q_, d_o_;
    Values offsets_, deltas_;
};

class KeyGradientsCode : AttentionCode {
  public:
    KeyGradientsCode(llvm::Module& module, const std::string& name, const AttentionKernel& kernel)
        : AttentionCode(module, name, kernel, 7) {}

    void run() {
        const std::int64_t staged = (tiles_.keeps_both ? 2 : 1) * rows_bytes();
        pool_ = shared_bytes("tiles", std::max(stages * 2 * tile_bytes(), staged));
        statistics_ = shared_bytes("statistics", std::int64_t{stages} * 2 * statistics_bytes());
        take_rows(kernel_.keys, kernel_.heads / kernel_.group, false);
        hold_rows();
        barrier();
        take_columns();
        bring(integer(0));
        const Sums zero = zeros(rows_of_warp(), head_size());
        Values start = zero;
        start.insert(start.end(), zero.begin(), zero.end());
        const Values made = over_tiles(
            b_.CreateMul(tiles_of_head_, integer(kernel_.group)), start, [&](Value* next) { bring(next); },
            [&](Value* number) { return is_seen(first_query(number)); },
            [&](Value* number, const Values& before) { return one_tile(number, before); });
        const auto half = static_cast<std::ptrdiff_t>(zero.size());
        write({made.begin() + half, made.end()}, 6, kernel_.v, kernel_.keys);
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

    /// Which tiles of queries see any of the block's keys.
    void take_columns() {
        Value* first = integer(0);
        if (kernel_.causal)
            first = b_.CreateUDiv(larger(b_.CreateSub(first_, integer(keys_before())), integer(0)),
                                  integer(columns()));
        first_tile_ = first;
        tiles_of_head_ = b_.CreateSub(integer(parts_of(kernel_.queries, std::int64_t{columns()})), first);
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

    Value* statistics_of_stage(Value* number, int which) {
        Value* bytes =
            b_.CreateMul(b_.CreateAnd(number, integer(stages - 1)), integer(2 * statistics_bytes()));
        return bytes_behind(b_.CreateGEP(b_.getInt8Ty(), statistics_, bytes), which * statistics_bytes());
    }

    void bring(Value* number) {
        const Place place = place_of(number);
        Value* position = b_.CreateMul(place.tile, integer(columns()));
        copy_in(rows(rows(1, kernel_.q, place.head, position), kernel_.queries, position,
                     tile_of_stage(number, 0), columns()));
        copy_in(rows(rows(0, kernel_.o, place.head, position), kernel_.queries, position,
                     tile_of_stage(number, 1), columns()));
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

    /// Whether any query of the tile sees any of the warp's keys.
    Value* is_seen(Value* tile_first) {
        Value* seen = is_less(warp_first_, word(kernel_.keys));
        if (!kernel_.causal) return seen;
        Value* last = b_.CreateAdd(tile_first, word(columns() - 1 + keys_before()));
        return b_.CreateAnd(seen, b_.CreateICmpSGE(last, warp_first_));
    }

    /// -infinity where a query does not see a key: rows are keys. Queries beyond the last have no gradient.
    Sums hidden_by_queries(const Sums& scores, Value* tile_first) {
        if (!kernel_.causal) return scores;
        Value* hides = is_less(b_.CreateAdd(tile_first, word(keys_before())),
                               b_.CreateAdd(warp_first_, word(rows_of_warp() - 1)));
        return control_.if_then(hides, scores, [&] {
            Sums seen = scores;
            for (const ThreadRow& row : thread_rows(columns())) {
                Value* first = b_.CreateSub(number_of(row), word(keys_before()));
                first = b_.CreateSub(first, b_.CreateAdd(tile_first, first_column_of_lane()));
                for (std::size_t e = 0; e < row.elements.size(); ++e)
                    seen[row.elements[e]] =
                        b_.CreateSelect(b_.CreateICmpSLE(first, word(column_of(e))), seen[row.elements[e]],
                                        number(-std::numeric_limits<double>::infinity()));
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

    /// dk, dv.
    Values one_tile(Value* number_of_tile, const Values& before) {
        const Extents products{rows_of_warp(), head_size(), columns()},
            sums{rows_of_warp(), columns(), head_size()};
        Value *queries = tile_of_stage(number_of_tile, 0), *d_o = tile_of_stage(number_of_tile, 1);
        const auto half = static_cast<std::ptrdiff_t>(before.size() / 2);
        Sums dk(before.begin(), before.begin() + half), dv(before.begin() + half, before.end());
        Sums weights = zeros(rows_of_warp(), columns()), gradients = weights;
        multiply(weights, products, k_, queries, TileHas::columns);
        weights = hidden_by_queries(weights, first_query(number_of_tile));
        const Values lse = of_columns(statistics_of_stage(number_of_tile, 0));
        for (const ThreadRow& row : thread_rows(columns()))
            for (std::size_t e = 0; e < row.elements.size(); ++e) {
                Value*& weight = weights[row.elements[e]];
                weight = exp2(fma(weight, number(to_binary()), b_.CreateFNeg(lse[e])));
            }
        multiply(dv, sums, rounded(weights, columns()), d_o, TileHas::rows);
        multiply(gradients, products, v_, d_o, TileHas::columns);
        const Values delta = of_columns(statistics_of_stage(number_of_tile, 1));
        for (const ThreadRow& row : thread_rows(columns()))
            for (std::size_t e = 0; e < row.elements.size(); ++e) {
                Value*& gradient = gradients[row.elements[e]];
                gradient = b_.CreateFMul(weights[row.elements[e]], b_.CreateFSub(gradient, delta[e]));
            }
        multiply(dk, sums, rounded(gradients, columns()), queries, TileHas::rows);
        dk.insert(dk.end(), dv.begin(), dv.end());
        return dk;
    }

    Operand k_, v_;
    llvm::GlobalVariable* statistics_ = nullptr;
    Value *first_tile_ = nullptr, *tiles_of_head_ = nullptr;  ///< of queries
};

}  // namespace

void emit_attention(llvm::Module& module, const std::string& name, const AttentionKernel& kernel) {
    switch (kernel.makes) {
        case Makes::output:
            return OutputCode(module, name, kernel).run();
        case Makes::query_gradient:
            return QueryGradientCode(module, name, kernel).run();
        case Makes::key_gradients:
            return KeyGradientsCode(module, name, kernel).run();
    }
}

}  // namespace mantissa::codegen
