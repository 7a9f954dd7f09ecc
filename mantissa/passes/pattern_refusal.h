// Why a pass that looks for a pattern left something as it was.
#pragma once

#include <string>

#include "mantissa/graph/graph.h"

namespace mantissa {

struct PatternRefusal {
    Origin origin;   ///< of the node around which the pattern was looked for
    std::string op;  ///< that node's operation
    std::string reason;

    /// As in "h.0.attn: the weights pass a dropout of rate 0.1, ..."; the operation where there is no scope.
    std::string text() const { return (origin.scope.empty() ? op : origin.scope) + ": " + reason; }
};

}  // namespace mantissa
