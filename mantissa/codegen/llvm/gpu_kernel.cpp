#include "mantissa/codegen/llvm/gpu_kernel.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Metadata.h>
#include <llvm/IR/Module.h>

namespace mantissa::inline v0::codegen {

void make_gpu_kernel(llvm::Function& function, int threads) {
    function.setCallingConv(llvm::CallingConv::PTX_Kernel);
    function.addFnAttr(llvm::Attribute::NoUnwind);
    function.addFnAttr("denormal-fp-math-f32", "preserve-sign,preserve-sign");
    llvm::LLVMContext& context = function.getContext();
    llvm::Constant* count =
        llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), static_cast<std::uint64_t>(threads));
    function.getParent()
        ->getOrInsertNamedMetadata("nvvm.annotations")
        ->addOperand(llvm::MDNode::get(
            context, {llvm::ConstantAsMetadata::get(&function), llvm::MDString::get(context, "reqntidx"),
                      llvm::ConstantAsMetadata::get(count)}));
}

}  // namespace mantissa::codegen
