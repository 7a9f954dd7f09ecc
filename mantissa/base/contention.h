// Contention: how many threads of a pool to use while other programs take some of its cores, and how long a
// thread wanted a core and had none.
//
// A loop ends with its slowest thread, so all threads wait for one that has lost its core. If cores were
// taken from n threads for a share s of the time, n threads do at least n (1 - s) of one thread's work. With
// a core for each, n - 1 threads do n - 1. So one thread fewer is better from s = 1/n on. Whether the cores
// are free again is found by trying, seldom enough to cost about 2 %.
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
    /// Called by the thread itself: from now on the clock is this thread's.
    void begin();
    std::thread::id owner() const { return owner_; }

    /// The thread calls sleeps() before it goes to sleep, and wakes() after.
    void sleeps() { asleep_since_.store(now()); }
    void wakes() { slept_ += now() - asleep_since_.exchange(0); }

    /// How long the thread lacked a core since the last call or, before the first, since it began; of at most
    /// `most` of that time. 0 for a thread that has not begun.
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

class Contention {
  public:
    using Duration = std::chrono::steady_clock::duration;

    /// `cores`: threads to use where nobody disturbs.
    explicit Contention(int cores) : cores_(cores), threads_(cores) {}

    int cores() const { return cores_; }
    /// Threads to use now.
    int threads() const { return threads_; }

    /// Whether it is time to measure and judge. The caller calls it behind each loop, with the loop's time.
    bool is_due(Duration loop);

    /// Time in loops since the last judgement.
    Duration since() const { return since_; }
    /// Judges that time, for which cores were taken from the threads for `taken` in all.
    void judge(Duration taken);

  private:
    const int cores_;
    int threads_;
    Duration since_{};  ///< time in loops since the last judgement
    Duration rest_ = min_rest;
    bool trying_ = false;  ///< whether a thread more than before is being tried

    /// Ten time slices of a busy machine.
    static constexpr Duration window = std::chrono::milliseconds(40);
    static constexpr Duration min_rest = std::chrono::milliseconds(200), max_rest = std::chrono::seconds(3);
};

}  // namespace mantissa
