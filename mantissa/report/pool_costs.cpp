// The cost of threads for a loop, measured with two of them.
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "mantissa/base/clock.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/thread_estimate.h"

namespace mantissa::inline v0 {

namespace {

using SteadyClock = std::chrono::steady_clock;

/// The median time of a loop of two blocks.
double loop_seconds(ThreadPool& pool, FunctionRef<void()> block) {
    constexpr int loops = 1000;
    std::vector<double> seconds;
    for (int loop = 0; loop < loops; ++loop) {
        const Stopwatch watch;
        pool.for_each_block(2, [&](std::int64_t, int) { block(); });
        seconds.push_back(watch.seconds());
    }
    return median(seconds);
}

}  // namespace

PoolCosts measured_pool_costs() {
    if (available_cores() < 2) return {};
    ThreadPool pool(2, 2);
    constexpr std::chrono::microseconds block{5};
    const double meeting = loop_seconds(pool, [&] {
        for (const auto end = SteadyClock::now() + block; SteadyClock::now() < end;) _mm_pause();
    });
    // Both threads write one word by turns, as threads do that take tickets.
    constexpr int writes = 200;
    std::atomic<int> word{0};
    const double by_turns = loop_seconds(pool, [&] {
        for (int i = 0; i < writes; ++i) word.fetch_add(1);
    });
    const double alone = std::chrono::duration<double>(block).count();
    return {.meeting = std::max(0.0, meeting - alone), .ticket = by_turns / (2 * writes)};
}

}  // namespace mantissa
