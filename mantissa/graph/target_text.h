// A target's facts as reports print them.
#pragma once

#include <string>

#include "mantissa/graph/target.h"

namespace mantissa::inline v0 {

/// "2 threads"; of a GPU "132 multiprocessors".
inline std::string threads_text(const Target& target) {
    return std::to_string(target.threads) + (target.device == "cuda" ? " multiprocessors" : " threads");
}

}  // namespace mantissa
