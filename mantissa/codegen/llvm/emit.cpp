#include "mantissa/codegen/llvm/emit.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
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
          rows_(1) {
        rows_[0].single.resize(nest.steps.size());
    }

    void run() {
        for (int index : nest_.once) compute_single(index);
        if (nest_.flat) {
            begin_row(control_.integer(0));
            emit_elements();
        } else {
            const int together = target_.rows_together();
            Value* first = arguments_.first;
            if (together > 1) {
                Value* rest = b_.CreateURem(b_.CreateSub(arguments_.last, first), control_.integer(together));
                Value* end = b_.CreateSub(arguments_.last, rest);
                emit_rows(first, end, together);
                first = end;
            }
            emit_rows(first, arguments_.last, 1);
        }
        target_.end();
        b_.CreateRetVoid();
    }

  private:
    /// A row, of which some are walked over side by side.
    struct Row {
        Value* number = nullptr;
        Values bases = {};     ///< by step: where its operand's row starts
        Values outputs = {};   ///< where they start
        Values single = {};    ///< by step: one number, of the row or for good
        Values in_lanes = {};  ///< by step: of the columns at hand
    };

    const Step& step(int index) const { return nest_.steps[index]; }

    /// body() for each of the rows that are walked over, of which `at_` is one.
    void for_each_row(FunctionRef<void()> body) {
        for (at_ = 0; at_ < rows_.size(); ++at_) body();
        at_ = 0;
    }
    Row& now() { return rows_[at_]; }

    /// `together` rows at a time.
    void emit_rows(Value* first, Value* last, int together) {
        rows_.resize(1);
        rows_.resize(static_cast<std::size_t>(together), rows_[0]);
        control_.loop("row", first, last, control_.integer(together), {}, [&](Value* row, const Values&) {
            emit_row(row);
            return Values{};
        });
    }

    /// Where one condition chooses all stored values, it is asked once, before the loop. The values that it
    /// does not choose are neither read nor computed.
    void emit_elements() {
        const Walk& walk = nest_.walks[0];
        const auto emit = [&] { emit_walk(walk, {arguments_.first, arguments_.last, -1, true}); };
        condition_ = target_.asks_before_loops() ? condition_of(nest_) : -1;
        if (condition_ < 0) return emit();
        const auto where = [&](bool holds) {
            return [&, holds] {
                holds_ = holds;
                emit();
            };
        };
        control_.if_then(now().single[condition_], where(true), where(false));
    }

    Value* row_of(const Access& access) {
        Value* row = now().number;
        if (access.divide != 1) row = b_.CreateUDiv(row, control_.integer(access.divide));
        if (access.modulo != 0) row = b_.CreateURem(row, control_.integer(access.modulo));
        return row;
    }

    /// Where the row of a step's operand starts.
    Value* row_base(const Step& step) {
        Value* base = arguments_.inputs[step.operand];
        // In a block of sums columns of the whole count, too.
        if (arguments_.leading && step.operand == 0) {
            Value* rows = b_.CreateMul(b_.CreateSub(now().number, arguments_.first), arguments_.leading);
            return control_.at(base, b_.CreateSub(rows, arguments_.first_column), step.dtype);
        }
        return step.access.rows && !nest_.flat ? row_in(base, row_of(step.access), step.dtype) : base;
    }

    Value* row_in(Value* base, Value* row, DType dtype) {
        return control_.at(base, b_.CreateMul(row, control_.integer(nest_.columns)), dtype);
    }

    /// Makes the addresses of a row; before any step that varies by row.
    void begin_row(Value* row) {
        now().number = row;
        now().bases.assign(nest_.steps.size(), nullptr);
        for (std::size_t i = 0; i < nest_.steps.size(); ++i)
            if (nest_.steps[i].op == "load" && nest_.steps[i].access.columns)
                now().bases[i] = row_base(nest_.steps[i]);
        now().outputs.clear();
        for (std::size_t i = 0; i < nest_.outputs.size(); ++i)
            now().outputs.push_back(nest_.flat ? arguments_.outputs[i]
                                               : row_in(arguments_.outputs[i], row, nest_.outputs[i]));
    }

    /// The value of a step: for some columns, or one a row, or one alone.
    Value* value_of(const Step& of, int index, const Columns* columns) {
        const Lanes& lanes = columns ? target_.lanes() : one_;
        if (of.op == "constant") return lanes.constant(of.constant, of.dtype);
        if (of.op == "load" || of.op == "iota") {
            Value* place = columns          ? columns->first
                           : of.access.rows ? row_of(of.access)
                                            : control_.integer(0);
            if (of.op == "iota") return lanes.counted_from(place, of.dtype);
            if (!columns)
                return one_.load(control_.at(arguments_.inputs[of.operand], place, of.dtype), of.dtype);
            check(now().bases[index] != nullptr, "a row's addresses are made before its walks");
            Value* address = control_.at(now().bases[index], place, of.dtype);
            if (arguments_.leading && of.operand == 0) return lanes.load_sums(address, columns->mask);
            Columns read = *columns;
            read.from_memory = columns->from_memory && of.access.rows;
            read.operand = of.operand;
            return target_.load(address, of.dtype, read);
        }
        if (columns && of.op == "select" && of.arguments[0] == condition_)
            return lane_value(of.arguments[holds_ ? 1 : 2], *columns);
        Values arguments;
        for (int argument : of.arguments)
            arguments.push_back(columns ? lane_value(argument, *columns) : now().single[argument]);
        return lanes.apply(of.op, arguments, step(of.arguments.back()).dtype, of.dtype);
    }

    void compute_single(int index) { now().single[index] = value_of(step(index), index, nullptr); }

    /// The value for the columns at hand, in every lane if it does not vary along them. A value that varies
    /// by column alone is the first row's.
    Value* lane_value(int index, const Columns& columns) {
        Value*& made = now().in_lanes[index];
        if (made) return made;
        const Varies varies = step(index).varies;
        if (varies == Varies::by_column && at_ > 0 && rows_[0].in_lanes[index])
            made = rows_[0].in_lanes[index];
        else if (varies == Varies::by_column || varies == Varies::by_both)
            made = value_of(step(index), index, &columns);
        else
            return target_.lanes().widened(now().single[index]);
        return made;
    }

    /// The row of that number, and those behind it that are walked over beside it.
    void emit_row(Value* row) {
        for_each_row([&] {
            begin_row(b_.CreateAdd(row, control_.integer(static_cast<std::int64_t>(at_))));
            for (int index : nest_.row_steps) compute_single(index);
        });
        for (std::size_t i = 0; i < nest_.walks.size(); ++i) {
            if (arguments_.first_column)
                emit_walk(nest_.walks[i], {arguments_.first_column, arguments_.last_column, -1, i == 0, i});
            else
                emit_walk(nest_.walks[i],
                          {control_.integer(0), control_.integer(nest_.columns), nest_.columns, i == 0, i});
            for_each_row([&] { finish_walk(nest_.walks[i]); });
        }
    }

    void emit_walk(const Walk& walk, const Range& range) {
        const Values reduced = target_.over(
            walk, range, [&](const Columns& columns, Value** sums) { emit_columns(walk, columns, sums); });
        for (std::size_t i = 0; i < reduced.size(); ++i) now().single[walk.reductions[i].result] = reduced[i];
    }

    /// Reads and computes for all rows, then keeps, stores and reduces.
    void emit_columns(const Walk& walk, const Columns& columns, Value** sums) {
        for_each_row([&] {
            now().in_lanes.assign(nest_.steps.size(), nullptr);  // of other columns
            for (const Keep& keep : walk.reread) reread(keep, columns);
            for (const Reduction& reduction : walk.reductions) lane_value(reduction.value, columns);
            for (const Store& store : walk.stores) lane_value(store.value, columns);
            for (const RowSum& sum : walk.sums) lane_value(sum.value, columns);
        });
        for_each_row([&] {
            for (const Keep& keep : walk.kept) this->keep(keep, columns);
            for (const Store& store : walk.stores) this->store(store, columns);
        });
        const Lanes& lanes = target_.lanes();
        for (std::size_t i = 0; i < walk.reductions.size(); ++i) {
            const Reduction& reduction = walk.reductions[i];
            Value* value = lane_value(reduction.value, columns);
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
        Value* value = lane_value(keep.value, columns);
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
        now().in_lanes[keep.value] = value;
    }

    bool rounded(int index) const { return step(index).op == "cast" || step(index).op == "load"; }

    void store(const Store& store, const Columns& columns) {
        const DType dtype = nest_.outputs[store.output];
        Value* value = target_.lanes().stored(lane_value(store.value, columns), dtype, rounded(store.value));
        target_.store(value, control_.at(now().outputs[store.output], columns.first, dtype), store.output,
                      columns);
    }

    void add_columns(const RowSum& sum, const Columns& columns) {
        Values values;
        for_each_row([&] {
            Value* value = lane_value(sum.value, columns);
            if (columns.mask) value = b_.CreateSelect(columns.mask, value, target_.lanes().neutral(false));
            values.push_back(value);
        });
        Value* column = b_.CreateAdd(columns.first, control_.integer(sum.offset));
        target_.add_to(sum, control_.at(arguments_.partial_sums, column, DType::f32), values, columns);
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
                b_.CreateStore(b_.CreateFAdd(before, now().single[sum.value]), address);
            }
        });
    }

    void store_row(const Store& store) {
        const auto output = static_cast<std::size_t>(store.output);
        const DType dtype = nest_.outputs[output];
        b_.CreateAlignedStore(one_.stored(now().single[store.value], dtype, rounded(store.value)),
                              control_.at(arguments_.outputs[output], now().number, dtype),
                              llvm::Align(size_of(dtype)));
    }

    llvm::IRBuilderBase& b_;
    const LoopNest& nest_;
    TargetCode& target_;
    const CodeArguments& arguments_;
    Control control_;
    Lanes one_;
    std::vector<Row> rows_;  // side by side
    std::size_t at_ = 0;     // which of them
    int condition_ = -1;     // the step that was asked before the loop
    bool holds_ = false;     // its answer
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
