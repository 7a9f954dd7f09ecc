// The size of a test's sweep: random graphs to draw, cases to take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

namespace mantissa::testing {

/// 200, or the value of MANTISSA_RANDOM_DRAWS, which `./test --all` sets to 1,000 and `.ci/run` to 30 under
/// the sanitizers.
inline int given_draws() {
    const char* const given = std::getenv("MANTISSA_RANDOM_DRAWS");
    return given ? std::atoi(given) : 200;
}

/// Whether sweeps run whole, as in `./test --all`; otherwise they run some of their cases.
inline bool sweeps_are_whole() { return given_draws() >= 1000; }

/// At most `most`, and at most `quick` if sweeps are not whole.
inline int random_draws(int most, int quick = 200) {
    return std::min(given_draws(), sweeps_are_whole() ? most : std::min(most, quick));
}

/// The first case and each `step`-th after it, or all cases of a whole sweep.
template <class Case>
std::vector<Case> some_of(std::vector<Case> all, std::size_t step) {
    if (sweeps_are_whole()) return all;
    std::vector<Case> some;
    for (std::size_t i = 0; i < all.size(); i += step) some.push_back(all[i]);
    return some;
}

}  // namespace mantissa::testing
