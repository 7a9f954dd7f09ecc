// Quantities as reports print them.
#pragma once

#include <cstdint>
#include <string>

namespace mantissa::inline v0 {

double megabytes(std::int64_t bytes);
double gigaflops(std::int64_t flops);

/// 20232 as "20,232".
std::string grouped(double value);

/// Seconds as "41 s", "8 min 3 s", "2 h 5 min".
std::string duration_text(double seconds);

/// 0.125 as "12.5 %".
std::string percent(double share);

}  // namespace mantissa
