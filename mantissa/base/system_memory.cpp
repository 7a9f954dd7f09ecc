#include "mantissa/base/system_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace mantissa::inline v0 {

namespace {

/// The value of a line "Key:   1234 kB", in bytes; 0 if there is no such line.
std::int64_t kilobyte_line(const char* path, const std::string& key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
    return 0;
}

/// The number in a file that holds one number; `fallback` where there is none ("max", or no file).
std::int64_t number_in(const char* path, std::int64_t fallback) {
    std::ifstream file(path);
    std::int64_t value = 0;
    return file >> value ? value : fallback;
}

}  // namespace

std::int64_t available_memory() {
    const std::int64_t machine = kilobyte_line("/proc/meminfo", "MemAvailable");
    const std::int64_t limit = number_in("/sys/fs/cgroup/memory.max", -1);
    if (limit < 0) return machine;
    const std::int64_t used = number_in("/sys/fs/cgroup/memory.current", 0);
    return std::min(machine, std::max<std::int64_t>(0, limit - used));
}

std::int64_t resident_memory() { return kilobyte_line("/proc/self/status", "VmRSS"); }

std::int64_t peak_resident_memory() { return kilobyte_line("/proc/self/status", "VmHWM"); }

}  // namespace mantissa
