// How graphs call the metrics of a model: results with a mark in front, which nothing else has.
#pragma once

#include <string_view>

namespace mantissa::inline v0::nn {

inline constexpr std::string_view metric_prefix = "metric:";

inline bool is_metric(std::string_view result) { return result.starts_with(metric_prefix); }

}  // namespace mantissa::nn
