// What the system says of memory, in bytes. Linux only: read from /proc and the control group.
#pragma once

#include <cstdint>

namespace mantissa::inline v0 {

/// Memory that could be used now without swapping: MemAvailable, cut to what the control group leaves.
std::int64_t available_memory();

/// Memory of this process that is resident now (VmRSS).
std::int64_t resident_memory();

/// The most that was ever resident (VmHWM).
std::int64_t peak_resident_memory();

}  // namespace mantissa
