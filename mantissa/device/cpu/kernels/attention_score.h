// Binds the scores of attention: compiles a body's score functions, finds its operands among a node's, and
// sees that each launch has the table of blocks that see each other.
//
// These blocks have 32 queries and 32 keys. Interval arithmetic over the score's `visible` answers for each,
// once where that follows from positions, else at the start of each launch, from the operands that the mask
// reads. Where the intervals leave it open, some of a block is seen.
//
//   visible = equal(document[query], document[key]), documents 0 0 0 ... 1 1 1: `everything` where both
//   ranges lie in one document, `nothing` where they have none in common, else `some`
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/attention/attention.h"
#include "mantissa/device/cpu/attention/problems.h"
#include "mantissa/device/device.h"
#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/visible_pairs.h"

namespace mantissa::inline v0::on_cpu {

/// The mask of a body over boxes of pairs.
class VisibleBlocks {
  public:
    /// Nothing where the body hides nothing. `operands`: their types and strides; no pointers.
    static std::optional<VisibleBlocks> of(const Graph& body, const AttentionSize& size,
                                           std::span<const ScoreOperand> operands);

    /// Whether the mask reads no operand.
    bool by_positions() const { return by_positions_; }
    /// Bytes of all tables, one after another.
    std::int64_t bytes() const { return tables() * rows_ * columns_; }
    /// The tables, with the steps between sequences and heads that have their own.
    BlockTable table(const Sees* blocks) const;

    /// Fills the tables. `operands`: with pointers; unread if by_positions().
    void fill(std::span<const ScoreOperand> operands, Sees* blocks, ThreadPool& pool) const;
    /// Whether every block is seen by all queries that the causal mask lets see it.
    bool sees_everything(const Sees* blocks) const;

  private:
    class Evaluation;
    struct OperandBounds;

    explicit VisibleBlocks(VisibleSteps steps) : steps_(std::move(steps)) {}
    std::vector<OperandBounds> bounds_of(std::span<const ScoreOperand> operands) const;
    std::int64_t tables() const {
        return (by_sequence_ ? size_.sequences : 1) * (by_head_ ? size_.heads : 1);
    }

    AttentionSize size_;
    std::int64_t rows_ = 0, columns_ = 0;
    VisibleSteps steps_;
    bool by_positions_ = true, by_sequence_ = false, by_head_ = false;
};

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
    /// Null for plain scores. Or the reason why there is no function for the score.
    static Expected<std::shared_ptr<const BoundScore>> of(const ScoreProblem& problem,
                                                          codegen::Compiler& compiler, ThreadPool& pool);

    /// Without addresses, to size workspaces by.
    const Score& sizes() const { return sizes_; }
    /// The table of the blocks that positions alone decide; empty for other scores.
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
    std::optional<VisibleBlocks> blocks_;  // that each launch fills
    std::vector<Sees> fixed_;              // tables that follow from positions
    BlockTable fixed_table_ = {};
    std::int64_t table_bytes_ = 0, gradient_bytes_ = 0;
    ScorePass pass_ = ScorePass::forward;
    Score sizes_;
};

}  // namespace mantissa::on_cpu
