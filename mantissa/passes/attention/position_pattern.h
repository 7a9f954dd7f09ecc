// The contents of a computed constant of the graph, as a function of the position: one number everywhere, a
// linear form of the indices, or two numbers on the two sides of a border between positions. So a mask is
// recognised by its values, whatever it was made of, and without computing an element of it.
//
//   less_equal(iota over keys, iota over queries)      1 where key - query <= 0, else 0
//   select(that, 0, -infinity)                         0 where key - query <= 0, else -infinity
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

struct Pattern {
    enum class Kind : std::uint8_t {
        unknown,
        uniform,  ///< `value`
        linear,   ///< `value` + sum of weights[i] index[i]
        split     ///< `value` where `offset` + sum of weights[i] index[i] <= 0, else `outside`
    };
    Kind kind = Kind::unknown;
    double value = 0;
    double outside = 0;
    /// A weight for each axis; 0 for axes of extent 1. A split has whole numbers without a common factor, the
    /// last that is not 0 positive, and a whole `offset`. So equal borders have equal numbers.
    std::vector<double> weights = {};
    double offset = 0;
    std::string reason = {};  ///< unknown: what it depends on

    bool known() const { return kind != Kind::unknown; }
    bool same_border(const Pattern& other) const {
        return weights == other.weights && offset == other.offset;
    }
};

/// The same split with its border in the one form that equal borders have; uniform where no weight is left.
Pattern with_canonical_border(const Pattern& split);

Pattern uniform_pattern(double value);
Pattern unknown_pattern(std::string reason);

/// Applies a function of the operands' values to each side. Unknown unless every operand is uniform or split
/// along one and the same border.
Pattern combine(std::span<const Pattern> operands, FunctionRef<double(std::span<const double>)> function);

/// Reads patterns off a graph, each value once.
class PatternReader {
  public:
    explicit PatternReader(const Graph& graph) : graph_(graph) {}
    /// By the value's own axes.
    const Pattern& of(Value value);

  private:
    Pattern read(Value value);
    Pattern moved(const Node& node, Value value);
    Pattern elementwise(const Node& node);

    const Graph& graph_;
    std::map<Value, Pattern> known_;
};

}  // namespace mantissa
