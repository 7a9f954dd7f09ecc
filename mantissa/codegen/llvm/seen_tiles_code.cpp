// Finds the tiles of keys and queries that see each other: a warp looks at every pair of its part of one.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include "mantissa/codegen/llvm/body_values.h"
#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/grid_thread.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

class SeenTilesCode : GridThread {
  public:
    SeenTilesCode(llvm::Module& module, const std::string& name, const SeenTilesKernel& kernel)
        : GridThread(module, name, kernel.of.score->operands.size() + 1),
          kernel_(kernel),
          tiles_(tiles_of(kernel.of)),
          rows_are_queries_(kernel.of.makes != AttentionKernel::Makes::key_gradients) {}

    void run() {
        Value* item = b_.CreateUDiv(number_, integer(warp_lanes_));
        lane_ = b_.CreateURem(number_, integer(warp_lanes_));
        if_then(is_less(item, integer(kernel_.bytes())), [&] {
            take_part(item);
            Value* sees = state();
            if_then(b_.CreateICmpEQ(lane_, integer(0)), [&] {
                Value* to = b_.CreateGEP(b_.getInt8Ty(), parameter(kernel_.of.score->operands.size()), item);
                b_.CreateAlignedStore(sees, to, llvm::Align(1));
            });
        });
        b_.CreateRetVoid();
    }

  private:
    static constexpr int warp_lanes_ = 32;

    void take_part(Value* item) {
        const auto next = [&](std::int64_t count) {
            Value* part = b_.CreateURem(item, integer(count));
            item = b_.CreateUDiv(item, integer(count));
            return part;
        };
        const PairScore& score = *kernel_.of.score;
        part_ = next(SeenTilesKernel::parts_of_tile);
        Value* first_column = b_.CreateMul(next(kernel_.column_tiles()), integer(tiles_.columns));
        Value* first_row = b_.CreateAdd(b_.CreateMul(next(kernel_.row_tiles()), integer(tiles_.rows())),
                                        b_.CreateMul(part_, integer(tiles_.rows_of_part())));
        head_ = next(score.mask_by_head ? kernel_.of.heads : 1);
        sequence_ = item;
        first_query_ = rows_are_queries_ ? first_row : first_column;
        first_key_ = rows_are_queries_ ? first_column : first_row;
    }

    /// i8
    Value* state() {
        const std::int64_t queries = rows_are_queries_ ? tiles_.rows_of_part() : tiles_.columns;
        const std::int64_t keys = rows_are_queries_ ? tiles_.columns : tiles_.rows_of_part();
        const std::int64_t before = kernel_.of.keys - kernel_.of.queries;
        Value* turns = b_.CreateSelect(is_less(part_, integer(tiles_.parts())),
                                       integer(queries * keys / warp_lanes_), integer(0));
        if (kernel_.of.causal) {
            Value* last = b_.CreateAdd(first_query_, integer(queries - 1 + before));
            turns = b_.CreateSelect(b_.CreateICmpSGT(first_key_, last), integer(0), turns);
        }
        const Control::Values seen = control_.loop(
            "pairs", integer(0), turns, integer(1), {b_.getFalse(), b_.getTrue()},
            [&](Value* turn, const Control::Values& yet) -> Control::Values {
                Value* pair = b_.CreateAdd(b_.CreateMul(turn, integer(warp_lanes_)), lane_);
                Value* query = b_.CreateAdd(first_query_, b_.CreateUDiv(pair, integer(keys)));
                Value* sees = is_seen(query, b_.CreateAdd(first_key_, b_.CreateURem(pair, integer(keys))));
                return {b_.CreateOr(yet[0], sees), b_.CreateAnd(yet[1], sees)};
            });
        Value* all_lanes = b_.getInt32(~std::uint32_t{0});
        Value* any = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_vote_any_sync, {}, {all_lanes, seen[0]});
        Value* all = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_vote_all_sync, {}, {all_lanes, seen[1]});
        const auto sees = [&](SeenTilesKernel::Sees what) { return b_.getInt8(what); };
        return b_.CreateSelect(
            any, b_.CreateSelect(all, sees(SeenTilesKernel::everything), sees(SeenTilesKernel::some)),
            sees(SeenTilesKernel::nothing));
    }

    Value* is_seen(Value* query, Value* key) {
        std::vector<Value*> operands;
        for (std::size_t i = 0; i < kernel_.of.score->operands.size(); ++i) operands.push_back(parameter(i));
        const auto narrow = [&](Value* x) { return b_.CreateTrunc(x, b_.getInt32Ty()); };
        PairValues mask(
            b_, lanes_, kernel_.of, *kernel_.of.score->mask, operands,
            {.sequence = sequence_, .head = head_, .queries = {narrow(query)}, .keys = {narrow(key)}});
        Value* zero = lanes_.constant(0, DType::f32);
        Value* sees = b_.CreateFCmpOEQ(mask.result(0, {.score = zero}), zero);
        sees = b_.CreateAnd(sees, is_less(query, integer(kernel_.of.queries)));
        sees = b_.CreateAnd(sees, is_less(key, integer(kernel_.of.keys)));
        if (!kernel_.of.causal) return sees;
        Value* last = b_.CreateAdd(query, integer(kernel_.of.keys - kernel_.of.queries));
        return b_.CreateAnd(sees, b_.CreateICmpSLE(key, last));
    }

    const SeenTilesKernel& kernel_;
    AttentionTiles tiles_;
    bool rows_are_queries_;
    Value *lane_ = nullptr, *part_ = nullptr, *sequence_ = nullptr, *head_ = nullptr;  // i64
    Value *first_query_ = nullptr, *first_key_ = nullptr;
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const SeenTilesKernel& kernel) {
    SeenTilesCode(module, name, kernel).run();
}

}  // namespace mantissa::codegen
