#include "mantissa/codegen/llvm/gpu_table.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <bit>

namespace mantissa::inline v0::codegen {

using llvm::Value;

llvm::Type* GpuTable::parameter_type(llvm::IRBuilderBase& builder) { return builder.getPtrTy(); }

void GpuTable::mark(llvm::Function& function, PartTable table) {
    llvm::LLVMContext& context = function.getContext();
    llvm::Type* numbers = llvm::ArrayType::get(llvm::Type::getInt64Ty(context),
                                               static_cast<std::uint64_t>(table.parts * table.words));
    function.addParamAttr(0, llvm::Attribute::getWithByValType(context, numbers));
    function.addParamAttr(0, llvm::Attribute::getWithAlignment(context, llvm::Align(8)));
}

/// By halves; no branch, since all threads of a block go the same way.
GpuTable::GpuTable(llvm::IRBuilderBase& builder, llvm::Function& function, PartTable table, Value* block)
    : b_(builder), control_(builder), base_(function.getArg(0)), table_(table), part_(control_.integer(0)) {
    Value* const last = control_.integer(table.parts - 1);
    for (auto half = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(table.parts))) / 2;
         half > 0; half /= 2) {
        Value* further = b_.CreateAdd(part_, control_.integer(half));
        Value* is_there = b_.CreateICmpSLE(further, last);
        Value* first = load(b_.CreateSelect(is_there, further, last), 0);
        part_ = b_.CreateSelect(b_.CreateAnd(is_there, b_.CreateICmpSLE(first, block)), further, part_);
    }
    block_ = b_.CreateSub(block, number(0));
}

Value* GpuTable::number(std::int64_t word) { return load(part_, word); }

Value* GpuTable::address(std::int64_t word) { return b_.CreateIntToPtr(number(word), b_.getPtrTy(1)); }

Value* GpuTable::load(Value* part, std::int64_t word) {
    Value* at = b_.CreateAdd(b_.CreateMul(part, control_.integer(table_.words)), control_.integer(word));
    return b_.CreateAlignedLoad(b_.getInt64Ty(), control_.at(base_, at, DType::i64), llvm::Align(8));
}

}  // namespace mantissa::codegen
