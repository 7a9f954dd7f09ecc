// Loops, branches and addresses of one function, as LLVM instructions; what they go round is the caller's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/numerics/dtype.h"

namespace llvm {
class BasicBlock;
class Function;
class IRBuilderBase;
class Module;
class Type;
class Value;
}  // namespace llvm

namespace mantissa::codegen {

class Control {
  public:
    using Values = std::vector<llvm::Value*>;
    /// Of a loop: gives what is carried into the next turn.
    using Body = std::function<Values(llvm::Value* index, const Values& carried)>;

    /// Of a new function of one pointer that gives nothing back; the builder stands at its beginning.
    Control(llvm::IRBuilderBase& builder, llvm::Module& module, const std::string& name);

    llvm::Value* integer(std::int64_t value);
    /// What lies so many bytes from where the function's argument points to.
    llvm::Value* field(std::size_t offset, llvm::Type* type);
    /// The address of an element of an array.
    llvm::Value* at(llvm::Value* base, llvm::Value* element, DType dtype);

    /// for (index = from; index < to; index += step_by), with values carried from one turn to the next.
    Values loop(const char* name, llvm::Value* from, llvm::Value* to, llvm::Value* step_by,
                const Values& start, const Body& body);
    void if_then(llvm::Value* condition, const std::function<void()>& then,
                 const std::function<void()>& otherwise);

  private:
    llvm::BasicBlock* block(const char* name);

    llvm::IRBuilderBase& b_;
    llvm::Function* function_;
};

}  // namespace mantissa::codegen
