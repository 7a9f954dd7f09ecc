// The rounding of operands below sixteen bits: an entry of the reference evaluator, in a file of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/graph/reference_pools.h"

namespace mantissa::inline v0::reference {

/// The effect of a rounding on the numbers of a tensor.
struct RoundingLosses {
    std::int64_t numbers = 0;      ///< that were neither zero nor subnormal before
    std::int64_t flushed = 0;      ///< of these, that became zero
    std::int64_t saturated = 0;    ///< that lay beyond the format's largest number times their scale
    double signal = 0, noise = 0;  ///< sums of squares of the numbers, and of their changes by rounding
};
/// `node`: a round_blocks, with its operands.
RoundingLosses losses_of_rounding(const Node& node, Inputs);

/// One number at a time, by mantissa/numerics/short_formats.h.
std::vector<std::vector<double>> round_blocks(const Node&, Inputs);

}  // namespace mantissa::reference
