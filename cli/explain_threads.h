// `explain --threads`: how long a step would take on so many threads, from its blocks as one thread runs
// them, and what does not scale.
#pragma once

#include "cli/run_options.h"

namespace mantissa::cli {

struct ThreadQuestion {
    double memory_rate = 0;  ///< GB/s that all threads copy at most; 0: as here
};

/// Prints tables. Throws UserError for another device than the CPU, and for a rate or a number of threads
/// that is none.
void explain_threads(const RunOptions& run, const ThreadQuestion& question);

}  // namespace mantissa::cli
