#include "mantissa/codegen/llvm/emit.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/lanes.h"

namespace mantissa::codegen {

namespace {

using llvm::Value;

/// How far ahead of its use memory is asked for: the hardware's own prefetch stops at the page, and with this
/// one GELU runs as quickly as a copy.
constexpr int prefetch_bytes = 4096;

class Emitter {
  public:
    Emitter(llvm::Module& module, const std::string& name, const LoopNest& nest)
        : nest_(nest),
          b_(module.getContext()),
          control_(b_, module, name),
          one_(b_, Lanes::Form::one),
          sixteen_(b_, Lanes::Form::sixteen),
          single_(nest.steps.size()),
          in_lanes_(nest.steps.size()) {}

    void run() {
        read_arguments();
        for (int index : nest_.once) compute_single(index);
        if (nest_.flat)
            emit_flat();
        else if (nest_.tail)
            emit_tail();
        else
            loop("row", first_, last_, b_.getInt64(1), {}, [&](Value* row, Values) {
                emit_row(row);
                return Values{};
            });
        b_.CreateRetVoid();
    }

  private:
    using Values = Control::Values;

    const Step& step(int index) const { return nest_.steps[static_cast<std::size_t>(index)]; }
    Value*& single(int index) { return single_[static_cast<std::size_t>(index)]; }
    Value*& in_lanes(int index) { return in_lanes_[static_cast<std::size_t>(index)]; }
    // As Control has them.
    Value* integer(std::int64_t value) { return control_.integer(value); }
    Value* field(std::size_t offset, llvm::Type* type) { return control_.field(offset, type); }
    Value* at(Value* base, Value* element, DType dtype) { return control_.at(base, element, dtype); }
    Values loop(const char* name, Value* from, Value* to, Value* step_by, const Values& start,
                const Control::Body& body) {
        return control_.loop(name, from, to, step_by, start, body);
    }

    void read_arguments() {
        llvm::Type *pointer = b_.getPtrTy(), *number = b_.getInt64Ty();
        Value* inputs = field(offsetof(FusedArguments, inputs), pointer);
        Value* outputs = field(offsetof(FusedArguments, outputs), pointer);
        first_ = field(offsetof(FusedArguments, first), number);
        last_ = field(offsetof(FusedArguments, last), number);
        scratch_ = field(offsetof(FusedArguments, scratch), pointer);
        partial_sums_ = field(offsetof(FusedArguments, partial_sums), pointer);
        Value* streamed = field(offsetof(FusedArguments, streamed), number);
        for (std::size_t i = 0; i < nest_.inputs.size(); ++i)
            inputs_.push_back(b_.CreateLoad(pointer, b_.CreateConstGEP1_64(pointer, inputs, i)));
        if (nest_.tail) read_block();
        for (std::size_t i = 0; i < nest_.outputs.size(); ++i) {
            outputs_.push_back(b_.CreateLoad(pointer, b_.CreateConstGEP1_64(pointer, outputs, i)));
            streamed_.push_back(
                b_.CreateICmpNE(b_.CreateAnd(streamed, b_.getInt64(std::uint64_t{1} << i)), integer(0)));
        }
    }

    void read_block() {
        llvm::Type* number = b_.getInt64Ty();
        inputs_[0] = field(offsetof(FusedArguments, sums), b_.getPtrTy());
        leading_ = field(offsetof(FusedArguments, leading), number);
        first_column_ = field(offsetof(FusedArguments, first_column), number);
        last_column_ = field(offsetof(FusedArguments, last_column), number);
    }

    Value* row_of(const Access& access) {
        Value* row = row_;
        if (access.divide != 1) row = b_.CreateUDiv(row, integer(access.divide));
        if (access.modulo != 0) row = b_.CreateURem(row, integer(access.modulo));
        return row;
    }

    /// Steps of which there is one a row or one alone.
    void compute_single(int index) {
        const Step& now = step(index);
        if (now.op == "load") {
            Value* element = now.access.rows ? row_of(now.access) : integer(0);
            single(index) =
                one_.load(at(inputs_[static_cast<std::size_t>(now.operand)], element, now.dtype), now.dtype);
        } else if (now.op == "constant") {
            single(index) = one_.constant(now.constant, now.dtype);
        } else if (now.op == "iota") {
            Value* count = b_.CreateTrunc(row_of(now.access), b_.getInt32Ty());
            single(index) = is_floating(now.dtype) ? b_.CreateSIToFP(count, b_.getFloatTy()) : count;
        } else {
            Values arguments;
            for (int argument : now.arguments) arguments.push_back(single(argument));
            single(index) = one_.apply(now.op, arguments, from_type(now), now.dtype);
        }
    }

