// `explain --ranks`: how long a step would take on so many ranks over a link, and with which buckets and
// micro-batches it is fastest.
#pragma once

#include <string>

#include "cli/run_options.h"
#include "mantissa/base/function_ref.h"

namespace mantissa::cli {

struct RankQuestion {
    int ranks = 0;                      ///< 0: it was not asked
    double link = 10;                   ///< GB/s of a rank, each way
    double latency = 50;                ///< microseconds of an exchange
    std::string reduce_dtype = "fp32";  ///< in which gradients travel
    std::string on;         ///< an accelerator whose published peaks are taken; empty: this machine's
    bool measures = false;  ///< whether steps are run here, rather than estimated from peaks
};

/// Prints tables. `peaks`: of the machine, measured. Throws UserError for numbers that are no ranks, or no
/// link.
void explain_ranks(const RunOptions& run, const RankQuestion& question, FunctionRef<Peaks(Device&)> peaks);

}  // namespace mantissa::cli
