#include "mantissa/codegen/llvm/attention_block.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <limits>
#include <numbers>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::codegen {

using llvm::Value;

namespace {

constexpr int warp_lanes = 32;

}  // namespace

AttentionBlock::AttentionBlock(llvm::Module& module, const std::string& name, const AttentionKernel& kernel)
    : OwnBuilder(module),
      MatrixCode(module, *own_builder,
                 {.name = name,
                  .parameters = parameters_of(kernel),
                  .threads = tiles_of(kernel).threads(),
                  .blocks = tiles_of(kernel).blocks},
                 {.dtype = kernel.dtype,
                  .head_size = static_cast<int>(kernel.head_size),
                  .columns = tiles_of(kernel).head_size,
                  .pitch = tiles_of(kernel).pitch(),
                  .aligned = moves_whole_rows(kernel),
                  .warpgroups = kernel.by_warpgroups}),
      kernel_(kernel),
      tiles_(tiles_of(kernel)) {
    AttentionKernel plain = kernel;
    plain.score = nullptr;
    plain.lse_gradient = false;
    of_score_ = parameters_of(plain);
}

double AttentionBlock::to_binary() const { return scale_left() * std::numbers::log2e; }

void AttentionBlock::take_rows(std::int64_t all, std::int64_t heads, bool last_first) {
    const std::int64_t tiles = ceil_div(all, std::int64_t{tiles_.rows()});
    const std::int64_t all_heads = kernel_.sequences * heads;
    Value* tile = b_.CreateUDiv(block_, integer(all_heads));
    if (last_first) tile = b_.CreateSub(integer(tiles - 1), tile);
    head_of_all_ = b_.CreateURem(block_, integer(all_heads));
    sequence_ = b_.CreateUDiv(head_of_all_, integer(heads));
    head_ = b_.CreateURem(head_of_all_, integer(heads));
    row_tile_ = tile;
    first_ = b_.CreateMul(tile, integer(tiles_.rows()));
    own_row_ = b_.CreateMul(warp_, word(rows_of_warp()));
    warp_first_ = b_.CreateAdd(narrow(first_), own_row_);
    part_first_ = b_.CreateAdd(narrow(first_), b_.CreateMul(part(), word(tiles_.rows_of_part())));
}

Value* AttentionBlock::part() { return b_.CreateUDiv(warp_, word(tiles_.together)); }

Value* AttentionBlock::narrow(Value* x) { return b_.CreateTrunc(x, b_.getInt32Ty()); }

Value* AttentionBlock::smaller(Value* a, Value* b) { return b_.CreateSelect(is_less(a, b), a, b); }

Value* AttentionBlock::larger(Value* a, Value* b) { return b_.CreateSelect(is_less(a, b), b, a); }

AttentionBlock::Rows AttentionBlock::rows(std::size_t tensor, const HeadPlaces& places, Value* head,
                                          Value* position) {
    Value* element = b_.CreateAdd(integer(places.start), b_.CreateMul(sequence_, integer(places.sequence)));
    element = b_.CreateAdd(element, b_.CreateMul(head, integer(places.head)));
    element = b_.CreateAdd(element, b_.CreateMul(position, integer(places.position)));
    return {.at = control_.at(parameter(tensor), element, kernel_.dtype), .position = places.position};
}

AttentionBlock::Rows AttentionBlock::rows(const Rows& from, std::int64_t all, Value* position, Value* tile,
                                          int count) {
    return {from.at, from.position, b_.CreateSub(integer(all), position), tile, count};
}

void AttentionBlock::bring_tile(const Rows& from, std::int64_t all, Value* position, Value* tile) {
    Rows brought = rows(from, all, position, tile, columns());
    brought.swizzled = format_.warpgroups;
    copy_in(brought);
}

/// Patterns of swizzled tiles begin anew every eight rows of 128 bytes.
llvm::GlobalVariable* AttentionBlock::shared_pool(std::int64_t bytes) {
    llvm::GlobalVariable* pool = shared_bytes("tiles", bytes);
    if (format_.warpgroups) pool->setAlignment(llvm::Align(1024));
    return pool;
}

Value* AttentionBlock::tile_of_stage(Value* number, int which) {
    Value* bytes = b_.CreateMul(b_.CreateAnd(number, integer(stages - 1)), integer(2 * tile_bytes()));
    return bytes_behind(b_.CreateGEP(b_.getInt8Ty(), pool_, bytes), which * tile_bytes());
}

