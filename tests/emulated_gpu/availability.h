// The architecture and the version of PTX that an instruction needs, where that is more than the least that
// we know: sm_70 and PTX 6.0.
#pragma once

#include <string>
#include <vector>

#include "mantissa/device/cuda/planned/planned_gpu.h"

namespace mantissa::inline v0::cuda::ptx {

struct Needs {
    int architecture = 70;
    bool own = false;  ///< that architecture's "a" alone
    int version = 60;
};

Needs needs_of(const std::vector<std::string>& op);

/// Why code for `target` does not run on the GPU; empty if it does.
std::string target_refusal(const std::string& target, const Architecture& gpu);

}  // namespace mantissa::cuda::ptx
