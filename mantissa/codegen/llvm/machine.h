// One thread's LLVM: a context and a target machine, from IR to an object file in memory.
#pragma once

#include <memory>

#include "mantissa/codegen/grid_kernel.h"

namespace llvm {
class MemoryBuffer;
}

namespace mantissa::inline v0::codegen {

/// Tells LLVM which processors there are, before anything else is asked of it.
void initialize_llvm();

class Machine {
  public:
    explicit Machine(const CodeTarget& target);
    ~Machine();

    /// Emits, improves and assembles one kernel, for the host. Its function is called `entry`.
    std::unique_ptr<llvm::MemoryBuffer> compile(const FusedKernel& kernel, const std::string& entry);
    std::unique_ptr<llvm::MemoryBuffer> compile(const ScoreKernel& kernel, const std::string& entry);
    Listing list(const FusedKernel& kernel);
    Listing list(const ScoreKernel& kernel);
    /// For a GPU.
    Listing list(const GridKernel& kernel);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mantissa::codegen
