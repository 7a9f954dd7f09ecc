// The passes that run, and on what machine, where a test says it.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/passes/machine.h"

namespace mantissa::testing {

/// The passes of a plain rung, and of these those that are switched on.
inline std::vector<std::string> plain_and(std::initializer_list<std::pair<const char*, bool>> others) {
    std::vector<std::string> names{"simplify"};
    for (const auto& [name, is_on] : others)
        if (is_on) names.emplace_back(name);
    return names;
}

/// A machine on which no kernel saves too little to be made.
inline Machine any_size() { return {.target = {.fusion = {.min_bytes_saved = 0}}}; }

}  // namespace mantissa::testing
