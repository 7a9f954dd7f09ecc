// The score of an attention as the GPU's kernels take it, and what brings the gradients of its operands
// together.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

/// Gradients of operands, in the order in which they are asked for, as those of `PairScore`. What rows add up
/// to is summed over the axes that the operand does not have.
class ScoreGradients {
  public:
    /// Adds up FP32 numbers [B, heads, positions] over the axes that the operand does not have.
    struct RowSums {
        std::shared_ptr<const GpuKernel> kernel;
        std::int64_t blocks = 0;
        std::int64_t workspace = 0;  ///< bytes
    };
    struct Gradient {
        std::optional<RowSums> sums = {};  ///< none: elements are stored pair by pair, over zeros
        std::int64_t bytes = 0;            ///< of the gradient
    };

    void add(Gradient gradient) { all_.push_back(std::move(gradient)); }

    std::int64_t workspace() const;
    std::int64_t launches() const;
    /// Where the kernels leave what they make of these. `first_output`: among the operation's; `first`: of
    /// the workspace.
    std::vector<std::uint64_t> places(const std::vector<std::size_t>& which, const Operands& operands,
                                      std::size_t first_output, std::int64_t first) const;
    void begin(const Context& context, const Operands& operands, std::size_t first_output) const;
    void finish(const Context& context, const Operands& operands, std::size_t first_output,
                std::int64_t first) const;

  private:
    std::int64_t workspace_before(std::size_t gradient) const;

    std::vector<Gradient> all_;
};

struct BoundScore {
    std::shared_ptr<const codegen::PairScore> score = {};  ///< null: plain
    ScoreGradients gradients = {};
};

/// The score of a node whose tensors of queries, keys and values stand from operand `first` on: 0 forward, 1
/// backward. Or why there is no function for it.
Expected<BoundScore> bound_score(Context& context, const Problem& problem, std::size_t first,
                                 const codegen::AttentionKernel& kernel);

}  // namespace mantissa::on_cuda