    DType from_type(const Step& now) const { return step(now.arguments.back()).dtype; }

    /// A value in the walk, in every lane if it does not vary along it.
    Value* lane_value(int index) {
        return in_lanes(index) ? in_lanes(index) : sixteen_.widened(single(index));
    }

    /// The sixteen columns from `column` on, of which `mask` says which there are; null: all.
    struct Columns {
        Value* column;
        Value* mask;
        bool ahead;  ///< whether to ask for memory ahead
    };

    void compute_lanes(int index, const Columns& at_columns) {
        const Step& now = step(index);
        if (now.op == "load") {
            Value* address = at(row_base(index), at_columns.column, now.dtype);
            in_lanes(index) = sixteen_.load(address, now.dtype, at_columns.mask);
            if (at_columns.ahead && now.access.rows) prefetch(address);
        } else if (now.op == "iota") {
            Value* start = b_.CreateVectorSplat(lanes, b_.CreateTrunc(at_columns.column, b_.getInt32Ty()));
            Value* count = b_.CreateAdd(start, sixteen_.lane_numbers());
            in_lanes(index) =
                is_floating(now.dtype) ? b_.CreateSIToFP(count, sixteen_.type(now.dtype)) : count;
        } else {
            Values arguments;
            for (int argument : now.arguments) arguments.push_back(lane_value(argument));
            in_lanes(index) = sixteen_.apply(now.op, arguments, from_type(now), now.dtype);
        }
    }

    void prefetch(Value* address) {
        b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                           {b_.CreateConstGEP1_64(b_.getInt8Ty(), address, prefetch_bytes), b_.getInt32(0),
                            b_.getInt32(3), b_.getInt32(1)});
    }

    /// Where the row of an operand starts.
    Value* row_base(int index) {
        Value* base = row_bases_[static_cast<std::size_t>(index)];
        check(base != nullptr, "a row's addresses are made before its walks");
        return base;
    }

    void make_row_bases() {
        row_bases_.assign(nest_.steps.size(), nullptr);
        for (std::size_t i = 0; i < nest_.steps.size(); ++i) {
            const Step& now = nest_.steps[i];
            if (now.op != "load" || !now.access.columns) continue;
            Value* base = inputs_[static_cast<std::size_t>(now.operand)];
            if (nest_.tail && now.operand == 0) {  // so that columns of the whole count in the block, too
                Value* rows = b_.CreateMul(b_.CreateSub(row_, first_), leading_);
                row_bases_[i] = at(base, b_.CreateSub(rows, first_column_), now.dtype);
                continue;
            }
            if (now.access.rows && !nest_.flat)
                base = at(base, b_.CreateMul(row_of(now.access), integer(nest_.columns)), now.dtype);
            row_bases_[i] = base;
        }
        output_rows_.clear();
        for (std::size_t i = 0; i < outputs_.size(); ++i)
            output_rows_.push_back(
                nest_.flat ? outputs_[i]
                           : at(outputs_[i], b_.CreateMul(row_, integer(nest_.columns)), nest_.outputs[i]));
    }

    void emit_flat() {
        row_ = integer(0);
        make_row_bases();
        emit_range(nest_.walks[0], first_, last_, true);
    }

    /// The rows and columns of one block of sums.
    void emit_tail() {
        loop("row", first_, last_, b_.getInt64(1), {}, [&](Value* row, Values) {
            row_ = row;
            make_row_bases();
            for (int index : nest_.row_steps) compute_single(index);
            emit_range(nest_.walks[0], first_column_, last_column_, false);
            return Values{};
        });
    }

    /// A walk without reductions over columns that are known when it runs.
    void emit_range(const Walk& walk, Value* first, Value* last, bool ahead) {
        Value* whole = b_.CreateSub(last, b_.CreateURem(b_.CreateSub(last, first), integer(lanes)));
        loop("columns", first, whole, integer(lanes), {}, [&](Value* column, Values) {
            emit_columns(walk, {column, nullptr, ahead}, nullptr);
            return Values{};
        });
        control_.if_then(
            b_.CreateICmpSLT(whole, last),
            [&] {
                emit_columns(walk, {whole, mask_of(b_.CreateSub(last, whole)), false}, nullptr);
            },
            [] {});
    }

    Value* mask_of(Value* count) {
        return b_.CreateICmpULT(sixteen_.lane_numbers(),
                                b_.CreateVectorSplat(lanes, b_.CreateTrunc(count, b_.getInt32Ty())));
    }

