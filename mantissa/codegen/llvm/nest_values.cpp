#include "mantissa/codegen/llvm/nest_values.h"

#include <llvm/IR/IRBuilder.h>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::codegen {

using llvm::Value;

NestValues::NestValues(llvm::IRBuilderBase& builder, const LoopNest& nest, TargetCode& target,
                       const CodeArguments& arguments)
    : b_(builder),
      nest_(nest),
      target_(target),
      arguments_(arguments),
      control_(builder),
      one_(target.lanes().of_one()),
      single_(nest.steps.size()),
      in_lanes_(nest.steps.size()) {}

Value* NestValues::row_of(const Access& access) {
    Value* row = row_;
    if (access.divide != 1) row = b_.CreateUDiv(row, control_.integer(access.divide));
    if (access.modulo != 0) row = b_.CreateURem(row, control_.integer(access.modulo));
    return row;
}

Value* NestValues::row_base(const Step& now) {
    Value* base = arguments_.inputs[now.operand];
    if (arguments_.leading && now.operand == 0) {  // so that columns of the whole count in the block, too
        Value* rows = b_.CreateMul(b_.CreateSub(row_, arguments_.first), arguments_.leading);
        return control_.at(base, b_.CreateSub(rows, arguments_.first_column), now.dtype);
    }
    if (now.access.rows && !nest_.flat)
        base =
            control_.at(base, b_.CreateMul(row_of(now.access), control_.integer(nest_.columns)), now.dtype);
    return base;
}

void NestValues::begin_row(Value* row) {
    row_ = row;
    row_bases_.assign(nest_.steps.size(), nullptr);
    for (std::size_t i = 0; i < nest_.steps.size(); ++i)
        if (nest_.steps[i].op == "load" && nest_.steps[i].access.columns)
            row_bases_[i] = row_base(nest_.steps[i]);
    output_rows_.clear();
    for (std::size_t i = 0; i < nest_.outputs.size(); ++i)
        output_rows_.push_back(nest_.flat ? arguments_.outputs[i]
                                          : control_.at(arguments_.outputs[i],
                                                        b_.CreateMul(row_, control_.integer(nest_.columns)),
                                                        nest_.outputs[i]));
}

void NestValues::compute_single(int index) {
    const Step& now = step(index);
    if (now.op == "load") {
        Value* element = now.access.rows ? row_of(now.access) : control_.integer(0);
        Value* base = arguments_.inputs[now.operand];
        single(index) = one_.load(control_.at(base, element, now.dtype), now.dtype);
    } else if (now.op == "constant") {
        single(index) = one_.constant(now.constant, now.dtype);
    } else if (now.op == "iota") {
        Value* place = now.access.rows ? row_of(now.access) : control_.integer(0);
        single(index) = one_.counted_from(place, now.dtype);
    } else {
        Values arguments;
        for (int argument : now.arguments) arguments.push_back(single(argument));
        single(index) = one_.apply(now.op, arguments, from_type(now), now.dtype);
    }
}

Value* NestValues::lane_value(int index) {
    return in_lanes(index) ? in_lanes(index) : target_.lanes().widened(single(index));
}

void NestValues::compute_lanes(int index, const Columns& columns) {
    const Step& now = step(index);
    if (now.op == "load") {
        Value* base = row_bases_[index];
        check(base != nullptr, "a row's addresses are made before its walks");
        Value* address = control_.at(base, columns.first, now.dtype);
        if (arguments_.leading && now.operand == 0) {
            in_lanes(index) = target_.lanes().load_sums(address, columns.mask);
            return;
        }
        Columns read = columns;
        read.from_memory = columns.from_memory && now.access.rows;
        read.operand = now.operand;
        in_lanes(index) = target_.load(address, now.dtype, read);
    } else if (now.op == "iota") {
        in_lanes(index) = target_.lanes().counted_from(columns.first, now.dtype);
    } else {
        Values arguments;
        for (int argument : now.arguments) arguments.push_back(lane_value(argument));
        in_lanes(index) = target_.lanes().apply(now.op, arguments, from_type(now), now.dtype);
    }
}

}  // namespace mantissa::codegen
