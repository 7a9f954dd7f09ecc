// How many random graphs a test draws.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace mantissa::testing {

/// At most `most`: 200, or as many as MANTISSA_RANDOM_DRAWS says, which `./test --all` sets to 1,000 and
/// `.ci/run` to 30 under the sanitizers.
inline int random_draws(int most) {
    const char* const given = std::getenv("MANTISSA_RANDOM_DRAWS");
    return std::min(most, given ? std::atoi(given) : 200);
}

}  // namespace mantissa::testing
