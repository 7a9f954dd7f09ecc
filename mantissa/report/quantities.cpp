#include "mantissa/report/quantities.h"

#include <fmt/format.h>

namespace mantissa::inline v0 {

double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

double gigaflops(std::int64_t flops) { return static_cast<double>(flops) / 1e9; }

std::string grouped(double value) {
    std::string digits = fmt::format("{:.0f}", value);
    const std::size_t first = value < 0 ? 1 : 0;
    for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
    return digits;
}

std::string duration_text(double seconds) {
    if (seconds < 10) return fmt::format("{:.1f} s", seconds);
    const auto whole = static_cast<std::int64_t>(seconds + 0.5);
    if (whole < 60) return fmt::format("{} s", whole);
    if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
    return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string times(double factor) { return fmt::format("{:.2f}x", factor); }

std::string megabytes_text(double bytes) { return grouped(bytes / 1e6) + " MB"; }

std::string milliseconds_text(double value) {
    return value < 1 ? fmt::format("{:#.3g}", value) : with_decimals(value, 1);
}

std::string with_decimals(double value, int decimals) { return fmt::format("{:.{}f}", value, decimals); }

}  // namespace mantissa
