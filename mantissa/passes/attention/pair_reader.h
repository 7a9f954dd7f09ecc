// Reads a graph's computation for each pair of a query and a key as an expression of the scaled product.
//
// A value that does not depend on the product may be made inside of the expression. That is so where it
// follows from positions, or from whole numbers and truth values. It is also so where the value is larger
// than its sources, as a slope for each head times the distance. Else the value is an operand, computed
// outside as before. A row of a table taken by distance is an operand of distances.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mantissa/base/expected.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/attention/axis_map.h"
#include "mantissa/passes/attention/pair_expression.h"

namespace mantissa::inline v0 {

/// Numbers that equal values share, whatever node computes them.
class ValueNumbers {
  public:
    explicit ValueNumbers(const Graph& graph);
    std::pair<int, int> of(Value value) const {
        return {numbers_[static_cast<std::size_t>(value.node)], value.output};
    }

  private:
    std::vector<int> numbers_;
};

/// The tensor of weights; its axes name the axes of all others: the batch, queries and keys.
struct PairFrame {
    Shape shape;
    int query_axis = -1;  ///< -1 where there is one query and no axis for it
    int key_axis = -1;
    std::vector<int> batch_axes = {};

    std::int64_t extent(int axis) const { return axis < 0 ? 1 : shape[axis]; }
    /// The place of a frame's axis among the axes of pairs: sequences, the first of the batch; heads, all
    /// others of the batch.
    int pair_axis(int axis) const;
    /// [B, H, T, S]
    Shape pairs() const;
    /// The parts of all heads, in order.
    AxisAtoms heads() const;
};

/// Places of a value's axes in the frame, and the index along each where the part begins that is read.
struct PairPlace {
    AxisMap axes;
    std::vector<std::int64_t> start = {};

    static PairPlace whole(AxisMap axes);
};

struct PairOperand {
    Value value = {};  ///< by distance: the table whose rows are taken
    AxisMap axes = {};
    PairId rows = -1;          ///< by distance: which, as an expression of positions
    std::string letters;       ///< its axes, each as it stands there
    bool needs_order = false;  ///< heads that are cut, or stand in another order: it is copied
};

struct PairRandom {
    Value seed = {}, step = {};
    std::int64_t operation = 0;
};

class PairReader {
  public:
    PairReader(const Graph& graph, const ValueNumbers& numbers, PairExpressions& expressions, PairFrame frame,
               AxisAtoms shared_rows);

    /// Looks for the product of queries and keys behind the weights; false with a reason.
    bool find_product(Value weights, const AxisMap& axes);
    /// The expression of a value; -1 with a reason.
    PairId read(Value value, const PairPlace& place);

    std::string reason() const { return why_not_.none().reason; }
    /// Why there is no product.
    std::string no_product() const;
    Value product() const { return product_; }
    const AxisMap& product_axes() const { return product_axes_; }
    /// Nodes that were read and depend on the product, and the nodes of sums and maxima over them.
    const std::set<NodeId>& passed() const { return passed_; }
    const std::vector<PairOperand>& operands() const { return operands_; }
    /// The expression of one of them.
    PairId leaf(std::size_t operand);
    const std::vector<PairRandom>& randoms() const { return randoms_; }
    /// Places of the values read that do not change along the keys.
    const std::map<Value, PairPlace>& rows() const { return known_rows_; }
    bool same_value(Value a, Value b) const { return numbers_.of(a) == numbers_.of(b); }
    bool depends(NodeId id) const { return depends_[static_cast<std::size_t>(id)]; }

  private:
    enum class Made : std::uint8_t { of_positions, of_whole_numbers, of_numbers };

    PairId refuse(std::string reason);
    const Node& node(Value value) const { return graph_.node(value.node); }
    void look(Value value, const PairPlace& place);
    bool is_product(Value value, const PairPlace& place) const;
    std::optional<PairPlace> before(const Node& view, Value output, const PairPlace& place) const;
    PairPlace beside(const Node& node, std::size_t input, const PairPlace& place) const;
    std::int64_t wanted(const PairPlace& place, int axis) const;
    bool has_keys(const PairPlace& place) const;

    PairId read_dependent(Value value, const PairPlace& place);
    PairId read_elementwise(const Node& made, const PairPlace& place);
    PairId read_composite(const Node& made, const PairPlace& place);
    PairId read_softmax(const Node& made, const PairPlace& place);
    PairId read_concat(const Node& made, const PairPlace& place);
    PairId read_reduction(Value value, const PairPlace& place);
    PairId sum_over_keys(Value value, int axis, const PairPlace& place);
    std::vector<std::int64_t> parts_of(Value value, int axis) const;

    Made made_of(Value value);
    PairId read_independent(Value value, const PairPlace& place);
    std::optional<PairId> inlined(Value value, const PairPlace& place);
    std::optional<PairId> position(const Node& made, const PairPlace& place);
    std::optional<PairId> random(const Node& made, const PairPlace& place);
    std::optional<PairId> taken_by_distance(const Node& made, const PairPlace& place);
    bool is_of_distance(PairId id) const;
    PairId operand(Value value, const PairPlace& place);
    PairId add_operand(PairOperand operand);

    const Graph& graph_;
    const ValueNumbers& numbers_;
    PairExpressions& expressions_;
    PairFrame frame_;
    AxisAtoms shared_rows_;
    FirstReason why_not_;
    std::set<Value> products_;
    bool met_another_ = false;  // product, that is not of the frame's queries and keys
    std::string_view stands_between_ = {};
    std::set<NodeId> looked_at_;
    Value product_ = {};
    AxisMap product_axes_;
    std::vector<bool> depends_;
    std::map<NodeId, Made> made_of_;
    std::set<NodeId> passed_;
    std::vector<PairOperand> operands_;
    std::vector<PairRandom> randoms_;
    std::vector<std::string> rows_;
    std::map<Value, PairPlace> known_rows_;
    std::map<std::pair<std::pair<int, int>, std::string>, int> known_;
};

}  // namespace mantissa
