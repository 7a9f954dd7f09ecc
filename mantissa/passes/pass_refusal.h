// Why a pass left something as it was. What is left still runs, by the kernels of its parts.
#pragma once

#include <string>

namespace mantissa::inline v0 {

struct PassRefusal {
    std::string pass;   ///< as in optional_pass_names(), or "recompute"
    std::string op;     ///< the operation around which the pass looked, or "parameter"
    std::string place;  ///< the model's scope, the parameter's name or the node as printed; empty: none
    std::string reason;
    std::string line = {};  ///< that traced what it looked at, as in "model.py:52"; empty: unknown

    /// As in "h.0.attn: the weights pass a dropout of rate 0.1, ..."; the operation where there is no place.
    std::string text() const { return (place.empty() ? op : place) + ": " + reason; }
};

}  // namespace mantissa
