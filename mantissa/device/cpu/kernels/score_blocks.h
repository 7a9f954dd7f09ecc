// The blocks of 32 queries and 32 keys that see each other, by interval arithmetic over what a score says is
// visible: once where that follows from positions, else at the start of each launch, from the operands that
// the mask reads. Where the intervals leave it open, some of a block is seen.
//
//   visible = equal(document[query], document[key]), documents 0 0 0 ... 1 1 1: a block is seen by all where
//   both its ranges lie in one document, by nothing where they have none in common, else by some
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/attention/problems.h"
#include "mantissa/graph/visible_pairs.h"

namespace mantissa::inline v0::on_cpu {

/// The mask of a body over boxes of pairs.
class VisibleBlocks {
  public:
    /// Nothing where the body hides nothing. `operands`: their types and strides; no pointers.
    static std::optional<VisibleBlocks> of(const Graph& body, const AttentionSize& size,
                                           std::span<const ScoreOperand> operands);

    /// Whether it reads no operand.
    bool by_positions() const { return by_positions_; }
    /// Bytes of all tables, one after another.
    std::int64_t bytes() const { return tables() * rows_ * columns_; }
    /// Where each sequence and head has its own, and in which part of them.
    BlockTable table(const Sees* blocks) const;

    /// Fills the tables. `operands`: with pointers; unread where it goes by positions.
    void fill(std::span<const ScoreOperand> operands, Sees* blocks, ThreadPool& pool) const;
    /// Whether every block is seen by all that the causal mask lets see it.
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

}  // namespace mantissa::on_cpu
