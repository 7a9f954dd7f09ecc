// The passes and the machine of a test.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/passes/machine.h"

namespace mantissa::testing {

/// The passes of a plain rung, and the others that are switched on.
inline std::vector<std::string> plain_and(std::initializer_list<std::pair<const char*, bool>> others) {
    std::vector<std::string> names{"simplify"};
    for (const auto& [name, is_on] : others)
        if (is_on) names.emplace_back(name);
    return names;
}

/// A machine on which every kernel saves enough to be made.
inline Machine any_size() { return {.target = {.fusion = {.min_bytes_saved = 0}}}; }

}  // namespace mantissa::testing