    void emit_row(Value* row) {
        row_ = row;
        make_row_bases();
        for (int index : nest_.row_steps) compute_single(index);
        for (std::size_t i = 0; i < nest_.walks.size(); ++i) {
            emit_walk(nest_.walks[i], i == 0);
            finish_walk(nest_.walks[i]);
        }
    }

    /// Vectors in one turn of a walk's loop: an addition takes four cycles, so a reduction with little else
    /// to do wants four sums side by side.
    std::int64_t vectors_in_turn(const Walk& walk) const {
        std::int64_t count = walk.reductions.empty()   ? 1
                             : walk.steps.size() <= 12 ? 4
                             : walk.steps.size() <= 24 ? 2
                                                       : 1;
        while (count > 1 && nest_.columns < 2 * count * lanes) count /= 2;
        return count;
    }

    Values neutral(const Walk& walk) {
        Values values;
        for (const Reduction& reduction : walk.reductions)
            values.push_back(sixteen_.constant(
                reduction.maximum ? -std::numeric_limits<double>::infinity() : 0.0, DType::f32));
        return values;
    }

    void emit_walk(const Walk& walk, bool ahead) {
        const std::int64_t turn = vectors_in_turn(walk) * lanes, columns = nest_.columns;
        const std::int64_t by_turns = columns / turn * turn, whole = columns / lanes * lanes;
        Values sums;
        for (std::int64_t i = 0; i < turn; i += lanes)
            for (Value* value : neutral(walk)) sums.push_back(value);
        const std::size_t each = walk.reductions.size();
        if (by_turns > 0)
            sums = loop("columns", integer(0), integer(by_turns), integer(turn), sums,
                        [&](Value* column, Values carried) {
                            for (std::int64_t i = 0; i < turn; i += lanes)
                                emit_columns(walk, {b_.CreateAdd(column, integer(i)), nullptr, ahead},
                                             carried.data() + static_cast<std::size_t>(i / lanes) * each);
                            return carried;
                        });
        // One set of sums is left, to which the last columns are added.
        for (std::int64_t count = turn / lanes; count > 1; count /= 2)
            for (std::size_t i = 0; i < static_cast<std::size_t>(count / 2) * each; ++i)
                sums[i] = sixteen_.combine(sums[i], sums[i + static_cast<std::size_t>(count / 2) * each],
                                           walk.reductions[i % each].maximum);
        sums.resize(each);
        if (whole > by_turns)
            sums = loop("last columns", integer(by_turns), integer(whole), integer(lanes), sums,
                        [&](Value* column, Values carried) {
                            emit_columns(walk, {column, nullptr, false}, carried.data());
                            return carried;
                        });
        if (columns > whole)
            emit_columns(walk, {integer(whole), mask_of(integer(columns - whole)), false}, sums.data());
        for (std::size_t i = 0; i < each; ++i)
            single(walk.reductions[i].result) = sixteen_.across(sums[i], walk.reductions[i].maximum);
    }

    /// Computes sixteen columns of a walk; `sums` has a value for each reduction, which is replaced.
    void emit_columns(const Walk& walk, const Columns& columns, Value** sums) {
        std::fill(in_lanes_.begin(), in_lanes_.end(), nullptr);
        for (const Keep& keep : walk.reread) reread(keep, columns);
        for (int index : walk.steps) compute_lanes(index, columns);
        for (const Keep& keep : walk.kept) this->keep(keep, columns);
        for (const Store& store : walk.stores) this->store(store, columns);
        for (std::size_t i = 0; i < walk.reductions.size(); ++i) {
            const Reduction& reduction = walk.reductions[i];
            Value* value = lane_value(reduction.value);
            if (columns.mask)
                value = b_.CreateSelect(
                    columns.mask, value,
                    sixteen_.constant(reduction.maximum ? -std::numeric_limits<double>::infinity() : 0.0,
                                      DType::f32));
            sums[i] = sixteen_.combine(sums[i], value, reduction.maximum);
        }
        for (const RowSum& sum : walk.sums) add_columns(sum, columns);
    }

    Value* scratch_address(const Keep& keep, const Columns& columns) {
        const std::int64_t stride = (nest_.columns + lanes - 1) / lanes * lanes;
        return at(scratch_, b_.CreateAdd(columns.column, integer(keep.row * stride)), DType::f32);
    }

