// Quantities as reports print them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/graph/target.h"

namespace mantissa::inline v0 {

double megabytes(std::int64_t bytes);
double gigaflops(std::int64_t flops);

/// 20232 as "20,232".
std::string grouped(double value);

/// Seconds as "41 s", "8 min 3 s", "2 h 5 min".
std::string duration_text(double seconds);

/// 0.125 as "12.5 %".
std::string percent(double share);

/// 2.381 as "2.38x".
std::string times(double factor);

/// Bytes as "1,500 MB".
std::string megabytes_text(double bytes);

std::string with_decimals(double value, int decimals);

/// Milliseconds with a decimal, below 1 with three digits: "12.5", "0.0944".
std::string milliseconds_text(double value);

/// with_decimals, as a Column's format.
template <int decimals>
std::string decimals_of(double value) {
    return with_decimals(value, decimals);
}

/// The middle value, or the mean of the two middle ones. Throws InternalError if there is none.
inline double median(std::vector<double> values) {
    check(!values.empty(), "a median is of one value or more");
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// "2 threads"; for a GPU "132 multiprocessors".
inline std::string threads_text(const Target& target) {
    return count_text(target.threads, target.device == "cuda" ? "multiprocessor" : "thread");
}

}  // namespace mantissa
