// Steps that `explain` estimates, on several threads or ranks, and steps that it runs for the estimate.
#pragma once

#include <memory>
#include <string>

#include "cli/run_options.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/data/batch.h"
#include "mantissa/report/explain.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

/// Settings of a trainer under a policy, from the options.
TrainerOptions in_policy(const RunOptions& options, const Policy& policy, const Target& target);

/// Tokens without a text, or synthetic images: a step's time depends on sizes.
std::unique_ptr<const BatchSource> some_batches(const RunOptions& options, const nn::Model& model);

struct ThreadQuestion {
    double memory_rate = 0;  ///< GB/s of copies on all threads, at most; 0: measured here
};

/// Prints tables. Throws UserError for another device than the CPU, and for an invalid rate or number of
/// threads.
void explain_threads(const RunOptions& run, const ThreadQuestion& question);

struct RankQuestion {
    int ranks = 0;                      ///< 0: not requested
    double link = 10;                   ///< GB/s of a rank, each way
    double latency = 50;                ///< microseconds of an exchange
    std::string reduce_dtype = "fp32";  ///< format of gradients on the link
    std::string on;                     ///< an accelerator with published peaks; empty: this machine's
    bool measures = false;              ///< whether steps run here instead of estimates from peaks
};

/// Prints tables. `peaks`: of the machine, measured. Throws UserError for invalid numbers of ranks or of the
/// link.
void explain_ranks(const RunOptions& run, const RankQuestion& question, FunctionRef<Peaks(Device&)> peaks);

}  // namespace mantissa::cli
