#include "mantissa/base/thread_pool.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "mantissa/base/contention.h"
#include "mantissa/base/error.h"
#include "mantissa/base/loop_recorder.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0 {

namespace {

/// The CPU quota of control group v2 in whole cores, rounded up; `fallback` where there is none.
int cgroup_cores(int fallback) {
    std::ifstream file("/sys/fs/cgroup/cpu.max");
    std::string quota;
    double period = 0;
    if (!(file >> quota >> period) || quota == "max" || period <= 0) return fallback;
    return std::max(1, static_cast<int>((std::strtod(quota.c_str(), nullptr) + period - 1) / period));
}

int affinity_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0)
        return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    return std::max(1, CPU_COUNT(&set));
}

/// How long a thread looks for the next loop before it sleeps, so that an idle pool costs nothing. Waking it
/// costs the loop some 50 microseconds, on a virtual machine more. Between two loops of a generated token lie
/// 5 to 30 microseconds, of kernels too small to be shared.
constexpr std::chrono::microseconds spin{200};
/// Pauses between looks at the clock, of 10 to 60 nanoseconds each.
constexpr int pauses_a_look = 32;

/// Tickets of a loop for each thread, if it has more blocks. Threads that take tickets from one word stand in
/// each other's way; the last ticket delays the end by 1/64 of the loop at most.
constexpr std::int64_t tickets_a_thread = 64;

/// Waits until `done` holds or the time is over; returns whether it holds.
template <class Done>
bool spin_until(const Done& done) {
    const auto end = std::chrono::steady_clock::now() + spin;
    do {
        for (int i = 0; i < pauses_a_look; ++i) {
            if (done()) return true;
            _mm_pause();
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

/// A word on which threads sleep until it changes. It may be raised by anyone.
class Bell {
  public:
    std::uint32_t count() const { return count_.load(); }

    /// Changes the word, and wakes up to `sleepers` threads.
    void ring(int sleepers) {
        change();
        wake(sleepers);
    }
    /// The halves of ring(): a thread that falls asleep in between sees the change, or is counted to wake.
    void change() { count_.fetch_add(1); }
    void wake(int sleepers) {
        if (sleepers > 0) futex(FUTEX_WAKE_PRIVATE, static_cast<std::uint32_t>(sleepers));
    }
    /// Sleeps while the word is `seen`, and sometimes returns earlier.
    void sleep(std::uint32_t seen) { futex(FUTEX_WAIT_PRIVATE, seen); }

  private:
    void futex(int operation, std::uint32_t value) {
        ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&count_), operation, value, nullptr, nullptr,
                  0);
    }

    std::atomic<std::uint32_t> count_{0};
};

thread_local bool inside_a_loop = false;

/// Marks the thread as inside a loop, with subnormals flushed.
class InsideALoop {
  public:
    InsideALoop() { inside_a_loop = true; }
    ~InsideALoop() { inside_a_loop = false; }
    InsideALoop(const InsideALoop&) = delete;
    InsideALoop& operator=(const InsideALoop&) = delete;

  private:
    const FlushSubnormals flush_;
};

using Clock = std::chrono::steady_clock;

/// Periods when control group v2 stopped this process for its quota; 0 where there is none.
std::int64_t throttled_periods() {
    std::ifstream file("/sys/fs/cgroup/cpu.stat");
    std::int64_t value = 0;
    for (std::string name; file >> name >> value;)
        if (name == "nr_throttled") return value;
    return 0;
}

}  // namespace

int available_cores() {
    const int cores = affinity_cores();
    return std::min(cores, cgroup_cores(cores));
}

int default_thread_count() {
    if (const char* text = std::getenv("OMP_NUM_THREADS"); text && *text) {
        int threads = 0;
        const char* end = text + std::strlen(text);
        const auto parsed = std::from_chars(text, end, threads);
        if (parsed.ec != std::errc{} || (parsed.ptr != end && *parsed.ptr != ',') || threads < 1)
            throw UserError(
                fmt::format("OMP_NUM_THREADS is '{}'; expected a number of threads, 1 or more", text));
        return threads;
    }
    return available_cores();
}

struct ThreadPool::State {
    State(int thread_count, int cores)
        : threads(thread_count),
          contention(std::min(thread_count, cores)),
          active(contention.threads()),
          clocks(static_cast<std::size_t>(thread_count)) {}

    const int threads;
    std::vector<std::thread> workers;
    std::mutex one_loop_at_a_time;

    // The loop being run: written before its tickets are, and kept until all of them are finished. A thread
    // that reads it and then takes a ticket of the same word has read this loop's: the word has its number.
    std::atomic<const Body*> body{nullptr};
    std::atomic<std::int64_t> blocks{0}, blocks_a_ticket{1};
    /// The number of the loop in the upper half, its tickets that nobody has taken in the lower one.
    std::atomic<std::uint64_t> tickets{0};
    std::atomic<std::uint32_t> unfinished{0};  ///< tickets
    std::exception_ptr failure;
    std::mutex failure_mutex;

