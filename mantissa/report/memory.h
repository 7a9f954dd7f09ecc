// The contents of a plan's memory where most of it is in use: what one would have to do without to train a
// larger model or batch.
#pragma once

#include <string>
#include <vector>

#include "mantissa/runtime/plan.h"

namespace mantissa::inline v0 {

/// Values of the arena that are alike, and alive at the peak.
struct LiveValues {
    std::string op;         ///< that made them, as in "softmax"; "workspace" of a kernel
    std::string pass;       ///< forward, backward or update
    std::string type = {};  ///< as in "f32[4, 12, 1024, 1024]"; empty for a workspace
    int count = 0;
    std::int64_t bytes = 0;
};

struct MemoryAtPeak {
    std::int64_t state = 0;                                    ///< parameters, moments, constants
    std::int64_t arena = 0;                                    ///< activations, gradients, workspaces
    std::int64_t inputs = 0;                                   ///< tokens and scalars
    std::string peak_op = {}, peak_name = {}, peak_pass = {};  ///< the node that runs at the peak
    std::vector<LiveValues> live = {};                         ///< largest first

    std::int64_t total() const { return state + arena + inputs; }
};

MemoryAtPeak memory_at_peak(const Plan& plan);

/// For people: the totals, and what is alive at the peak, all but the last hundredth.
std::string memory_table(const MemoryAtPeak& memory);

}  // namespace mantissa
