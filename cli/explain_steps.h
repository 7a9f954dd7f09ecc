// Steps that `explain` estimates, on several threads or ranks, and those that it runs for that.
#pragma once

#include <memory>
#include <string>

#include "cli/run_options.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/data/batch.h"
#include "mantissa/report/explain.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

/// Settings of a trainer under a policy, as the options have them.
TrainerOptions in_policy(const RunOptions& options, const Policy& policy, const Target& target);

/// Tokens without a text, or synthetic images: how long a step takes depends on sizes.
std::unique_ptr<const BatchSource> some_batches(const RunOptions& options, const nn::Model& model);

struct ThreadQuestion {
    double memory_rate = 0;  ///< GB/s that all threads copy at most; 0: as here
};

/// Prints tables. Throws UserError for another device than the CPU, and for a rate or a number of threads
/// that is none.
void explain_threads(const RunOptions& run, const ThreadQuestion& question);

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
