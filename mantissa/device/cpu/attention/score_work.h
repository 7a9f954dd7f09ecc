// The division of the gradient of attention with a score function, from shapes and masks alone: segments of
// keys with equally many visible blocks. Also the places where each piece of work adds up the gradients of
// the score's operands.
#pragma once

#include <span>

#include "mantissa/base/function_ref.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/attention/kernel_table.h"

namespace mantissa::inline v0::on_cpu {

/// Keys of a segment, and the queries that may see them.
struct Segment {
    Range keys = {}, queries = {};
};

/// Cuts the keys of one of the B G heads of keys into as many segments as there is room for, at multiples of
/// key_lanes. With a table, each segment has about equally many blocks that are seen.
void cut_segments(const AttentionSize& size, const BlockTable& table, std::int64_t key_head,
                  std::int64_t keys_of_segment, std::span<Segment> segments);

/// Whether only one pair of a sequence's or a head's queries and keys reads an element. Then the gradient has
/// at least as many elements as one head has scores.
bool is_dense(const ScoreGradient& gradient);

/// Order of the pieces of work that add to the same elements: one after another.
struct ScoreOrder {
    bool joins_sequences = false, joins_heads = false;

    ScoreOrder(const AttentionSize& size, const Score* score);
    std::int64_t pieces(const AttentionSize& size) const;  ///< of heads of keys, each
    /// Calls f for the heads of keys of a piece, in order.
    void for_each_head(const AttentionSize& size, std::int64_t piece,
                       FunctionRef<void(std::int64_t)> f) const;
};

/// Partial sums of the gradients of the score's operands. Each segment of a head of keys has its own, except
/// that dense gradients are added to in place.
class ScoreSums {
  public:
    ScoreSums(const AttentionSize& size, const Score* score, std::int64_t segments);

    std::int64_t floats() const { return each_ * items_; }
    /// Zeroes the places where dense gradients are added up.
    void begin(ThreadPool& pool) const;
    /// The gradients as a piece of work adds to them; its own sums are zero. `to`: as many as there are.
    void of_item(float* sums, std::int64_t key_head, std::int64_t segment, ScoreGradient* to) const;
    /// Adds all items' sums in one order.
    void finish(const float* sums) const;

  private:
    std::int64_t inner(const ScoreGradient& gradient) const;
    std::int64_t own(const ScoreGradient& gradient) const;

    AttentionSize size_;
    const Score* score_;
    std::int64_t segments_, items_ = 0, each_ = 0;
};

}  // namespace mantissa::on_cpu
