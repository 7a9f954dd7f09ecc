#include "mantissa/ranks/share_cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "mantissa/base/thread_pool.h"

namespace mantissa::inline v0 {

namespace {

void keep_to(const std::vector<int>& cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int core : cores) CPU_SET(core, &set);
    static_cast<void>(::sched_setaffinity(0, sizeof set, &set));  // else the system shares as it can
}

}  // namespace

std::vector<int> usable_cores() {
    std::vector<int> cores;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &set)) cores.push_back(core);
    return cores;
}

int share_cores(Ranks& ranks, int asked) {
    const std::vector<int> cores = usable_cores();
    std::string mine = ranks.host_of(ranks.rank());
    for (int core : cores) mine += fmt::format(" {}", core);
    const std::vector<std::string> all = ranks.gather(mine);
    // Where the launcher gave each rank cores of its own, no other has the same.
    const auto sharing = static_cast<int>(std::ranges::count(all, mine));
    const auto before = static_cast<int>(std::count(all.begin(), all.begin() + ranks.rank(), mine));
    if (asked != 0 || sharing == 1 || std::getenv("OMP_NUM_THREADS")) return asked;
    const int threads = std::max(1, default_thread_count() / sharing);
    std::vector<int> own;
    for (int i = 0; i < threads && !cores.empty(); ++i)
        own.push_back(cores[static_cast<std::size_t>(before * threads + i) % cores.size()]);
    keep_to(own);
    return threads;
}

}  // namespace mantissa
