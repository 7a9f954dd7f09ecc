// Compiles the code of a score function to LLVM IR: one function of a block of pairs, for the host.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "mantissa/codegen/llvm/body_values.h"
#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/target_code.h"
#include "mantissa/codegen/score_block.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

/// Rows one after another; for each, all vectors of lanes, written out. Values that do not change from row to
/// row are made before them and stay in registers.
class ScoreEmitter final : BodyValues {
  public:
    ScoreEmitter(llvm::IRBuilderBase& builder, llvm::Module& module, const std::string& name,
                 const Lanes& lanes, const ScoreCode& code)
        : BodyValues(builder, lanes, code, changes_of(code), code.lanes_are_queries ? 2 : 3),
          row_axis_(code.lanes_are_queries ? 3 : 2),
          vectors_(static_cast<std::size_t>(code.lanes / lanes.count())) {
        block_ = begin_host_function(b_, module, name);
    }

    void run() {
        read_arguments();
        control_.if_then(
            b_.CreateICmpSGE(present_, control_.integer(code_.lanes)), [&] { emit_rows(false); },
            [&] { emit_rows(true); });
        b_.CreateRetVoid();
    }

  private:
    static std::vector<Changes> changes_of(const ScoreCode& code) {
        std::vector<Changes> changes;
        for (const auto& operand : code.operands)
            changes.push_back(code.lanes_are_queries ? Changes{operand.lanes != 0, operand.rows}
                                                     : Changes{operand.rows, operand.lanes != 0});
        return changes;
    }

    Value* field(std::size_t offset, llvm::Type* type) {
        return b_.CreateLoad(type, b_.CreateConstGEP1_64(b_.getInt8Ty(), block_, offset));
    }
    Value* entry(Value* array, llvm::Type* type, std::size_t index) {
        return b_.CreateLoad(type, b_.CreateConstGEP1_64(type, array, index));
    }

    void read_arguments() {
        llvm::Type *pointer = b_.getPtrTy(), *number = b_.getInt64Ty();
        from_ = field(offsetof(ScoreBlock, from), pointer);
        scores_ = field(offsetof(ScoreBlock, scores), pointer);
        slopes_ = field(offsetof(ScoreBlock, slopes), pointer);
        multipliers_ = field(offsetof(ScoreBlock, multipliers), pointer);
        cotangents_ = field(offsetof(ScoreBlock, cotangents), pointer);
        rows_ = field(offsetof(ScoreBlock, rows), number);
        present_ = field(offsetof(ScoreBlock, lanes), number);
        scale_ = field(offsetof(ScoreBlock, scale), b_.getFloatTy());
        first_ = {field(offsetof(ScoreBlock, sequence), number), field(offsetof(ScoreBlock, head), number),
                  field(offsetof(ScoreBlock, query), number), field(offsetof(ScoreBlock, key), number)};
        Value* operands = field(offsetof(ScoreBlock, operands), pointer);
        Value* operand_rows = field(offsetof(ScoreBlock, operand_rows), pointer);
        for (std::size_t i = 0; i < code_.operands.size(); ++i) {
            operands_.push_back(entry(operands, pointer, i));
            operand_rows_.push_back(entry(operand_rows, number, i));
        }
        if (!code_.sums) return;
        Value* gradients = field(offsetof(ScoreBlock, gradients), pointer);
        Value* gradient_rows = field(offsetof(ScoreBlock, gradient_rows), pointer);
        for (std::size_t i = 0; i < code_.outputs.size(); ++i) {
            gradients_.push_back(entry(gradients, pointer, i));
            gradient_rows_.push_back(entry(gradient_rows, number, i));
        }
    }

    void emit_rows(bool partial) {
        masks_.assign(vectors_, nullptr);
        for (std::size_t v = 0; partial && v < vectors_; ++v) masks_[v] = mask_of_vector(v);
        row_ = nullptr;
        forget_all();
        for (NodeId id = 0; id < graph_.end(); ++id)
            for (std::size_t v = 0; v < vectors_ && !changes_along(row_axis_, id); ++v)
                of({id, 0}, vector(v));
        Values sums(carried_sums() * vectors_, lanes_.constant(0, DType::f32));
        sums = control_.loop("row", control_.integer(0), rows_, control_.integer(1), sums,
                             [&](Value* row, Values carried) {
                                 emit_row(row, carried);
                                 return carried;
                             });
        add_carried(sums);
    }

