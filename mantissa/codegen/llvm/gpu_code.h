// The common part of a GPU's kernels that are no nests: a function, its threads, addresses and elements.
#pragma once

#include <functional>
#include <string>

#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/lanes.h"
#include "mantissa/codegen/part_table.h"

namespace llvm {
class Function;
class Type;
}  // namespace llvm
namespace llvm {
class Function;
class GlobalVariable;
class Module;
}  // namespace llvm
namespace llvm {
class Function;
}

namespace mantissa::inline v0::codegen {

class GpuTable {
  public:
    /// The type of the kernel's first parameter: a pointer. `mark` says that it stands for the table.
    static llvm::Type* parameter_type(llvm::IRBuilderBase& builder);
    static void mark(llvm::Function& function, PartTable table);

    /// Finds the part of a block, where the builder stands in the function.
    GpuTable(llvm::IRBuilderBase& builder, llvm::Function& function, PartTable table, llvm::Value* block);

    /// The number of this block among the blocks of its part.
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

struct GpuFunction {
    std::string name;
    std::size_t parameters = 0;  ///< addresses in global memory
    int threads = 0;             ///< of a block
    PartTable table = {};        ///< the first parameter, where it has one
    /// Blocks that a multiprocessor shall have registers for; 0: not said.
    int blocks = 0;
};

class GpuCode {
  public:
    /// Adds the function and leaves the builder at its beginning.
    GpuCode(llvm::Module& module, llvm::IRBuilderBase& builder, const GpuFunction& function);

  protected:
    llvm::Value* special(unsigned intrinsic);
    /// A parameter behind the table.
    llvm::Value* parameter(std::size_t i);
    llvm::Value* integer(std::int64_t value) { return control_.integer(value); }
    llvm::Value* is_less(llvm::Value* a, llvm::Value* b);
    void if_then(llvm::Value* condition, const std::function<void()>& body) {
        control_.if_then(condition, body, [] {});
    }
    /// A barrier of all threads of the block.
    void barrier();

    llvm::Value* load(llvm::Value* base, llvm::Value* element, DType dtype);
    void store(llvm::Value* value, llvm::Value* base, llvm::Value* element, DType dtype);

    /// An array of so many bytes in the block's shared memory, at a multiple of 16.
    llvm::GlobalVariable* shared_bytes(const char* name, std::int64_t bytes);

    llvm::Module& module_;
    llvm::IRBuilderBase& b_;
    Control control_;
    Lanes lanes_;
    llvm::Function* function_ = nullptr;
    unsigned first_parameter_ = 0;
    llvm::Value *thread_ = nullptr, *block_ = nullptr;  ///< 64 bits
};

/// Marks the function as a kernel for blocks of so many threads; a multiprocessor shall hold `blocks` of
/// them. Subnormals of FP32 are flushed, as on the CPU.
void make_gpu_kernel(llvm::Function& function, int threads, int blocks = 0);

}  // namespace mantissa::codegen
