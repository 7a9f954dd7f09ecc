// Makes one node of updates that differ only in their operands.
//
//   %7 = adamw(%a, %da, %ma, %va, %rate, ...)  %8 = adamw(%b, %db, %mb, %vb, %rate, ...)
// becomes
//   %7 = joined_updates(%a, %da, %ma, %va, %rate, ..., %b, %db, %mb, %vb, %rate, ...) {parts=2, update=adamw}
//
// For devices where beginning a kernel costs as much as moving megabytes: parameters are many and mostly
// small. The bits are the same.
#pragma once

#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// Joins updates of one operation with the same attributes and formats, where only updates of states read
/// their results and `has_kernel` holds for the joined node; the others stay. The joined node stands where
/// the last of them stood.
Graph join_updates(const Graph& graph, FunctionRef<bool(const Graph&, const Node&)> has_kernel);

}  // namespace mantissa
