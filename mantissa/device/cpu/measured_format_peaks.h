// The CPU's peaks in every number format: theoretical ones at the clock measured, and measured ones.
#pragma once

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/format_peaks.h"

namespace mantissa::inline v0::on_cpu {

/// Seconds spent on each figure, at most, about.
struct MeasuringTime {
    double unit = 2, memory = 2, cache = 1;
};

/// Measures the level's instructions. Takes a few seconds and up to 1 GB of memory.
FormatPeaks measured_format_peaks(ThreadPool& pool, Isa isa, const MeasuringTime& most = {});

/// How many cores the threads of this process may run on: hardware threads of one core count once.
int available_cores();

}  // namespace mantissa::on_cpu
