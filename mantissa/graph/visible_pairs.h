// The pairs of a query and a key that see each other, where that follows from positions alone: a causal mask,
// and the `visible` of a score. Boxes of pairs are answered by interval arithmetic, without looking at pairs
// one by one where a box is seen by all or by none.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
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

/// Bounds of all values that an expression has among some pairs.
struct Interval {
    double low = -std::numeric_limits<double>::infinity();
    double high = std::numeric_limits<double>::infinity();

    bool is_point() const { return low == high; }
};

/// A score's `visible` as steps over intervals, each from steps before it.
class VisibleSteps {
  public:
    /// A single pair's value: as the step computes it, or an interval that holds a kernel's rounding of it.
    enum class Points : bool { exact, rounded };
    struct Step {
        Node node = {};
        std::vector<Type> types = {};  ///< of its operands
        std::vector<std::size_t> inputs = {};
        /// Null: values over a box do not follow from the operands' values.
        Interval (*rule)(std::span<const Interval>) = nullptr;
        Interval value = {};                      ///< without a rule
        std::optional<std::size_t> axis = {};     ///< of [B, H, T, S], that it counts
        std::optional<std::size_t> operand = {};  ///< of the score, that it reads

        bool is(std::string_view op) const { return node.op->name == op; }
    };

    /// No steps where the body hides nothing.
    explicit VisibleSteps(const Graph& body);
    /// The last step gives the visibility.
    std::span<const Step> steps() const { return steps_; }
    bool counts(std::size_t axis) const;

    /// `own`: the interval of a counter, or of the operand that is read.
    static Interval evaluate(const Step& step, std::span<const Interval> operands, const Interval& own,
                             Points points);

  private:
    void add(const Graph& body, NodeId id);

    std::vector<Step> steps_;
    std::vector<std::optional<std::size_t>> places_;  // by node: its step
};

class PositionMask {
  public:
    /// Nothing where visibility depends on the scores, on operands or on random numbers.
    static std::optional<PositionMask> of(const AttentionScore& score, bool causal,
                                          const AttentionExtents& extents);

    /// Pairs of the box that are visible. Nothing where finding out takes too long, as with a mask that looks
    /// like noise.
    std::optional<std::int64_t> visible(const PairBox& box) const;
    /// False: every sequence and head has the same count.
    bool depends_on_heads() const { return steps_.counts(0) || steps_.counts(1); }

  private:
    explicit PositionMask(VisibleSteps steps) : steps_(std::move(steps)) {}
    Interval evaluated(const PairBox& box, std::vector<Interval>& values) const;
    bool count(const PairBox& box, std::vector<Interval>& values, std::int64_t& pairs,
               std::int64_t& boxes) const;

    VisibleSteps steps_;
    bool causal_ = false;
    std::int64_t last_ = 0;  ///< causal: query i sees keys up to i + last_
};

/// Pairs that attention with this score computes: the visible pairs where they follow from positions alone,
/// else every pair that the causal mask shows.
std::int64_t visible_pairs(const AttentionScore& score, bool causal, const AttentionExtents& extents);

/// Blocks of pairs that a kernel meets.
struct VisibleBlocks {
    std::int64_t computed = 0;  ///< blocks with a pair that is visible, or may be
    std::int64_t all = 0;
    bool by_data = false;  ///< visibility does not follow from positions alone
};
VisibleBlocks visible_blocks(const AttentionScore& score, bool causal, const AttentionExtents& extents,
                             std::int64_t queries, std::int64_t keys);

}  // namespace mantissa
