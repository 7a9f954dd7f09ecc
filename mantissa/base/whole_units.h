// Sizes in whole units: blocks, panels, cache lines.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mantissa::inline v0 {

/// How many parts of `part` hold `size`: the quotient, rounded up.
constexpr std::int64_t ceil_div(std::int64_t size, std::int64_t part) { return (size + part - 1) / part; }

/// `size`, filled up to a whole unit.
constexpr std::int64_t align_up(std::int64_t size, std::int64_t unit) { return ceil_div(size, unit) * unit; }

/// Bytes, filled up to whole cache lines: data behind them shares no line with them.
constexpr std::int64_t in_lines(std::int64_t bytes) { return align_up(bytes, 64); }

}  // namespace mantissa
