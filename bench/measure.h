// Shared by the benchmark programs: settings from the environment, processor time, medians, the machine's
// copy.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/device/cpu/peaks.h"

namespace mantissa::on_cpu {

/// The value of the environment variable, or `standard` if it is not set.
inline int option(const char* name, int standard) {
    const char* const text = std::getenv(name);
    return text ? std::atoi(text) : standard;
}

/// Seconds of processor time, of all threads.
inline double cpu_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Time for one thread by its own CPU clock, which other programs do not stretch (though they take memory
/// bandwidth and cache); for several threads by the wall clock.
inline double seconds_now(int threads) {
    timespec now{};
    ::clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double seconds_of(int threads, const std::function<void()>& work) {
    const double start = seconds_now(threads);
    work();
    return seconds_now(threads) - start;
}

inline double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

/// Bytes a second, reads and writes counted, of the better of plain and streaming copies.
inline double copy_bandwidth(ThreadPool& pool) {
    static Buffer scratch = [] {
        Buffer memory(std::size_t{256} << 20);
        std::ranges::fill(memory.as<std::byte>(), std::byte{1});  // pages never written have no memory
        return memory;
    }();
    return measured_copy_bandwidth(pool, scratch.as<std::byte>()).best();
}

}  // namespace mantissa::on_cpu
