// How kernels of few rows fetch a matrix that they read several columns of at a time.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::on_cpu {

namespace {

/// How far ahead, in bytes, what is read is fetched to L2: hardware fetches a few streams side by side, but
/// not early enough. At 4 KB memory waits, from 8 to 32 KB measured about the same (Zen 4), but not where
/// columns read side by side, of so many bytes, are more: then the last of them come ahead of the first, just
/// before they are read, which took a sixth longer.
[[gnu::always_inline]] inline std::int64_t fetched_ahead(std::int64_t side_by_side) {
    constexpr std::int64_t least = 16 << 10;
    return side_by_side > least ? side_by_side : least;
}

}  // namespace

/// Whether the matrix comes from memory, or was read just before.
enum class Fetch : std::uint8_t { no, yes };

}  // namespace mantissa::on_cpu
