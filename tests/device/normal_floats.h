// Normal numbers as operands.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/base/random.h"

namespace mantissa::on_cpu {

/// The first numbers of a stream.
inline std::vector<float> normal_floats(std::int64_t count, const RandomStream& random) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(random.normal(static_cast<std::uint64_t>(i)));
    return values;
}

}  // namespace mantissa::on_cpu