AttentionBlock::Operand AttentionBlock::held(Value* tile) {
    std::vector<Fragment> all;
    Value* own = tile_row(tile, own_row_);
    for (int i = 0; i < rows_of_warp() / 16; ++i)
        for (int j = 0; j < head_size() / 16; ++j) all.push_back(fragment(own, 16 * i, 16 * j));
    return [all, per_row = head_size() / 16](int i, int j) { return all[i * per_row + j]; };
}

std::vector<AttentionBlock::ThreadRow> AttentionBlock::thread_rows(int columns_of_sums) const {
    std::vector<ThreadRow> all;
    const int blocks = columns_of_sums / 8;
    for (int i = 0; i < rows_of_warp() / 16; ++i)
        for (const int half : {0, 1}) {
            ThreadRow row{.behind = 16 * i + 8 * half, .elements = {}};
            for (int block = 0; block < blocks; ++block)
                for (const int e : {0, 1})
                    row.elements.push_back(static_cast<std::size_t>(4 * (i * blocks + block) + 2 * half + e));
            all.push_back(std::move(row));
        }
    return all;
}

Value* AttentionBlock::number_of(const ThreadRow& row) {
    return b_.CreateAdd(b_.CreateAdd(warp_first_, b_.CreateLShr(lane_, 2)), word(row.behind));
}

Value* AttentionBlock::first_column_of_lane() { return b_.CreateMul(b_.CreateAnd(lane_, word(3)), word(2)); }

