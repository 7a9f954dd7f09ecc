#include "mantissa/base/contention.h"

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

bool Contention::is_due(Duration loop) {
    since_ += loop;
    return since_ >= (threads_ < cores_ && !trying_ ? rest_ : window);
}

void Contention::judge(Duration taken) {
    const bool disturbed = threads_ > 1 && taken * threads_ > since_;
    since_ = {};
    if (disturbed) {
        // A thread that was tried in vain is tried again later and later.
        rest_ = trying_ ? std::min(2 * rest_, max_rest) : min_rest;
        --threads_;
    }
    trying_ = !disturbed && threads_ < cores_;
    if (trying_) ++threads_;
}

}  // namespace mantissa
