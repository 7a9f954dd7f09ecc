#include "mantissa/data/held_out.h"

#include <cmath>
#include <span>

#include "mantissa/base/checksum.h"

namespace mantissa::inline v0 {

std::uint64_t place_by_name(std::string_view name) { return checksum_of(std::as_bytes(std::span(name))); }

bool is_held_out(std::uint64_t place, double part) {
    return static_cast<double>(place >> 11) < part * std::ldexp(1.0, 53);
}

}  // namespace mantissa
