// Memory in bytes, as the system reports it. Linux only: read from /proc, the control groups and the limits
// of the process.
#pragma once

#include <cstdint>
#include <filesystem>

namespace mantissa::inline v0 {

/// The sources of the system's numbers; other folders in tests.
struct MemorySources {
    std::filesystem::path proc = "/proc";
    std::filesystem::path control_groups = "/sys/fs/cgroup";
};

/// Memory that could be used now without swapping: MemAvailable, or less where a limit leaves less. Limits of
/// every control group of version 2 or 1 that this process is in count, and of the groups above. Memory that
/// only caches files counts as left. The limits of address space and data (ulimit -v, -d) count, too.
std::int64_t available_memory(const MemorySources& sources = {});

/// Memory of this process that is resident now (VmRSS).
std::int64_t resident_memory();

/// The most that was ever resident (VmHWM).
std::int64_t peak_resident_memory();

/// Gives freed memory that is kept for later allocations back to the system.
void give_back_memory();

}  // namespace mantissa
