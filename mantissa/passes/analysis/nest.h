// A nest: operations that one pair of loops can compute, over rows and columns. Says for every value how it
// varies over the two, and for every operand from outside how it is read; or why the operations are no nest.
//
//   %3 = add(%x, %bias)  %4 = sum(%3) {axes=[1]}  %5 = sub(%3, reshape(%4))      x f32[4, 6], bias f32[6]
// is a nest of 4 rows and 6 columns: %3 and %5 vary by both, %4 by row, %bias is read by column.
//
// A reduction over the last axis gives a value a row, which the nest may use again: it then walks the row
// once more. A sum over all rows is finished only when the nest is, so nothing inside may use it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/expected.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// How a value of a nest varies.
enum class Varies : std::uint8_t { not_at_all, by_row, by_column, by_both };

/// Where an operand from outside is read for a row and a column. An operand that is repeated along some of
/// the axes that make up the rows is read in its row `row / divide % modulo`.
struct Access {
    bool rows = false;
    bool columns = false;
    std::int64_t divide = 1;
    std::int64_t modulo = 0;  ///< 0: none

    friend bool operator==(const Access&, const Access&) = default;
};

struct Nest {
    /// Nothing varies by row or column alone, so the nest is one long row: rows = 1.
    bool flat = true;
    std::int64_t rows = 1;
    std::int64_t columns = 1;
    std::vector<NodeId> nodes;  ///< in the graph's order
    std::map<Value, Varies> values;
    /// By node and operand, for operands from outside.
    std::map<std::pair<NodeId, std::size_t>, Access> reads;
};

/// Whether a nest without values that vary by row or column alone becomes one loop over all elements.
enum class Loops : std::uint8_t { one_if_possible, rows_and_columns };

/// Whether a nest may compute in FP64: with single numbers, as the count of an update's steps.
enum class Doubles : std::uint8_t { none, single };

/// The nest of these nodes, in the graph's order, or why they are none. Operands for which `from_source`
/// holds are made inside the nest from constants and counters, whatever their shape.
Expected<Nest> make_nest(const Graph& graph, std::span<const NodeId> nodes,
                         FunctionRef<bool(Value)> from_source, Loops loops = Loops::one_if_possible,
                         Doubles doubles = Doubles::none);
/// Makes a nest of all operations of a body.
Expected<Nest> make_nest(const Graph& body, Loops loops = Loops::one_if_possible,
                         Doubles doubles = Doubles::none);

/// Whether a nest may hold the operation at all; else why not.
std::string refuse_in_nest(const Graph& graph, const Node& node, Doubles doubles = Doubles::none);

/// Instructions of an operation on sixteen lanes, for the choice between computing again and keeping.
int nest_instructions(std::string_view op);

/// The extent of a nest's reduction.
enum class Reduces : std::uint8_t { nothing, row, columns, everything };
Reduces reduces(const Graph& graph, const Node& node);

/// For the counter `iota` along an axis of a shape: which row it counts, or that it counts columns. All axes
/// of a value that varies by row alone are rows, the last as well.
Access counted_by(const Shape& shape, int axis, Varies varies);

}  // namespace mantissa
