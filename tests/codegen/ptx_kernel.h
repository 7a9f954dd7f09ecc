// A kernel made for a GPU: its PTX on the emulated GPU, which judges it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/base/whole_units.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/graph.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace mantissa::testing {

class PtxKernel {
  public:
    /// Compiles the nest of a fused node's body and loads its text. `change` may plant a fault in it.
    PtxKernel(
        const Graph& body, const codegen::NvptxTarget& target,
        const std::function<void(std::string& text)>& change = [](std::string&) {});
    ~PtxKernel();

    const codegen::LoopNest& nest() const;

    struct Rows {
        std::int64_t count = 0;  ///< elements where the nest is flat
        std::int64_t per_block = 1;
        std::int64_t blocks() const { return ceil_div(count, per_block); }
    };
    /// Copies to the device, runs, and copies back the outputs that are no sums over rows: of these it gives
    /// the partial sums, those of each block after the other. Throws UserError with the words of what was
    /// judged wrong.
    std::vector<float> launch(std::span<const std::span<const std::byte>> inputs,
                              std::span<const std::span<std::byte>> outputs, const Rows& rows) const;
    /// Counts of the launches so far.
    std::vector<cuda::LaunchCount> take_counts();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mantissa::testing
