// How kernels of few rows fetch a matrix that they read several columns of at a time.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::on_cpu {

/// What is read so far ahead, in bytes, to L2: hardware fetches a few streams side by side, but not early
/// enough. From 8 to 16 KB measured about the same (Zen 4); at 4 KB memory waits.
constexpr std::int64_t fetched_ahead = 8 << 10;

/// Whether the matrix comes from memory, or was read just before.
enum class Fetch : std::uint8_t { no, yes };

}  // namespace mantissa::on_cpu
