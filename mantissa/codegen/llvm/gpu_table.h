// The table of parts (codegen/part_table.h) in a kernel's code.
#pragma once

#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/part_table.h"

namespace llvm {
class Function;
class Type;
}  // namespace llvm

namespace mantissa::inline v0::codegen {

class GpuTable {
  public:
    /// The type of the kernel's first parameter: a pointer, of which `mark` says that it stands for the
    /// table.
    static llvm::Type* parameter_type(llvm::IRBuilderBase& builder);
    static void mark(llvm::Function& function, PartTable table);

    /// Finds the part of a block, where the builder stands in the function.
    GpuTable(llvm::IRBuilderBase& builder, llvm::Function& function, PartTable table, llvm::Value* block);

    /// The number of this block among those of its part.
    llvm::Value* block() const { return block_; }
    /// The part's number, or address in global memory.
    llvm::Value* number(std::int64_t word);
    llvm::Value* address(std::int64_t word);

  private:
    llvm::Value* load(llvm::Value* part, std::int64_t word);

    llvm::IRBuilderBase& b_;
    Control control_;
    llvm::Value* base_;
    PartTable table_;
    llvm::Value *part_ = nullptr, *block_ = nullptr;
};

}  // namespace mantissa::codegen
