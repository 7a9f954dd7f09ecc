// Names of a model's metrics in graphs: results with a prefix that no other result has.
#pragma once

#include <string_view>

namespace mantissa::inline v0::nn {

inline constexpr std::string_view metric_prefix = "metric:";

inline bool is_metric(std::string_view result) { return result.starts_with(metric_prefix); }

}  // namespace mantissa::nn
