// A kernel made for a GPU, run on the CPU: the very IR that becomes PTX, compiled for the host instead, with
// the special registers, the barrier and the shuffle as calls (ptx_threads.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mantissa/codegen/compiler.h"

namespace mantissa::testing {

class PtxKernel {
  public:
    /// Compiles the nest of a fused node's body.
    PtxKernel(const Graph& body, const codegen::NvptxTarget& target);
    ~PtxKernel();

    const codegen::LoopNest& nest() const;

    struct Rows {
        std::int64_t count = 0;  ///< elements where the nest is flat
        std::int64_t per_block = 1;
        std::int64_t blocks() const { return (count + per_block - 1) / per_block; }
    };
    /// Gives the partial sums, those of each block after the other.
    std::vector<float> launch(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                              const Rows& rows) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mantissa::testing