    void emit_row(Value* row, Values& carried) {
        row_ = row;
        forget(row_axis_);
        pairs_.clear();
        for (std::size_t v = 0; v < vectors_; ++v) {
            pairs_.push_back(vector(v));
            pairs_[v].score = b_.CreateFMul(load_block(from_, v), lanes_.widened(scale_));
            if (code_.sums) pairs_[v].cotangent = load_block(cotangents_, v);
            if (!code_.sums) store_vector(v);
        }
        if (code_.sums) add_row(carried);
    }

    Pair vector(std::size_t v) const { return code_.lanes_are_queries ? Pair{v, 0} : Pair{0, v}; }
    std::size_t vector_of(const Pair& pair) const { return code_.lanes_are_queries ? pair.query : pair.key; }
    std::int64_t first_lane(std::size_t v) const { return static_cast<std::int64_t>(v) * lanes_.count(); }

    Value* mask_of_vector(std::size_t v) {
        Value* left = b_.CreateSub(present_, control_.integer(first_lane(v)));
        Value* some = b_.CreateSelect(b_.CreateICmpSLT(left, control_.integer(0)), control_.integer(0), left);
        return b_.CreateICmpULT(lanes_.lane_numbers(), lanes_.widened(b_.CreateTrunc(some, b_.getInt32Ty())));
    }

    /// An element of a block [rows, lanes of a whole block].
    Value* in_block(Value* block, std::size_t v) {
        Value* at =
            b_.CreateAdd(b_.CreateMul(row_, control_.integer(code_.lanes)), control_.integer(first_lane(v)));
        return control_.at(block, at, DType::f32);
    }
    Value* load_block(Value* block, std::size_t v) { return lanes_.load(in_block(block, v), DType::f32); }

    Value* operand_row(std::size_t operand) {
        const ScoreCode::Operand& now = code_.operands[operand];
        if (!now.rows) return operands_[operand];
        return control_.at(operands_[operand], b_.CreateMul(row_, operand_rows_[operand]), now.dtype);
    }

    Value* as_value(Value* loaded, const ScoreCode::Operand& operand, const Lanes& lanes) {
        if (operand.value != DType::boolean || operand.dtype == DType::boolean) return loaded;
        return b_.CreateICmpNE(loaded, lanes.constant(0, DType::i32));
    }

    Value* operand(std::size_t operand, const Pair& pair) override {
        const ScoreCode::Operand& now = code_.operands[operand];
        Value* base = operand_row(operand);
        if (now.lanes == 0) return as_value(one_.load(base, now.dtype), now, one_);
        const std::size_t v = vector_of(pair);
        Value* mask = masks_[v];
        if (now.lanes > 0)
            return as_value(
                lanes_.load(control_.at(base, control_.integer(first_lane(v)), now.dtype), now.dtype, mask),
                now, lanes_);
        // Lanes go down in memory: sixteen are read as they lie there, and turned round.
        const std::int64_t lowest = -first_lane(v) - (lanes_.count() - 1);
        if (mask) mask = turned(mask);
        Value* read = lanes_.load(control_.at(base, control_.integer(lowest), now.dtype), now.dtype, mask);
        return as_value(turned(read), now, lanes_);
    }
    Value* turned(Value* vector) {
        std::vector<int> order;
        for (int i = lanes_.count() - 1; i >= 0; --i) order.push_back(i);
        return b_.CreateShuffleVector(vector, order);
    }

    Value* position(std::size_t axis, const Pair& pair) override {
        if (axis == row_axis_) return row_ ? b_.CreateAdd(first_[axis], row_) : first_[axis];
        if (axis < 2) return first_[axis];
        return b_.CreateAdd(first_[axis], control_.integer(first_lane(vector_of(pair))));
    }

