// The reference evaluator: computes a graph in FP64 from the definitions, slowly and plainly.
//
// Every kernel and every rewriting pass is compared with it. Integers and booleans are held as doubles, which
// are exact for all values here. Casts to f16 and bf16 round (to nearest even); f32 is not rounded to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

struct ReferenceTensor {
    Type type;
    std::vector<double> values;  ///< in row-major order
};

/// Values of inputs and states by name, in row-major order.
using ReferenceFeed = std::map<std::string, std::vector<double>>;

class ReferenceRun {
  public:
    /// Evaluates every node. Throws UserError if a fed value is missing or has another number of elements.
    ReferenceRun(const Graph& graph, const ReferenceFeed& feed);

    const ReferenceTensor& operator[](Value value) const {
        return values_[static_cast<std::size_t>(value.node)][static_cast<std::size_t>(value.output)];
    }
    const ReferenceTensor& result(std::string_view name) const;
    /// The feed for the next run, with every updated state replaced.
    ReferenceFeed next(const ReferenceFeed& feed) const;

  private:
    const Graph& graph_;
    std::vector<std::vector<ReferenceTensor>> values_;
};

/// The results of a primitive on its operands. Throws InternalError for a primitive without an entry.
std::vector<ReferenceTensor> evaluate_primitive(const Node& node,
                                                std::span<const ReferenceTensor* const> inputs);

/// The result of a primitive with one output for single numbers of these types.
double evaluate_on_numbers(const Node& node, std::span<const Type> types, std::span<const double> numbers);

}  // namespace mantissa
