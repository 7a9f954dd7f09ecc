#include "tests/support/ulp_distance.h"

#include <bit>

namespace mantissa::inline v0 {

namespace {

/// A number's place in its format, 0 being zero: magnitudes are ordered as their bits.
template <class Bits>
std::int64_t place_of(Bits bits) {
    constexpr Bits sign = Bits{1} << (sizeof(Bits) * 8 - 1);
    const auto magnitude = static_cast<std::int64_t>(bits & static_cast<Bits>(~sign));
    return (bits & sign) != 0 ? -magnitude : magnitude;
}

/// `infinity` has the bits of infinity; larger ones are NaN.
template <class Bits>
std::uint64_t distance(Bits a, Bits b, Bits infinity) {
    const std::int64_t from = place_of(a), to = place_of(b);
    const auto end = static_cast<std::int64_t>(infinity);
    if (from > end || from < -end || to > end || to < -end) return ulp_distance_of_nan;
    // Places are below 2^63, so their difference as unsigned numbers is exact.
    return from < to ? static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from)
                     : static_cast<std::uint64_t>(from) - static_cast<std::uint64_t>(to);
}

}  // namespace

std::uint64_t ulp_distance(double a, double b) {
    return distance(std::bit_cast<std::uint64_t>(a), std::bit_cast<std::uint64_t>(b),
                    std::uint64_t{0x7ff0000000000000});
}

std::uint64_t ulp_distance(float a, float b) {
    return distance(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b),
                    std::uint32_t{0x7f800000});
}

std::uint64_t ulp_distance(FP16 a, FP16 b) { return distance(a.bits, b.bits, std::uint16_t{0x7c00}); }

std::uint64_t ulp_distance(BF16 a, BF16 b) { return distance(a.bits, b.bits, std::uint16_t{0x7f80}); }

}  // namespace mantissa