    /// Scratch rows hold values as they are in registers, booleans as integers.
    void keep(const Keep& keep, const Columns& columns) {
        Value* value = lane_value(keep.value);
        if (step(keep.value).dtype == DType::boolean) value = b_.CreateZExt(value, sixteen_.type(DType::i32));
        b_.CreateAlignedStore(value, scratch_address(keep, columns), llvm::Align(64));
    }

    void reread(const Keep& keep, const Columns& columns) {
        const DType dtype = step(keep.value).dtype;
        llvm::Type* type = sixteen_.type(dtype == DType::boolean ? DType::i32 : dtype);
        Value* value = b_.CreateAlignedLoad(type, scratch_address(keep, columns), llvm::Align(64));
        if (dtype == DType::boolean) value = b_.CreateICmpNE(value, sixteen_.constant(0, DType::i32));
        in_lanes(keep.value) = value;
    }

    void store(const Store& store, const Columns& columns) {
        const auto output = static_cast<std::size_t>(store.output);
        const DType dtype = nest_.outputs[output];
        Value* value = sixteen_.stored(lane_value(store.value), dtype, rounded(store.value));
        Value* address = at(output_rows_[output], columns.column, dtype);
        const llvm::Align align(size_of(dtype));
        if (columns.mask) {
            b_.CreateMaskedStore(value, address, align, columns.mask);
            return;
        }
        if (size_of(dtype) < 4) {
            b_.CreateAlignedStore(value, address, align);
            return;
        }
        control_.if_then(
            streamed_[output],
            [&] {
                llvm::StoreInst* past = b_.CreateAlignedStore(value, address, llvm::Align(64));
                past->setMetadata(
                    llvm::LLVMContext::MD_nontemporal,
                    llvm::MDNode::get(b_.getContext(), llvm::ConstantAsMetadata::get(b_.getInt32(1))));
            },
            [&] { b_.CreateAlignedStore(value, address, align); });
    }

    bool rounded(int index) const { return step(index).op == "cast" || step(index).op == "load"; }

    void add_columns(const RowSum& sum, const Columns& columns) {
        Value* value = lane_value(sum.value);
        if (columns.mask) value = b_.CreateSelect(columns.mask, value, sixteen_.constant(0, DType::f32));
        Value* address = at(partial_sums_, b_.CreateAdd(columns.column, integer(sum.offset)), DType::f32);
        if (nest_.tail) return add_in_block(value, address, columns.mask);
        Value* before = b_.CreateAlignedLoad(value->getType(), address, llvm::Align(64));
        b_.CreateAlignedStore(b_.CreateFAdd(before, value), address, llvm::Align(64));
    }

    /// Columns beside those of the block belong to other threads, and a block starts anywhere.
    void add_in_block(Value* value, Value* address, Value* mask) {
        const llvm::Align align(4);
        if (!mask) {
            Value* before = b_.CreateAlignedLoad(value->getType(), address, align);
            b_.CreateAlignedStore(b_.CreateFAdd(before, value), address, align);
            return;
        }
        Value* before = b_.CreateMaskedLoad(value->getType(), address, align, mask);
        b_.CreateMaskedStore(b_.CreateFAdd(before, value), address, align, mask);
    }

    void finish_walk(const Walk& walk) {
        for (int index : walk.row_steps) compute_single(index);
        for (const Store& store : walk.row_stores) {
            const auto output = static_cast<std::size_t>(store.output);
            const DType dtype = nest_.outputs[output];
            b_.CreateAlignedStore(one_.stored(single(store.value), dtype, rounded(store.value)),
                                  at(outputs_[output], row_, dtype), llvm::Align(size_of(dtype)));
        }
        for (const RowSum& sum : walk.row_sums) {
            Value* address = at(partial_sums_, integer(sum.offset), DType::f32);
            Value* before = b_.CreateLoad(b_.getFloatTy(), address);
            b_.CreateStore(b_.CreateFAdd(before, single(sum.value)), address);
        }
    }

    const LoopNest& nest_;
    llvm::IRBuilder<> b_;
    Control control_;
    Lanes one_, sixteen_;
    Value *first_ = nullptr, *last_ = nullptr, *scratch_ = nullptr, *partial_sums_ = nullptr;
    Value* row_ = nullptr;
    Value *leading_ = nullptr, *first_column_ = nullptr, *last_column_ = nullptr;  // of a block of sums
    Values inputs_, outputs_, streamed_, output_rows_, row_bases_;
    Values single_;    // by step: one number, of the row or for good
    Values in_lanes_;  // by step: sixteen columns
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const LoopNest& nest) {
    Emitter(module, name, nest).run();
}

}  // namespace mantissa::codegen
