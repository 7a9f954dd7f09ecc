// How much of a sweep a test runs: random graphs that it draws, cases that it takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

namespace mantissa::testing {

/// 200, or as many as MANTISSA_RANDOM_DRAWS says, which `./test --all` sets to 1,000 and `.ci/run` to 30
/// under the sanitizers.
inline int given_draws() {
    const char* const given = std::getenv("MANTISSA_RANDOM_DRAWS");
    return given ? std::atoi(given) : 200;
}

/// Whether sweeps run whole, as in `./test --all`; else they run some of their cases.
inline bool sweeps_are_whole() { return given_draws() >= 1000; }

/// At most `most`, and at most `quick` where sweeps are not whole.
inline int random_draws(int most, int quick = 200) {
    return std::min(given_draws(), sweeps_are_whole() ? most : std::min(most, quick));
}

/// The first case and each `step`-th behind it, or all of a whole sweep.
template <class Case>
std::vector<Case> some_of(std::vector<Case> all, std::size_t step) {
    if (sweeps_are_whole()) return all;
    std::vector<Case> some;
    for (std::size_t i = 0; i < all.size(); i += step) some.push_back(all[i]);
    return some;
}

}  // namespace mantissa::testing
