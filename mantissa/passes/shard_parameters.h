// Lets ranks keep parts of parameters if a run reads rounded copies alone: then the copies travel and are put
// together.
//
//   %1 = own_shard(%w), %2 = adamw(%1, ...), %3 = all_gather_start(%2.0), %4 = all_gather_wait(%3),
//   update w = %4, %5: bf16 = cast(%4), update bf16.w = %5
// becomes, with %w a part,
//   %2 = adamw(%w, ...), update w = %2.0, %5: bf16 = cast(%2.0), %3 = all_gather_start(%5),
//   %4 = all_gather_wait(%3), update bf16.w = %4
//
// The graph that derives copies puts them together from parts, too. Every value has the bits that it had.
#pragma once

#include <set>
#include <string>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

struct ShardedParameters {
    Graph graph;
    Graph derive;                 ///< makes the derived states of `graph` from parts
    std::set<std::string> names;  ///< of the parameters
};

/// `graph` and `derive` as passes/lay_out.h gives them, with the update recorded for so many ranks.
ShardedParameters shard_parameters(const Graph& graph, const Graph& derive, int ranks);

/// `derive` of a graph that updates no parameter, from parts of the parameters of these names.
Graph derived_from_shards(const Graph& derive, const std::set<std::string>& names, int ranks);

/// A graph that updates no parameter, with parts in place of the parameters of these names. Throws UserError,
/// naming the parameter, where one is read.
Graph with_parts(const Graph& graph, const std::set<std::string>& names, int ranks);

}  // namespace mantissa
