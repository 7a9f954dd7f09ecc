// Checks that a graph is well formed: the rules that every pass may rely on and must leave behind.
#pragma once

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// Throws InternalError, naming `after` and the node, unless
/// - operands come before their users and exist, in the number that the operation takes;
/// - the outputs' types follow the operation's rule;
/// - inputs, states, results and updates name existing values of the right type, each state updated at most
/// once.
void verify(const Graph& graph, std::string_view after);

}  // namespace mantissa
