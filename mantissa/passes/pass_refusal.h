// The reason why a pass left a node as it was. Such a node still runs, by the kernels of its parts.
#pragma once

#include <string>

namespace mantissa::inline v0 {

struct PassRefusal {
    std::string pass;   ///< as in optional_pass_names(), or "recompute"
    std::string op;     ///< the operation around which the pass looked, or "parameter"
    std::string place;  ///< the model's scope, the parameter's name or the node as printed; empty: none
    std::string reason;
    std::string line = {};  ///< that traced the node, as in "model.py:52"; empty: unknown

    /// As in "h.0.attn: the weights pass a dropout of rate 0.1, ..."; the operation where there is no place.
    std::string text() const { return (place.empty() ? op : place) + ": " + reason; }
};

}  // namespace mantissa
