#include "mantissa/codegen/llvm/emit.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/nest_values.h"
#include "mantissa/codegen/llvm/target_code.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

/// Rows, their walks, and what each walk writes; the values in between are NestValues', and what differs
/// between processors TargetCode's.
class Emitter {
  public:
    Emitter(llvm::IRBuilderBase& builder, const LoopNest& nest, TargetCode& target,
            const CodeArguments& arguments)
        : b_(builder),
          nest_(nest),
          target_(target),
          arguments_(arguments),
          control_(builder),
          one_(target.lanes().of_one()),
          values_(builder, nest, target, arguments) {}

    void run() {
        for (int index : nest_.once) values_.compute_single(index);
        if (nest_.flat) {
            values_.begin_row(control_.integer(0));
            emit_walk(nest_.walks[0], {arguments_.first, arguments_.last, -1, true});
        } else {
            control_.loop("row", arguments_.first, arguments_.last, control_.integer(1), {},
                          [&](Value* row, const Values&) {
                              emit_row(row);
                              return Values{};
                          });
        }
        target_.end();
        b_.CreateRetVoid();
    }

  private:
    const Step& step(int index) const { return nest_.steps[index]; }

    void emit_row(Value* row) {
        values_.begin_row(row);
        for (int index : nest_.row_steps) values_.compute_single(index);
        for (std::size_t i = 0; i < nest_.walks.size(); ++i) {
            if (arguments_.first_column)
                emit_walk(nest_.walks[i], {arguments_.first_column, arguments_.last_column, -1, i == 0, i});
            else
                emit_walk(nest_.walks[i],
                          {control_.integer(0), control_.integer(nest_.columns), nest_.columns, i == 0, i});
            finish_walk(nest_.walks[i]);
        }
    }

    void emit_walk(const Walk& walk, const Range& range) {
        const Values reduced = target_.over(
            walk, range, [&](const Columns& columns, Value** sums) { emit_columns(walk, columns, sums); });
        for (std::size_t i = 0; i < reduced.size(); ++i)
            values_.set_single(walk.reductions[i].result, reduced[i]);
    }

    void emit_columns(const Walk& walk, const Columns& columns, Value** sums) {
        const Lanes& lanes = target_.lanes();
        values_.begin_columns();
        for (const Keep& keep : walk.reread) reread(keep, columns);
        for (int index : walk.steps) values_.compute_lanes(index, columns);
        for (const Keep& keep : walk.kept) this->keep(keep, columns);
        for (const Store& store : walk.stores) this->store(store, columns);
        for (std::size_t i = 0; i < walk.reductions.size(); ++i) {
            const Reduction& reduction = walk.reductions[i];
            Value* value = values_.lane_value(reduction.value);
            if (columns.mask) value = b_.CreateSelect(columns.mask, value, lanes.neutral(reduction.maximum));
            sums[i] = reduction.of_numbers ? lanes.apply("larger", {sums[i], value}, DType::f32, DType::f32)
                                           : lanes.combine(sums[i], value, reduction.maximum);
        }
        for (const RowSum& sum : walk.sums) add_columns(sum, columns);
    }

    Value* scratch_address(const Keep& keep, const Columns& columns) {
        return control_.at(arguments_.scratch,
                           b_.CreateAdd(columns.first, control_.integer(keep.row * scratch_stride(nest_))),
                           DType::f32);
    }

    /// Scratch rows hold values as they are in registers, booleans as integers.
    void keep(const Keep& keep, const Columns& columns) {
        Value* value = values_.lane_value(keep.value);
        if (step(keep.value).dtype == DType::boolean)
            value = b_.CreateZExt(value, target_.lanes().type(DType::i32));
        target_.keep(keep, scratch_address(keep, columns), value);
    }

    void reread(const Keep& keep, const Columns& columns) {
        const Lanes& lanes = target_.lanes();
        const DType dtype = step(keep.value).dtype;
        llvm::Type* type = lanes.type(dtype == DType::boolean ? DType::i32 : dtype);
        Value* value = target_.kept(keep, scratch_address(keep, columns), type);
        if (dtype == DType::boolean) value = b_.CreateICmpNE(value, lanes.constant(0, DType::i32));
        values_.set_lanes(keep.value, value);
    }

    bool rounded(int index) const { return step(index).op == "cast" || step(index).op == "load"; }

    void store(const Store& store, const Columns& columns) {
        const DType dtype = nest_.outputs[store.output];
        Value* value = target_.lanes().stored(values_.lane_value(store.value), dtype, rounded(store.value));
        target_.store(value, control_.at(values_.output_row(store.output), columns.first, dtype),
                      store.output, columns);
    }

    void add_columns(const RowSum& sum, const Columns& columns) {
        Value* value = values_.lane_value(sum.value);
        if (columns.mask) value = b_.CreateSelect(columns.mask, value, target_.lanes().neutral(false));
        Value* column = b_.CreateAdd(columns.first, control_.integer(sum.offset));
        target_.add_to(sum, control_.at(arguments_.partial_sums, column, DType::f32), value, columns);
    }

    void finish_walk(const Walk& walk) {
        for (int index : walk.row_steps) values_.compute_single(index);
        if (walk.row_stores.empty() && walk.row_sums.empty()) return;
        target_.once_a_row([&] {
            for (const Store& store : walk.row_stores) store_row(store);
            for (const RowSum& sum : walk.row_sums) {
                Value* address =
                    control_.at(arguments_.partial_sums, control_.integer(sum.offset), DType::f32);
                Value* before = b_.CreateLoad(b_.getFloatTy(), address);
                b_.CreateStore(b_.CreateFAdd(before, values_.single_value(sum.value)), address);
            }
        });
    }

    void store_row(const Store& store) {
        const auto output = static_cast<std::size_t>(store.output);
        const DType dtype = nest_.outputs[output];
        b_.CreateAlignedStore(one_.stored(values_.single_value(store.value), dtype, rounded(store.value)),
                              control_.at(arguments_.outputs[output], values_.row(), dtype),
                              llvm::Align(size_of(dtype)));
    }

    llvm::IRBuilderBase& b_;
    const LoopNest& nest_;
    TargetCode& target_;
    const CodeArguments& arguments_;
    Control control_;
    Lanes one_;
    NestValues values_;
};

std::unique_ptr<TargetCode> make_code(llvm::IRBuilderBase& builder, const LoopNest& nest,
                                      const CodeTarget& target) {
    const auto* nvptx = std::get_if<NvptxTarget>(&target);
    return nvptx ? make_nvptx_code(builder, nest, *nvptx)
                 : make_host_code(builder, nest, std::get<HostFeatures>(target));
}

}  // namespace

void emit(llvm::Module& module, const std::string& name, const LoopNest& nest, const CodeTarget& target) {
    llvm::IRBuilder<> builder(module.getContext());
    const std::unique_ptr<TargetCode> code = make_code(builder, nest, target);
    const CodeArguments arguments = code->begin(module, name);
    Emitter(builder, nest, *code, arguments).run();
}

}  // namespace mantissa::codegen
