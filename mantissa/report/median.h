// The median that a report prints of repeated measurements: beside other work the mean means little.
#pragma once

#include <algorithm>
#include <vector>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

/// The middle value, or the mean of the two in the middle. Throws InternalError if there is none.
inline double median(std::vector<double> values) {
    check(!values.empty(), "a median is of one value or more");
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace mantissa