    Bell called;                   ///< rung when a loop begins, and when the pool ends
    Bell ended;                    ///< rung when a loop's last ticket is finished while the caller sleeps
    std::atomic<int> sleeping{0};  ///< workers
    std::atomic<bool> caller_sleeps{false}, stopping{false};

    Contention contention;
    std::atomic<int> active;  ///< threads that run at once, the caller's included; the others sleep
    std::vector<ThreadClock> clocks;
    std::int64_t throttled = 0;  ///< the control group's count when contention was judged

    // Switched between loops only. Each thread adds to its own part before its tickets count as finished.
    std::atomic<bool> recording{false};
    std::vector<std::vector<Work>> record;

    static constexpr std::uint64_t left_mask = 0xffffffff;
    static std::uint32_t left_of(std::uint64_t word) { return static_cast<std::uint32_t>(word & left_mask); }
    static std::uint64_t loop_of(std::uint64_t word) { return word >> 32; }

    /// Takes a ticket of the loop that `word` names; returns how many were left with it, or 0 if none was.
    std::uint32_t take_ticket(std::uint64_t& word) {
        const std::uint64_t loop = loop_of(word);
        while (loop_of(word) == loop && left_of(word) > 0)
            if (tickets.compare_exchange_weak(word, word - 1)) return left_of(word--);
        return 0;
    }

    /// Takes all tickets that are left, since the rest of the loop is not worth starting; how many there
    /// were.
    std::uint32_t give_up(std::uint64_t word) {
        const std::uint64_t loop = loop_of(word);
        while (loop_of(word) == loop && left_of(word) > 0)
            if (tickets.compare_exchange_weak(word, word & ~left_mask)) return left_of(word);
        return 0;
    }

    void add_to_record(Work work) {
        work.end = Clock::now();
        if (work.blocks > 0) record[static_cast<std::size_t>(work.worker)].push_back(work);
    }

    /// Runs the blocks of tickets until none is left. A loop that has ended meanwhile has none.
    void work(int worker) {
        std::uint64_t word = tickets.load();
        const Body* run = body.load();
        const std::int64_t count = blocks.load(), share = blocks_a_ticket.load();
        const std::int64_t all = ceil_div(count, share);
        const bool recorded = recording.load();
        Work own{worker, 0, recorded ? Clock::now() : Clock::time_point{}, {}};
        std::uint32_t finished = 0;
        const InsideALoop inside;
        while (const std::uint32_t left = take_ticket(word)) {
            ++finished;
            const std::int64_t begin = (all - left) * share, end = std::min(begin + share, count);
            try {
                for (std::int64_t block = begin; block < end; ++block, ++own.blocks) (*run)(block, worker);
            } catch (...) {
                const std::lock_guard lock(failure_mutex);
                if (!failure) failure = std::current_exception();
                finished += give_up(word);
            }
        }
        if (finished == 0) return;
        if (recorded) add_to_record(own);
        // Another loop may begin from here on, as this one may be over.
        if (unfinished.fetch_sub(finished) == finished && caller_sleeps.load()) ended.ring(1);
    }

    /// Sleeps until `done` holds, which the bell tells.
    template <class Done>
    void sleep_until(Bell& bell, int thread, const Done& done) {
        ThreadClock& clock = clocks[static_cast<std::size_t>(thread)];
        clock.sleeps();
        for (std::uint32_t seen = bell.count(); !done(); seen = bell.count()) bell.sleep(seen);
        clock.wakes();
    }

    /// Returns once a loop was called behind the one that is `seen`. More threads than may run at once sleep
    /// without a look.
    void wait_for_loop(int worker, std::uint32_t seen) {
        const auto rung = [&] { return called.count() != seen; };
        if (threads - sleeping.fetch_add(1) <= active.load()) {
            sleeping.fetch_sub(1);
            if (spin_until(rung)) return;
            sleeping.fetch_add(1);
        }
        sleep_until(called, worker, rung);
        sleeping.fetch_sub(1);
    }

    void serve(int worker) {
        clocks[static_cast<std::size_t>(worker)].begin();
        for (std::uint32_t seen = 0; !stopping.load();) {
            wait_for_loop(worker, seen);
            seen = called.count();
            work(worker);
        }
    }

    void stop() {
        stopping.store(true);
        called.ring(threads);
        for (std::thread& worker : workers) worker.join();
    }

    /// Runs a loop on the caller's thread alone.
    void run_alone(std::int64_t count, const Body& run) {
        Work own{0, count, recording.load() ? Clock::now() : Clock::time_point{}, {}};
        const InsideALoop inside;
        if (LoopRecorder* const recorder = LoopRecorder::of_this_thread())
            recorder->run(count, run);
        else
            for (std::int64_t block = 0; block < count; ++block) run(block, 0);
        if (recording.load()) add_to_record(own);
    }

