// Compiles a kernel of products in registers to LLVM IR.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include "mantissa/base/error.h"
#include "mantissa/codegen/grid_kernel.h"
#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/gpu_code.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

struct PeakBuilder {
    llvm::IRBuilder<> own_builder;
};

/// The spelling of a mode in LLVM: registers of a, b and sums, and their types.
struct PeakRegisters {
    llvm::Intrinsic::ID intrinsic;
    int a, b, sums;
    llvm::Type *of_operands, *of_sums;
    std::uint32_t bits, varied;  ///< of 32 bits of operands: the bits that all have, the bits that are drawn
};

class PeakCode : PeakBuilder, GpuCode {
  public:
    PeakCode(llvm::Module& module, const std::string& name, const PeakKernel& kernel)
        : PeakBuilder{llvm::IRBuilder<>(module.getContext())},
          GpuCode(module, own_builder, {name, 2, grid_threads}),
          registers_(registers_of(kernel)) {}

    void run() {
        Control::Values operands, sums;
        for (int i = 0; i < registers_.a + registers_.b; ++i) operands.push_back(drawn(i));
        for (int i = 0; i < peak_products * registers_.sums; ++i)
            sums.push_back(llvm::Constant::getNullValue(registers_.of_sums));
        Value* times = b_.CreatePtrToInt(parameter(1), b_.getInt64Ty());
        sums = control_.loop(
            "products", integer(0), times, integer(1), sums,
            [&](Value*, const Control::Values& before) { return multiplied(operands, before); });
        Value* all = b_.getInt32(0);
        for (Value* sum : sums) all = b_.CreateXor(all, word_of(sum));
        Value* number = b_.CreateAdd(b_.CreateMul(block_, integer(grid_threads)), thread_);
        b_.CreateAlignedStore(all, control_.at(parameter(0), number, DType::i32), llvm::Align(4));
        b_.CreateRetVoid();
    }

  private:
    PeakRegisters registers_of(const PeakKernel& kernel) {
        llvm::Type *word = b_.getInt32Ty(), *f32 = b_.getFloatTy(), *f64 = b_.getDoubleTy();
        llvm::Type* halves = llvm::FixedVectorType::get(b_.getHalfTy(), 2);
        // Signs and mantissas are drawn; numbers lie between a half and one.
        constexpr std::uint32_t half = 0x38003800, of_half = 0x83ff83ff;
        if (kernel.inputs == "f16" && kernel.accumulator == "f16")
            return {
                llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f16_f16, 4, 2, 2, halves, halves, half, of_half};
        if (kernel.inputs == "f16")
            return {llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32, 4, 2, 4, halves, f32, half, of_half};
        if (kernel.inputs == "bf16")
            return {
                llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16, 4, 2, 4, word, f32, 0x3f003f00, 0x807f807f};
        if (kernel.inputs == "tf32")
            return {
                llvm::Intrinsic::nvvm_mma_m16n8k8_row_col_tf32, 4, 2, 4, word, f32, 0x3f000000, 0x807fe000};
        if (kernel.inputs == "s8")
            return {llvm::Intrinsic::nvvm_mma_m16n8k32_row_col_s8, 4, 2, 4, word, word, 0, ~std::uint32_t{0}};
        check(kernel.inputs == "f64", "a mode of mma.sync");
        return {llvm::Intrinsic::nvvm_mma_m8n8k4_row_col_f64, 1, 1, 2, f64, f64, 0x3fe00000, 0x800fffff};
    }

    /// Register i of an operand, another number in each thread.
    Value* drawn(int i) {
        Value* thread = b_.CreateTrunc(thread_, b_.getInt32Ty());
        Value* seed = b_.CreateAdd(thread, b_.getInt32(static_cast<std::uint32_t>(1000 * i + 1)));
        Value* mixed = b_.CreateMul(seed, b_.getInt32(0x9e3779b9));
        mixed = b_.CreateXor(mixed, b_.CreateLShr(mixed, 15));
        mixed = b_.CreateMul(mixed, b_.getInt32(0x85ebca6b));
        Value* bits =
            b_.CreateOr(b_.CreateAnd(mixed, b_.getInt32(registers_.varied)), b_.getInt32(registers_.bits));
        if (registers_.of_operands->isDoubleTy())
            return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(bits, b_.getInt64Ty()), 32),
                                    registers_.of_operands);
        return b_.CreateBitCast(bits, registers_.of_operands);
    }

    Control::Values multiplied(const Control::Values& operands, const Control::Values& before) {
        Control::Values after;
        const auto count = static_cast<std::size_t>(registers_.sums);
        for (std::size_t product = 0; product < peak_products; ++product) {
            Control::Values arguments = operands;
            for (std::size_t i = 0; i < count; ++i) arguments.push_back(before[product * count + i]);
            Value* made = b_.CreateIntrinsic(registers_.intrinsic, {}, arguments);
            for (unsigned i = 0; i < count; ++i) after.push_back(b_.CreateExtractValue(made, i));
        }
        return after;
    }

    Value* word_of(Value* sum) {
        if (!sum->getType()->isDoubleTy()) return b_.CreateBitCast(sum, b_.getInt32Ty());
        Value* bits = b_.CreateBitCast(sum, b_.getInt64Ty());
        return b_.CreateTrunc(b_.CreateXor(bits, b_.CreateLShr(bits, 32)), b_.getInt32Ty());
    }

    PeakRegisters registers_;
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const PeakKernel& kernel) {
    PeakCode(module, name, kernel).run();
}

}  // namespace mantissa::codegen
