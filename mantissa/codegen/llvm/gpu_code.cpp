#include "mantissa/codegen/llvm/gpu_code.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Metadata.h>
#include <llvm/IR/Module.h>

#include "mantissa/codegen/llvm/gpu_table.h"

namespace mantissa::inline v0::codegen {

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
