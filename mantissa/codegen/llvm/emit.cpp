#include "mantissa/codegen/llvm/emit.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "mantissa/base/error.h"
#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/target_code.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

/// Rows, their walks, and the values of their steps: values of a row or of the whole nest as single numbers,
/// values of a walk for the columns at hand. The differences between processors are TargetCode's.
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
          single_(nest.steps.size()) {}

    void run() {
        for (int index : nest_.once) compute_single(index);
        if (nest_.flat) {
            begin_row(control_.integer(0));
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

    Value* row_of(const Access& access) {
        Value* row = row_;
        if (access.divide != 1) row = b_.CreateUDiv(row, control_.integer(access.divide));
        if (access.modulo != 0) row = b_.CreateURem(row, control_.integer(access.modulo));
        return row;
    }

    /// Where the row of a step's operand starts.
    Value* row_base(const Step& now) {
        Value* base = arguments_.inputs[now.operand];
        if (arguments_.leading && now.operand == 0) {  // so that columns of the whole count in the block, too
            Value* rows = b_.CreateMul(b_.CreateSub(row_, arguments_.first), arguments_.leading);
            return control_.at(base, b_.CreateSub(rows, arguments_.first_column), now.dtype);
        }
        return now.access.rows && !nest_.flat ? row_in(base, row_of(now.access), now.dtype) : base;
    }

    Value* row_in(Value* base, Value* row, DType dtype) {
        return control_.at(base, b_.CreateMul(row, control_.integer(nest_.columns)), dtype);
    }

    /// Makes the addresses of a row; before any step that varies by row.
    void begin_row(Value* row) {
        row_ = row;
        row_bases_.assign(nest_.steps.size(), nullptr);
        for (std::size_t i = 0; i < nest_.steps.size(); ++i)
            if (nest_.steps[i].op == "load" && nest_.steps[i].access.columns)
                row_bases_[i] = row_base(nest_.steps[i]);
        output_rows_.clear();
        for (std::size_t i = 0; i < nest_.outputs.size(); ++i)
            output_rows_.push_back(nest_.flat ? arguments_.outputs[i]
                                              : row_in(arguments_.outputs[i], row_, nest_.outputs[i]));
    }

    /// The value of a step: for some columns, or one a row, or one alone.
    Value* value_of(const Step& now, int index, const Columns* columns) {
        const Lanes& lanes = columns ? target_.lanes() : one_;
        if (now.op == "constant") return lanes.constant(now.constant, now.dtype);
        if (now.op == "load" || now.op == "iota") {
            Value* place = columns           ? columns->first
                           : now.access.rows ? row_of(now.access)
                                             : control_.integer(0);
            if (now.op == "iota") return lanes.counted_from(place, now.dtype);
            if (!columns)
                return one_.load(control_.at(arguments_.inputs[now.operand], place, now.dtype), now.dtype);
            check(row_bases_[index] != nullptr, "a row's addresses are made before its walks");
            Value* address = control_.at(row_bases_[index], place, now.dtype);
            if (arguments_.leading && now.operand == 0) return lanes.load_sums(address, columns->mask);
            Columns read = *columns;
            read.from_memory = columns->from_memory && now.access.rows;
            read.operand = now.operand;
            return target_.load(address, now.dtype, read);
        }
        Values arguments;
        for (int argument : now.arguments)
            arguments.push_back(columns ? lane_value(argument) : single_[argument]);
        return lanes.apply(now.op, arguments, step(now.arguments.back()).dtype, now.dtype);
    }

    void compute_single(int index) { single_[index] = value_of(step(index), index, nullptr); }

    /// The value for the columns at hand, in every lane if it does not vary along them.
    Value* lane_value(int index) {
        return in_lanes_[index] ? in_lanes_[index] : target_.lanes().widened(single_[index]);
    }

    void emit_row(Value* row) {
        begin_row(row);
        for (int index : nest_.row_steps) compute_single(index);
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
        for (std::size_t i = 0; i < reduced.size(); ++i) single_[walk.reductions[i].result] = reduced[i];
    }

    void emit_columns(const Walk& walk, const Columns& columns, Value** sums) {
        const Lanes& lanes = target_.lanes();
        in_lanes_.assign(nest_.steps.size(), nullptr);  // of other columns
        for (const Keep& keep : walk.reread) reread(keep, columns);
        for (int index : walk.steps) in_lanes_[index] = value_of(step(index), index, &columns);
        for (const Keep& keep : walk.kept) this->keep(keep, columns);
        for (const Store& store : walk.stores) this->store(store, columns);
        for (std::size_t i = 0; i < walk.reductions.size(); ++i) {
            const Reduction& reduction = walk.reductions[i];
            Value* value = lane_value(reduction.value);
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
        Value* value = lane_value(keep.value);
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
        in_lanes_[keep.value] = value;
    }

    bool rounded(int index) const { return step(index).op == "cast" || step(index).op == "load"; }

    void store(const Store& store, const Columns& columns) {
        const DType dtype = nest_.outputs[store.output];
        Value* value = target_.lanes().stored(lane_value(store.value), dtype, rounded(store.value));
        target_.store(value, control_.at(output_rows_[store.output], columns.first, dtype), store.output,
                      columns);
    }

    void add_columns(const RowSum& sum, const Columns& columns) {
        Value* value = lane_value(sum.value);
        if (columns.mask) value = b_.CreateSelect(columns.mask, value, target_.lanes().neutral(false));
        Value* column = b_.CreateAdd(columns.first, control_.integer(sum.offset));
        target_.add_to(sum, control_.at(arguments_.partial_sums, column, DType::f32), value, columns);
    }

    void finish_walk(const Walk& walk) {
        for (int index : walk.row_steps) compute_single(index);
        if (walk.row_stores.empty() && walk.row_sums.empty()) return;
        target_.once_a_row([&] {
            for (const Store& store : walk.row_stores) store_row(store);
            for (const RowSum& sum : walk.row_sums) {
                Value* address =
                    control_.at(arguments_.partial_sums, control_.integer(sum.offset), DType::f32);
                Value* before = b_.CreateLoad(b_.getFloatTy(), address);
                b_.CreateStore(b_.CreateFAdd(before, single_[sum.value]), address);
            }
        });
    }

    void store_row(const Store& store) {
        const auto output = static_cast<std::size_t>(store.output);
        const DType dtype = nest_.outputs[output];
        b_.CreateAlignedStore(one_.stored(single_[store.value], dtype, rounded(store.value)),
                              control_.at(arguments_.outputs[output], row_, dtype),
                              llvm::Align(size_of(dtype)));
    }

    llvm::IRBuilderBase& b_;
    const LoopNest& nest_;
    TargetCode& target_;
    const CodeArguments& arguments_;
    Control control_;
    Lanes one_;
    Value* row_ = nullptr;
    Values row_bases_;  // by step: where its operand's row starts
    Values output_rows_;
    Values single_;    // by step: one number, of the row or for good
    Values in_lanes_;  // by step: of the columns at hand
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
