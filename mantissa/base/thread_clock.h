// How long a thread wanted a core and had none: the time that it neither slept of its own accord nor
// computed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>
#include <thread>

namespace mantissa::inline v0 {

/// Times are nanoseconds. A thread begins its clock and says when it sleeps; another may read it.
class ThreadClock {
  public:
    /// Called by the thread itself: from now on it is the one that is looked at.
    void begin();
    std::thread::id owner() const { return owner_; }

    /// The thread calls sleeps() before it goes to sleep, and wakes() after.
    void sleeps() { asleep_since_.store(now()); }
    void wakes() { slept_ += now() - asleep_since_.exchange(0); }

    /// How long the thread lacked a core since the last call or, before the first, since it began; of at most
    /// `most` of that time. 0 of a thread that has not begun.
    std::int64_t take_missing(std::int64_t most = std::numeric_limits<std::int64_t>::max());

    static std::int64_t now() {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(
                   std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }

  private:
    /// The time that it slept or had a core.
    std::int64_t used(std::int64_t now) const;

    std::thread::id owner_;
    clockid_t cpu_{};
    std::atomic<bool> known_{false};
    std::atomic<std::int64_t> slept_{0}, asleep_since_{0};
    std::int64_t taken_at_ = 0, used_then_ = 0;
};

}  // namespace mantissa