    /// Hands the blocks of a loop out to the caller and `others`, and returns when all are done.
    void share_out(std::int64_t count, std::int64_t share, const Body& run, int others) {
        const auto all = static_cast<std::uint32_t>(ceil_div(count, share));
        failure = nullptr;
        body.store(&run);
        blocks.store(count);
        blocks_a_ticket.store(share);
        unfinished.store(all);
        tickets.store((loop_of(tickets.load()) + 1) << 32 | all);
        called.change();
        called.wake(others - (threads - 1 - sleeping.load()));
        work(0);
        const auto done = [&] { return unfinished.load() == 0; };
        if (!spin_until(done)) {
            caller_sleeps.store(true);
            sleep_until(ended, 0, done);
            caller_sleeps.store(false);
        }
        if (failure) std::rethrow_exception(failure);
    }

    /// How long the calling thread lacked a core in loops. Its work between them counts as in its favour;
    /// nothing is known about a thread that calls for the first time.
    std::int64_t missing_of_caller() {
        ThreadClock& clock = clocks[0];
        if (clock.owner() == std::this_thread::get_id())
            return clock.take_missing(contention.since().count());
        clock.begin();
        return 0;
    }

    /// To be called behind each loop with its time: chooses anew, now and then, how many threads run at once.
    void choose_active(Clock::duration loop) {
        if (!contention.is_due(loop)) return;
        std::int64_t taken = missing_of_caller();
        for (std::size_t worker = 1; worker < clocks.size(); ++worker) taken += clocks[worker].take_missing();
        // A quota stops every thread at once, however many there are.
        const std::int64_t periods = throttled_periods();
        contention.judge(std::chrono::nanoseconds(periods == throttled ? taken : 0));
        active.store(contention.threads());
        throttled = periods;
    }
};

ThreadPool::ThreadPool(int threads, int cores) {
    if (threads < 1) throw UserError(fmt::format("a thread pool needs 1 thread or more, got {}", threads));
    state_ = std::make_unique<State>(threads, cores);
    try {
        state_->workers.reserve(static_cast<std::size_t>(threads));
        for (int worker = 1; worker < threads; ++worker)
            state_->workers.emplace_back([state = state_.get(), worker] { state->serve(worker); });
    } catch (const std::system_error& error) {
        const std::size_t started = state_->workers.size() + 1;
        state_->stop();
        throw UserError(fmt::format("of {} threads the system gave {}: {}; ask for fewer", threads, started,
                                    error.code().message()));
    }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::threads() const { return state_->threads; }

std::int64_t ThreadPool::blocks_a_ticket(std::int64_t blocks, int threads) {
    return std::max<std::int64_t>(1, blocks / (tickets_a_thread * threads));
}

void ThreadPool::for_each_block(std::int64_t blocks, Body body) {
    run(blocks, blocks_a_ticket(blocks, threads()), body);
}

void ThreadPool::for_each_in_turn(std::int64_t blocks, Body body) { run(blocks, 1, body); }

void ThreadPool::run(std::int64_t blocks, std::int64_t blocks_of_ticket, Body body) {
    if (blocks <= 0) return;
    if (inside_a_loop) {
        for (std::int64_t block = 0; block < blocks; ++block) body(block, 0);
        return;
    }
    State& s = *state_;
    const std::lock_guard one(s.one_loop_at_a_time);
    if (blocks == 1 || s.contention.cores() == 1) return s.run_alone(blocks, body);
    const auto begin = Clock::now();
    const auto others = static_cast<int>(std::min<std::int64_t>(blocks, s.active.load())) - 1;
    if (others == 0)
        s.run_alone(blocks, body);
    else
        s.share_out(blocks, blocks_of_ticket, body, others);
    s.choose_active(Clock::now() - begin);
}

void ThreadPool::record(bool on) {
    const std::lock_guard between_loops(state_->one_loop_at_a_time);
    state_->recording = on;
    state_->record.resize(static_cast<std::size_t>(state_->threads));
    // Room for the loops of a step, so that taking memory is not timed.
    if (on)
        for (std::vector<Work>& of_worker : state_->record) of_worker.reserve(1 << 12);
}

std::vector<ThreadPool::Work> ThreadPool::take_record() {
    const std::lock_guard between_loops(state_->one_loop_at_a_time);
    std::vector<Work> all;
    for (std::vector<Work>& of_worker : state_->record) {
        all.insert(all.end(), of_worker.begin(), of_worker.end());
        of_worker.clear();
    }
    return all;
}

namespace {
constexpr unsigned flush_to_zero = 0x8000;
constexpr unsigned denormals_are_zero = 0x0040;
}  // namespace

FlushSubnormals::FlushSubnormals() : saved_(_mm_getcsr()) {
    _mm_setcsr(saved_ | flush_to_zero | denormals_are_zero);
}

FlushSubnormals::~FlushSubnormals() { _mm_setcsr(saved_); }

}  // namespace mantissa
