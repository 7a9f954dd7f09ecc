// Loops, branches and addresses as LLVM instructions, at the builder's position. The caller makes the inside
// of a loop or branch.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mantissa/numerics/dtype.h"

namespace llvm {
class BasicBlock;
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace mantissa::inline v0::codegen {

class Control {
  public:
    using Values = std::vector<llvm::Value*>;
    /// Body of a loop: gives the values carried into the next turn.
    using Body = std::function<Values(llvm::Value* index, const Values& carried)>;

    explicit Control(llvm::IRBuilderBase& builder) : b_(builder) {}

    llvm::Value* integer(std::int64_t value);
    /// The address of an element of an array.
    llvm::Value* at(llvm::Value* base, llvm::Value* element, DType dtype);

    /// for (index = from; index < to; index += step_by), with values carried from one turn to the next.
    Values loop(const char* name, llvm::Value* from, llvm::Value* to, llvm::Value* step_by,
                const Values& start, const Body& body);
    /// while (goes_on(carried)) carried = body(carried); gives the values carried last.
    Values repeat(const char* name, const Values& start,
                  const std::function<llvm::Value*(const Values&)>& goes_on,
                  const std::function<Values(const Values&)>& body);
    void if_then(llvm::Value* condition, const std::function<void()>& then,
                 const std::function<void()>& otherwise);
    /// The values of `then`, or of `otherwise`.
    Values if_then(llvm::Value* condition, const Values& otherwise, const std::function<Values()>& then);

  private:
    llvm::BasicBlock* block(const char* name);

    llvm::IRBuilderBase& b_;
};

}  // namespace mantissa::codegen
