// The bytes of a constant of a graph, as they are written once where it is bound to memory.
#pragma once

#include <cstddef>
#include <vector>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// The bytes of a node that is one number everywhere, or a literal.
std::vector<std::byte> constant_bytes(const Node& node);

}  // namespace mantissa
