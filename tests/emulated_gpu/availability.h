// Which architecture and which version of PTX an instruction needs, where that is more than the least that we
// know: sm_70 and PTX 6.0.
#pragma once

#include <string>
#include <vector>

namespace mantissa::inline v0::cuda::ptx {

struct Needs {
    int architecture = 70;
    bool own = false;  ///< that architecture's "a" alone
    int version = 60;
};

Needs needs_of(const std::vector<std::string>& op);

}  // namespace mantissa::cuda::ptx