    void store_vector(std::size_t v) {
        for (std::size_t i = 0; i < code_.outputs.size(); ++i) {
            const ScoreCode::Makes makes = code_.outputs[i].makes;
            Value* to = makes == ScoreCode::Makes::scores   ? scores_
                        : makes == ScoreCode::Makes::slopes ? slopes_
                                                            : multipliers_;
            b_.CreateAlignedStore(result(i, pairs_[v]), in_block(to, v), llvm::Align(4));
        }
    }

    // Gradients that do not change from row to row are carried through them.
    bool is_carried(std::size_t output) const { return code_.sums && !code_.outputs[output].rows; }
    std::size_t carried_sums() const {
        std::size_t count = 0;
        for (std::size_t i = 0; i < code_.outputs.size(); ++i) count += is_carried(i);
        return count;
    }

    /// The sum of a vector's pairs, 0 where there are none.
    Value* contribution(std::size_t output, std::size_t v) {
        Value* value = result(output, pairs_[v]);
        return masks_[v] ? b_.CreateSelect(masks_[v], value, lanes_.constant(0, DType::f32)) : value;
    }

    void add_row(Values& carried) {
        std::size_t next = 0;
        for (std::size_t i = 0; i < code_.outputs.size(); ++i) {
            if (is_carried(i)) {
                for (std::size_t v = 0; v < vectors_; ++v, ++next)
                    carried[next] = b_.CreateFAdd(carried[next], contribution(i, v));
                continue;
            }
            Value* to = control_.at(gradients_[i], b_.CreateMul(row_, gradient_rows_[i]), DType::f32);
            if (code_.outputs[i].lanes) {
                for (std::size_t v = 0; v < vectors_; ++v) add_to(to, v, contribution(i, v));
            } else {
                Value* sum = contribution(i, 0);
                for (std::size_t v = 1; v < vectors_; ++v) sum = b_.CreateFAdd(sum, contribution(i, v));
                add_number(to, sum);
            }
        }
    }

    void add_carried(const Values& sums) {
        std::size_t next = 0;
        for (std::size_t i = 0; i < code_.outputs.size(); ++i) {
            if (!is_carried(i)) continue;
            Value* sum = sums[next];
            for (std::size_t v = 0; v < vectors_; ++v, ++next) {
                if (code_.outputs[i].lanes)
                    add_to(gradients_[i], v, sums[next]);
                else if (v > 0)
                    sum = b_.CreateFAdd(sum, sums[next]);
            }
            if (!code_.outputs[i].lanes) add_number(gradients_[i], sum);
        }
    }

    void add_to(Value* row, std::size_t v, Value* value) {
        Value* address = control_.at(row, control_.integer(first_lane(v)), DType::f32);
        Value* before = lanes_.load(address, DType::f32, masks_[v]);
        Value* sum = b_.CreateFAdd(before, value);
        if (masks_[v])
            b_.CreateMaskedStore(sum, address, llvm::Align(4), masks_[v]);
        else
            b_.CreateAlignedStore(sum, address, llvm::Align(4));
    }

    void add_number(Value* address, Value* vector) {
        Value* before = b_.CreateLoad(b_.getFloatTy(), address);
        b_.CreateStore(b_.CreateFAdd(before, lanes_.across(vector, false)), address);
    }

    std::size_t row_axis_;  // of [B, H, T, S]
    std::size_t vectors_;   // of a row
    Value *block_ = nullptr, *from_ = nullptr, *scores_ = nullptr, *slopes_ = nullptr;
    Value *multipliers_ = nullptr, *cotangents_ = nullptr, *rows_ = nullptr, *present_ = nullptr;
    Value* scale_ = nullptr;
    Values first_;  // by axis
    Values operands_, operand_rows_, gradients_, gradient_rows_;
    Values masks_;  // by vector; null: all lanes
    Value* row_ = nullptr;
    std::vector<Pair> pairs_;  // of the row, by vector
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const ScoreCode& code,
          const HostFeatures& features) {
    llvm::IRBuilder<> builder(module.getContext());
    const Lanes lanes(builder, Lanes::Form::sixteen, host_conversions(features));
    ScoreEmitter(builder, module, name, lanes, code).run();
}

}  // namespace mantissa::codegen
