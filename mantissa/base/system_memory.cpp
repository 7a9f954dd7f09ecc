#include "mantissa/base/system_memory.h"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

/// The value of a line "Key:   1234 kB", in bytes; 0 if there is no such line.
std::int64_t kilobyte_line(const fs::path& path, const std::string& key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
    return 0;
}

/// The number in a file that holds one number; `fallback` where there is none ("max", or no file).
std::int64_t number_in(const fs::path& path, std::int64_t fallback) {
    std::ifstream file(path);
    std::int64_t value = 0;
    return file >> value ? value : fallback;
}

/// The sum of the values of lines "key 1234" with one of these keys.
std::int64_t sum_of_lines(const fs::path& path, std::initializer_list<const char*> keys) {
    std::ifstream file(path);
    std::int64_t sum = 0, value = 0;
    for (std::string name; file >> name >> value;)
        if (std::ranges::find(keys, name) != keys.end()) sum += value;
    return sum;
}

/// How the two versions call the files of a group.
struct GroupFiles {
    const char *limit, *used;
    std::initializer_list<const char*> caches;
};
constexpr auto caches_2 = {"inactive_file", "active_file"};
constexpr auto caches_1 = {"total_inactive_file", "total_active_file"};

std::int64_t left_by_group(const fs::path& group, const GroupFiles& files) {
    const std::int64_t limit = number_in(group / files.limit, no_limit);
    if (limit == no_limit) return no_limit;
    // The kernel gives back file caches before it refuses memory.
    const std::int64_t used =
        number_in(group / files.used, 0) - sum_of_lines(group / "memory.stat", files.caches);
    return std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, used));
}

/// The least that a group and the groups above it leave. Where the path of a group is another namespace's,
/// some of its folders do not exist; the existing ones count.
std::int64_t left_by_groups(const fs::path& root, const fs::path& group, const GroupFiles& files) {
    std::int64_t left = left_by_group(root, files);
    fs::path folder = root;
    for (const fs::path& part : group.relative_path()) {
        folder /= part;
        left = std::min(left, left_by_group(folder, files));
    }
    return left;
}

/// Lines of /proc/self/cgroup: "0::/path" of version 2, "5:cpu,memory:/path" of version 1.
std::int64_t left_by_control_groups(const MemorySources& sources) {
    // A container may see its own group at the root and nothing of its path.
    std::int64_t left = left_by_group(sources.control_groups, {"memory.max", "memory.current", caches_2});
    std::ifstream file(sources.proc / "self" / "cgroup");
    for (std::string line; std::getline(file, line);) {
        std::istringstream parts(line);
        std::string number, controllers, path;
        if (!std::getline(parts, number, ':') || !std::getline(parts, controllers, ':') ||
            !std::getline(parts, path))
            continue;
        if (controllers.empty())
            left = std::min(left, left_by_groups(sources.control_groups, path,
                                                 {"memory.max", "memory.current", caches_2}));
        else if (("," + controllers + ",").find(",memory,") != std::string::npos)
            left =
                std::min(left, left_by_groups(sources.control_groups / "memory", path,
                                              {"memory.limit_in_bytes", "memory.usage_in_bytes", caches_1}));
    }
    return left;
}

std::int64_t left_by_limit(int resource, std::int64_t used) {
    rlimit limit{};
    if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY)
        return no_limit;
    const auto most = static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, no_limit));
    return std::max<std::int64_t>(0, most - used);
}

}  // namespace

std::int64_t available_memory(const MemorySources& sources) {
    const fs::path status = sources.proc / "self" / "status";
    return std::min({kilobyte_line(sources.proc / "meminfo", "MemAvailable"), left_by_control_groups(sources),
                     left_by_limit(RLIMIT_AS, kilobyte_line(status, "VmSize")),
                     left_by_limit(RLIMIT_DATA, kilobyte_line(status, "VmData"))});
}

std::int64_t resident_memory() { return kilobyte_line("/proc/self/status", "VmRSS"); }

std::int64_t peak_resident_memory() { return kilobyte_line("/proc/self/status", "VmHWM"); }

void give_back_memory() { ::malloc_trim(0); }

}  // namespace mantissa
