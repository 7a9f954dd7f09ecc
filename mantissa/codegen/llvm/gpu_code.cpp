#include "mantissa/codegen/llvm/gpu_code.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Metadata.h>
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

using llvm::Value;

GpuCode::GpuCode(llvm::Module& module, llvm::IRBuilderBase& builder, const GpuFunction& function)
    : module_(module),
      b_(builder),
      control_(b_),
      lanes_(b_, Lanes::Form::one, {.bf16 = Lanes::By::bits, .f16 = Lanes::By::instruction_on_integers}) {
    std::vector<llvm::Type*> types(function.parameters, b_.getPtrTy(1));
    const bool has_table = function.table.parts > 0;
    if (has_table) types.insert(types.begin(), GpuTable::parameter_type(b_));
    first_parameter_ = has_table ? 1 : 0;
    function_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false),
                                       llvm::Function::ExternalLinkage, function.name, module);
    make_gpu_kernel(*function_, function.threads, function.blocks);
    if (has_table) GpuTable::mark(*function_, function.table);
    b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", function_));
    thread_ = b_.CreateZExt(special(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x), b_.getInt64Ty());
    block_ = b_.CreateZExt(special(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x), b_.getInt64Ty());
}

Value* GpuCode::special(unsigned intrinsic) { return b_.CreateIntrinsic(intrinsic, {}, {}); }

Value* GpuCode::parameter(std::size_t i) {
    return function_->getArg(first_parameter_ + static_cast<unsigned>(i));
}

Value* GpuCode::is_less(Value* a, Value* b) { return b_.CreateICmpSLT(a, b); }

void GpuCode::barrier() { b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {}); }

Value* GpuCode::load(Value* base, Value* element, DType dtype) {
    return lanes_.load(control_.at(base, element, dtype), dtype);
}

void GpuCode::store(Value* value, Value* base, Value* element, DType dtype) {
    b_.CreateAlignedStore(lanes_.stored(value, dtype, false), control_.at(base, element, dtype),
                          llvm::Align(size_of(dtype)));
}

llvm::GlobalVariable* GpuCode::shared_bytes(const char* name, std::int64_t bytes) {
    llvm::Type* type = llvm::ArrayType::get(b_.getInt8Ty(), static_cast<std::uint64_t>(bytes));
    auto* array = new llvm::GlobalVariable(  // the module owns it
        module_, type, false, llvm::GlobalValue::InternalLinkage, llvm::UndefValue::get(type), name, nullptr,
        llvm::GlobalValue::NotThreadLocal, 3);
    array->setAlignment(llvm::Align(16));
    return array;
}

void make_gpu_kernel(llvm::Function& function, int threads, int blocks) {
    function.setCallingConv(llvm::CallingConv::PTX_Kernel);
    function.addFnAttr(llvm::Attribute::NoUnwind);
    function.addFnAttr("denormal-fp-math-f32", "preserve-sign,preserve-sign");
    llvm::LLVMContext& context = function.getContext();
    const auto say = [&](const char* what, int count) {
        llvm::Constant* number =
            llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), static_cast<std::uint64_t>(count));
        function.getParent()
            ->getOrInsertNamedMetadata("nvvm.annotations")
            ->addOperand(llvm::MDNode::get(
                context, {llvm::ConstantAsMetadata::get(&function), llvm::MDString::get(context, what),
                          llvm::ConstantAsMetadata::get(number)}));
    };
    say("reqntidx", threads);
    if (blocks > 0) say("minctasm", blocks);
}

}  // namespace mantissa::codegen