AttentionBlock::Sums AttentionBlock::hidden_by_keys(const Sums& scores, Value* tile_first) {
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

Value* AttentionBlock::key_tiles_of_rows() {
    Value* seen = integer(kernel_.keys);
    if (kernel_.causal) seen = smaller(seen, b_.CreateAdd(first_, integer(tiles_.rows() + keys_before())));
    return b_.CreateUDiv(b_.CreateAdd(seen, integer(columns() - 1)), integer(columns()));
}

Value* AttentionBlock::sees_tile(Value* tile_first) {
    Value* sees = is_less(part_first_, word(kernel_.queries));
    if (!kernel_.causal) return sees;
    Value* last = b_.CreateAdd(part_first_, word(tiles_.rows_of_part() - 1 + keys_before()));
    return b_.CreateAnd(sees, b_.CreateICmpSLE(tile_first, last));
}

void AttentionBlock::bring_keys(std::size_t k, std::size_t v, const Tile& tile) {
    Value *position = b_.CreateMul(tile.place, integer(columns())),
          *head = b_.CreateUDiv(head_, integer(kernel_.group));
    bring_tile(rows(k, kernel_.k, head, position), kernel_.keys, position, tile_of_stage(tile.number, 0));
    bring_tile(rows(v, kernel_.v, head, position), kernel_.keys, position, tile_of_stage(tile.number, 1));
}

AttentionBlock::TileWork AttentionBlock::key_tiles(
    std::size_t k, std::size_t v, const std::function<Values(const Tile&, const Values&)>& body) {
    return {
        .count = key_tiles_of_rows(),
        .bring = [=, this](const Tile& tile) { bring_keys(k, v, tile); },
        .has_work = [this](Value* place) { return sees_tile(b_.CreateMul(narrow(place), word(columns()))); },
        .seen_at =
            [this](Value* place) {
                return std::pair{head_, place};
            },
        .body = body};
}

void AttentionBlock::begin_tiles(const TileWork& work) {
    if (!masks()) return work.bring({integer(0), integer(0)});
    first_seen_ = next_seen(work, integer(0));
    if_then(is_less(first_seen_.place, work.count), [&] { work.bring({integer(0), first_seen_.place}); });
}

AttentionBlock::Values AttentionBlock::over_tiles(const TileWork& work, const Values& start) {
    if (masks()) return over_seen_tiles(work, start);
    return control_.loop("tiles", integer(0), work.count, integer(1), start,
                         [&](Value* number, const Values& carried) {
                             wait_for_copies();
                             barrier();  // and the tiles before have been read by all
                             Value* next = b_.CreateAdd(number, integer(1));
                             if_then(is_less(next, work.count), [&] { work.bring({next, next}); });
                             return control_.if_then(work.has_work(number), carried, [&] {
                                 return work.body({number, number}, carried);
                             });
                         });
}

/// Looks for the next tile while the last is still on its way.
AttentionBlock::Values AttentionBlock::over_seen_tiles(const TileWork& work, const Values& start) {
    Values carried{first_seen_.place, first_seen_.word, integer(0)};
    carried.insert(carried.end(), start.begin(), start.end());
    const std::ptrdiff_t own = 3;
    carried = control_.repeat(
        "seen_tiles", carried, [&](const Values& now) { return is_less(now[0], work.count); },
        [&](const Values& now) {
            wait_for_copies();
            barrier();  // and the tiles before have been read by all
            const Seen next = next_seen(work, b_.CreateAdd(now[0], integer(1)));
            Value* number = b_.CreateAdd(now[2], integer(1));
            if_then(is_less(next.place, work.count), [&] { work.bring({number, next.place}); });
            const Tile tile{now[2], now[0],
                            b_.CreateAnd(b_.CreateLShr(now[1], b_.CreateMul(part(), word(8))), word(255))};
            const Values before(now.begin() + own, now.end());
            const Values made = control_.if_then(b_.CreateICmpNE(tile.sees, word(SeenTilesKernel::nothing)),
                                                 before, [&] { return work.body(tile, before); });
            Values after{next.place, next.word, number};
            after.insert(after.end(), made.begin(), made.end());
            return after;
        });
    return {carried.begin() + own, carried.end()};
}

/// The lanes of a warp look at as many tiles at once, beginning at a place.
AttentionBlock::Seen AttentionBlock::next_seen(const TileWork& work, Value* from) {
    const SeenTilesKernel seen{kernel_};
    const PairScore& score = *kernel_.score;
    const auto look = [&](Value* at) -> Values {
        Value* place = b_.CreateAdd(at, b_.CreateZExt(lane_, b_.getInt64Ty()));
        Value* is_there = is_less(place, work.count);
        const auto [head, column] =
            work.seen_at(b_.CreateSelect(is_there, place, b_.CreateSub(work.count, integer(1))));
        Value* table = score.mask_by_sequence ? sequence_ : integer(0);
        if (score.mask_by_head) table = b_.CreateAdd(b_.CreateMul(table, integer(kernel_.heads)), head);
        Value* element = b_.CreateAdd(b_.CreateMul(table, integer(seen.row_tiles())), row_tile_);
        element = b_.CreateAdd(b_.CreateMul(element, integer(seen.column_tiles())), column);
        Value* read = b_.CreateAlignedLoad(
            b_.getInt32Ty(), control_.at(parameter(of_score_), element, DType::i32), llvm::Align(4));
        Value* some = b_.CreateAnd(is_there, b_.CreateICmpNE(read, word(0)));
        Value* lanes = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_vote_ballot_sync, {}, {word(-1), some});
        return {at, lanes, read};
    };
    const Values found = control_.repeat(
        "words_of_tiles", look(from),
        [&](const Values& now) {
            return b_.CreateAnd(b_.CreateICmpEQ(now[1], word(0)), is_less(now[0], work.count));
        },
        [&](const Values& now) { return look(b_.CreateAdd(now[0], integer(warp_lanes))); });
    Value* lane = b_.CreateIntrinsic(llvm::Intrinsic::cttz, {b_.getInt32Ty()}, {found[1], b_.getFalse()});
    Value* read = b_.CreateIntrinsic(
        llvm::Intrinsic::nvvm_shfl_sync_idx_i32, {},
        {word(-1), found[2], b_.CreateAnd(lane, word(warp_lanes - 1)), word(warp_lanes - 1)});
    // If no lane sees a tile, it is the tile behind all lanes, which is behind the last.
    return {b_.CreateAdd(found[0], b_.CreateZExt(lane, b_.getInt64Ty())), read};
}

void AttentionBlock::write(const Sums& sums, std::size_t tensor, const HeadPlaces& places, std::int64_t all) {
    barrier();
    put(sums, head_size(), pool_, own_row_);
    barrier();
    copy_out(rows(rows(tensor, places, head_, first_), all, first_, pool_, tiles_.rows()));
}

AttentionBlock::Sums AttentionBlock::scaled(Sums sums, Value* by) {
    for (Value*& one : sums) one = b_.CreateFMul(one, by);
    return sums;
}

Value* AttentionBlock::of_query(Value* base, Value* row) {
    Value* at = b_.CreateAdd(b_.CreateMul(head_of_all_, integer(kernel_.queries)),
                             b_.CreateZExt(row, b_.getInt64Ty()));
    return control_.at(base, at, DType::f32);
}

void AttentionBlock::for_its_first_thread(Value* row, const std::function<void()>& body) {
    Value* is_first = b_.CreateICmpEQ(b_.CreateAnd(lane_, word(3)), word(0));
    if_then(b_.CreateAnd(is_first, is_less(row, word(kernel_.queries))), body);
}

void AttentionBlock::store_f32(Value* value, Value* at) { b_.CreateAlignedStore(value, at, llvm::Align(4)); }

}  // namespace mantissa::codegen
