// Binds the scores of attention: compiles what a body makes of them, finds its operands among a node's, and
// sees that each launch has the table of blocks that see each other.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/attention/attention.h"
#include "mantissa/device/cpu/kernels/score_blocks.h"
#include "mantissa/device/device.h"
#include "mantissa/graph/attention_score.h"

namespace mantissa::inline v0::on_cpu {

enum class ScorePass : bool { forward, backward };

/// The scores of a node, as it describes them.
struct ScoreProblem {
    const Attributes& attributes;
    AttentionSize size;
    AttentionExtents extents;
    std::vector<Type> operands;  ///< as they are stored
    ScorePass pass;
};

/// The score of a node's kernel; everything but addresses.
class BoundScore {
  public:
    /// Null for plain scores. Or why there is no function for it.
    static Expected<std::shared_ptr<const BoundScore>> of(const ScoreProblem& problem,
                                                          codegen::Compiler& compiler, ThreadPool& pool);

    /// Without addresses, to size workspaces by.
    const Score& sizes() const { return sizes_; }
    /// The table of what each sees by positions; of others nothing.
    const BlockTable& fixed_table() const { return fixed_table_; }
    /// Bytes beside the kernel's own workspace: tables, and gradients that are not stored in FP32.
    std::int64_t workspace() const { return table_bytes_ + gradient_bytes_; }

    /// Calls run with the score. `inputs` and `outputs`: operands of the score, and their gradients.
    void launch(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                std::byte* workspace, ThreadPool& pool, FunctionRef<void(const Score&)> run) const;

  private:
    struct Gradient {
        std::size_t operand = 0;
        std::int64_t count = 0;
        DType dtype = DType::f32;
    };

    void add_operands(const ScoreProblem& problem);
    void find_blocks(const ScoreProblem& problem, ThreadPool& pool);
    void add_functions(const codegen::ScoreForm& form, ScorePass pass, codegen::Compiler& compiler);
    Score placed_functions() const;

    std::vector<ScoreOperand> operands_;  // without addresses
    std::vector<std::int64_t> first_;     // by operand: the element of query 0 and key 0
    std::vector<Gradient> gradients_;
    std::vector<ScoreGradient> gradient_sizes_;  // without addresses
    std::shared_ptr<const codegen::ScoreKernel> plain_, masked_, mask_, sums_;
    std::optional<VisibleBlocks> blocks_;  // that each launch looks at
    std::vector<Sees> fixed_;              // tables that follow from positions
    BlockTable fixed_table_ = {};
    std::int64_t table_bytes_ = 0, gradient_bytes_ = 0;
    ScorePass pass_ = ScorePass::forward;
    Score sizes_;
};

}  // namespace mantissa::on_cpu
