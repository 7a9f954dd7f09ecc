// The benchmark of the mixed-precision tutorial: warm-up batches whose losses are shown, then iterations of
// so many batches whose rate is shown. In one precision, or in several that take turns on one state, so that
// what disturbs the machine disturbs all alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/report/report.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// How much is run. By default what the tutorial runs.
struct BenchSize {
    std::int64_t batch = 128;         ///< images of a batch
    std::int64_t warmup_batches = 2;  ///< not timed; the losses of these are shown
    std::int64_t batches = 10;        ///< of an iteration
    std::int64_t iterations = 10;

    bool operator==(const BenchSize&) const = default;
};

/// The parts of a size that may be made less.
struct FreeBenchSize {
    bool batches = false, iterations = false;
};

struct BenchOptions {
    nn::Model model;
    /// One for each precision. They differ in policy, passes and loss scale alone.
    std::vector<TrainerOptions> precisions;
    BenchSize size;
    FreeBenchSize free = {};   ///< what the last warm-up batches may make less, so that
    double max_seconds = 300;  ///< all takes about so long
    double learning_rate = 0.01;
    /// The share of the machine's fastest peak that a rate in FLOP/s is.
    std::function<double(double rate)> share_of_peak;
    /// Called before anything is trained with the state of that precision, its parameters drawn.
    std::function<void(StateBlock&)> start = {};
    std::function<void(const StateBlock&)> finish = {};     ///< called with the state after the last batch
    std::function<void(const std::string&)> progress = {};  ///< called with what is being done
    /// Called with each line of the tutorial's output as it is known.
    std::function<void(const std::string& precision, const std::string& line)> line = {};
    /// Called after the warm-up, if anything of the size was free to choose. It gets the chosen size and
    /// about how many seconds that takes.
    std::function<void(const BenchSize& size, double seconds)> settled = {};
};

struct BenchResult {
    std::string precision;                  ///< the policy's name
    std::vector<double> losses = {};        ///< of the warm-up batches, each before its update
    std::vector<double> rates = {};         ///< images a second of each iteration
    double rate = 0;                        ///< their mean
    double interval = 0;                    ///< 1.96 standard deviations of them
    double speedup = 1;                     ///< over the first precision
    double mfu = 0;                         ///< model FLOP/s over the machine's fastest matrix peak
    std::int64_t peak_bytes = 0;            ///< planned: state, arena and inputs
    double build_milliseconds = 0;          ///< from tracing to the plan
    std::int64_t skipped_steps = 0;         ///< which the loss scale made skip
    std::vector<std::string> kernels = {};  ///< of convolutions and matrix multiplies
};

struct BenchReport {
    Target target;
    ReportedModel model;
    std::int64_t statistics = 0;  ///< running means and variances, which Keras counts as parameters
    std::string optimizer;
    BenchSize size;  ///< that was run
    std::vector<BenchResult> results;
};

/// Runs the benchmark on batches of `batches`. Throws UserError for sizes that are not positive, if the
/// memory does not suffice, or if a loss is not finite.
BenchReport run_bench(Device& device, const BatchSource& batches, const BenchOptions& options);

/// The largest of 16, 8, 4, 2 and 1 images a batch whose step fits the memory that is available in every
/// precision; 1 if none does. Makes no kernels and runs nothing.
std::int64_t fitting_batch(Device& device, const BenchOptions& options);

/// The largest size that takes at most so many seconds where a batch takes `batch_seconds`, in all
/// precisions: as many batches an iteration, then as many iterations (3 at least). What is not free stays.
BenchSize affordable_size(BenchSize size, const FreeBenchSize& free, double batch_seconds, double seconds);

/// The tutorial's table: a row a precision, with the A100's beside, where the tutorial has them.
std::string bench_table(const BenchReport& report);

/// The report as a page that needs no other file. `command`: what was typed, for readers who want to run it
/// again.
std::string bench_html(const BenchReport& report, const std::string& command);

/// The report as JSON; docs/json.md describes every member.
std::string bench_json(const BenchReport& report);

}  // namespace mantissa
