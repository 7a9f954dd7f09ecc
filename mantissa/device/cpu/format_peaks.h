// The CPU's peaks in every number format: what its units could do at the clock measured, and what they do.
#pragma once

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/format_peaks.h"

namespace mantissa::cpu {

/// The instructions are those of the level. Takes a few seconds and up to 1 GB of memory.
FormatPeaks measured_format_peaks(ThreadPool& pool, Isa isa);

/// How many cores the threads of this process may run on: hardware threads of one core count once.
int available_cores();

/// The smallest rate of issue that a core may have, 1/16, 1/8, 1/4, 1/2, 1, 2, 3 or 4 instructions a cycle,
/// that is no less than a measured one. The clock may have been read 4 % low.
double possible_issue(double measured);

}  // namespace mantissa::cpu
