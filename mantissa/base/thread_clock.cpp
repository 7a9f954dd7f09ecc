#include "mantissa/base/thread_clock.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace mantissa::inline v0 {

std::int64_t ThreadClock::used(std::int64_t now) const {
    const std::int64_t since = asleep_since_.load();
    timespec time{};
    ::clock_gettime(cpu_, &time);
    return slept_.load() + (since == 0 ? 0 : now - since) + time.tv_sec * std::int64_t{1'000'000'000} +
           time.tv_nsec;
}

void ThreadClock::begin() {
    owner_ = std::this_thread::get_id();
    if (::pthread_getcpuclockid(::pthread_self(), &cpu_) != 0) return known_.store(false);
    taken_at_ = now();
    used_then_ = used(taken_at_);
    known_.store(true);
}

std::int64_t ThreadClock::take_missing(std::int64_t most) {
    if (!known_.load()) return 0;
    const std::int64_t at = now(), all = used(at);
    const std::int64_t wall = std::min(most, at - std::exchange(taken_at_, at));
    return std::max<std::int64_t>(0, wall - (all - std::exchange(used_then_, all)));
}

}  // namespace mantissa
