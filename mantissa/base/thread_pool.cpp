#include "mantissa/base/thread_pool.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/float_environment.h"

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
/// costs the loop some 50 microseconds, a virtual machine more; between two loops of a token that is
/// generated there lie 5 to 30, of kernels too small to be shared.
constexpr std::chrono::microseconds spin{200};
/// Pauses between looks at the clock, of 10 to 60 nanoseconds each.
constexpr int pauses_a_look = 32;

/// Returns once `done` holds or the time is over; whether it holds.
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

thread_local bool inside_a_loop = false;

}  // namespace

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
    const int cores = affinity_cores();
    return std::min(cores, cgroup_cores(cores));
}

struct ThreadPool::State {
    explicit State(int thread_count) : threads(thread_count) {}

    const int threads;
    std::vector<std::thread> workers;
    std::mutex one_loop_at_a_time;

    // The loop being run. Written before `generation` is raised, read by workers after they saw it rise.
    const FunctionRef<void(std::int64_t, int)>* body = nullptr;
    std::int64_t blocks = 0;
    std::atomic<std::int64_t> next_block{0};
    std::atomic<int> working{0};
    std::exception_ptr failure;
    std::mutex failure_mutex;

    std::atomic<std::uint64_t> generation{0};
    std::atomic<bool> stopping{false};
    std::mutex sleep_mutex;
    std::condition_variable wake;

    // Switched between loops only. Each thread adds to its own part, before it says that it is done.
    bool recording = false;
    std::vector<std::vector<Work>> record;

    void take_blocks(int worker) {
        if (!recording) {
            do_blocks(worker);
            return;
        }
        const auto begin = std::chrono::steady_clock::now();
        const std::int64_t done = do_blocks(worker);
        if (done > 0)
            record[static_cast<std::size_t>(worker)].push_back(
                {worker, done, begin, std::chrono::steady_clock::now()});
    }

    /// Returns how many it did.
    std::int64_t do_blocks(int worker) {
        inside_a_loop = true;
        const FlushSubnormals flush;
        std::int64_t done = 0;
        try {
            for (std::int64_t block; (block = next_block.fetch_add(1, std::memory_order_relaxed)) < blocks;
                 ++done)
                (*body)(block, worker);
        } catch (...) {
            const std::lock_guard lock(failure_mutex);
            if (!failure) failure = std::current_exception();
            next_block.store(blocks, std::memory_order_relaxed);  // the rest is not worth starting
        }
        inside_a_loop = false;
        return done;
    }

    void wait_for_loop(std::uint64_t seen) {
        const auto called = [&] {
            return generation.load(std::memory_order_acquire) != seen || stopping.load();
        };
        if (spin_until(called)) return;
        std::unique_lock lock(sleep_mutex);
        wake.wait(lock, called);
    }

    void stop() {
        {
            const std::lock_guard lock(sleep_mutex);
            stopping.store(true);
        }
        wake.notify_all();
        for (std::thread& worker : workers) worker.join();
    }

    void serve(int worker) {
        for (std::uint64_t seen = 0;;) {
            wait_for_loop(seen);
            if (stopping.load()) return;
            seen = generation.load(std::memory_order_acquire);
            take_blocks(worker);
            working.fetch_sub(1, std::memory_order_acq_rel);
        }
    }
};

ThreadPool::ThreadPool(int threads) {
    if (threads < 1) throw UserError(fmt::format("a thread pool needs 1 thread or more, got {}", threads));
    state_ = std::make_unique<State>(threads);
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

void ThreadPool::for_each_block(std::int64_t blocks, FunctionRef<void(std::int64_t, int)> body) {
    if (blocks <= 0) return;
    if (inside_a_loop) {
        for (std::int64_t block = 0; block < blocks; ++block) body(block, 0);
        return;
    }
    State& s = *state_;
    const std::lock_guard one(s.one_loop_at_a_time);
    s.body = &body;
    s.blocks = blocks;
    s.failure = nullptr;
    s.next_block.store(0, std::memory_order_relaxed);
    // One block, or one thread: waking the others would cost more than it brings.
    const int others = blocks > 1 ? s.threads - 1 : 0;
    if (others > 0) {
        s.working.store(others, std::memory_order_relaxed);
        {
            const std::lock_guard lock(s.sleep_mutex);
            s.generation.fetch_add(1, std::memory_order_release);
        }
        s.wake.notify_all();
    }
    s.take_blocks(0);
    const auto all_done = [&] { return s.working.load(std::memory_order_acquire) == 0; };
    if (others > 0 && !spin_until(all_done))
        while (!all_done()) std::this_thread::yield();
    if (s.failure) std::rethrow_exception(s.failure);
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

}  // namespace mantissa
