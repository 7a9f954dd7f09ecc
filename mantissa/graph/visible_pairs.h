// The pairs of a query and a key that see each other, where that follows from positions alone: a causal mask,
// and what a score says is visible. Boxes of pairs are answered by interval arithmetic, without looking at
// pairs one by one where a box is seen by all or by none.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// Pairs from `begin` on up to before `end`, along sequences, heads, queries and keys.
struct PairBox {
    std::array<std::int64_t, 4> begin = {};
    std::array<std::int64_t, 4> end = {};

    std::int64_t pairs() const;
};

class PositionMask {
  public:
    /// Nothing where what is visible depends on the scores, on operands or on random numbers.
    static std::optional<PositionMask> of(const AttentionScore& score, bool causal,
                                          const AttentionExtents& extents);

    /// Pairs of the box that are visible. Nothing where finding out takes too long, as with a mask that looks
    /// like noise.
    std::optional<std::int64_t> visible(const PairBox& box) const;
    /// The same for every sequence and head.
    bool depends_on_heads() const { return reads_[0] || reads_[1]; }

  private:
    /// All values that a node has in a box lie between these.
    struct Interval {
        double low = 0, high = 0;
        bool is_point() const { return low == high; }
    };
    /// One node of the mask; its operands are steps before it.
    struct Step {
        Node node = {};
        std::vector<Type> types = {};  ///< of the operands
        std::vector<std::size_t> inputs = {};
        int axis = -1;     ///< of an iota, among those of a box
        double value = 0;  ///< of a constant
        Interval (*rule)(std::span<const Interval>) = nullptr;
    };
    using Rule = Interval (*)(std::span<const Interval>);

    PositionMask() = default;
    static Rule rule_of(const Node& node, const std::vector<Type>& types);
    bool add(const Graph& body, NodeId id, std::vector<int>& places);
    Interval evaluated(const PairBox& box, std::vector<Interval>& values) const;
    Interval of_step(const Step& step, const PairBox& box, std::span<const Interval> operands) const;
    bool count(const PairBox& box, std::vector<Interval>& values, std::int64_t& pairs,
               std::int64_t& boxes) const;

    std::vector<Step> steps_;  ///< the last says what is visible; none: everything
    bool causal_ = false;
    std::int64_t last_ = 0;  ///< causal: query i sees keys up to i + last_
    std::array<bool, 4> reads_ = {};
};

/// Pairs that attention of this score meets: those that are visible where that follows from positions alone,
/// else all that the causal mask shows.
std::int64_t visible_pairs(const AttentionScore& score, bool causal, const AttentionExtents& extents);

/// Blocks of pairs that a kernel meets.
struct VisibleBlocks {
    std::int64_t computed = 0;  ///< of which a pair is visible, or may be
    std::int64_t all = 0;
    bool by_data = false;  ///< what is visible does not follow from positions alone
};
VisibleBlocks visible_blocks(const AttentionScore& score, bool causal, const AttentionExtents& extents,
                             std::int64_t queries, std::int64_t keys);

}  // namespace mantissa
