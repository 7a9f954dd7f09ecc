// The benchmark of the mixed-precision tutorial: warm-up batches with their losses, then timed iterations of
// several batches. Several precisions take turns on one state, so that a disturbance of the machine hits all
// alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/report/report.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// Size of a run; the tutorial's by default.
struct BenchSize {
    std::int64_t batch = 128;         ///< images of a batch
    std::int64_t warmup_batches = 2;  ///< not timed; their losses are shown
    std::int64_t batches = 10;        ///< of an iteration
    std::int64_t iterations = 10;

    bool operator==(const BenchSize&) const = default;
};

/// The parts of a size that may be reduced.
struct FreeBenchSize {
    bool batches = false, iterations = false;
};

struct BenchOptions {
    nn::Model model;
    /// One per precision; they differ only in policy, passes and loss scale.
    std::vector<TrainerOptions> precisions;
    BenchSize size;
    FreeBenchSize free = {};   ///< may be reduced after the warm-up to keep
    double max_seconds = 300;  ///< about this total time
    double learning_rate = 0.01;
    /// The share of the machine's fastest peak, for a rate in FLOP/s.
    std::function<double(double rate)> share_of_peak;
    /// Called before training with the state of that precision and its initial parameters.
    std::function<void(StateBlock&)> start = {};
    std::function<void(const StateBlock&)> finish = {};     ///< called with the state after the last batch
    std::function<void(const std::string&)> progress = {};  ///< called with the current activity
    /// Called with each line of the tutorial's output as soon as it is known.
    std::function<void(const std::string& precision, const std::string& line)> line = {};
    /// Called after the warm-up if the size was free to choose, with the chosen size and about the seconds it
    /// takes.
    std::function<void(const BenchSize& size, double seconds)> settled = {};
};

struct BenchResult {
    std::string precision;                  ///< the policy's name
    std::vector<double> losses = {};        ///< of the warm-up batches, each before its update
    std::vector<double> rates = {};         ///< images a second of each iteration
    double rate = 0;                        ///< mean of `rates`
    double interval = 0;                    ///< 1.96 standard deviations of `rates`
    double speedup = 1;                     ///< over the first precision
    double mfu = 0;                         ///< model FLOP/s over the machine's fastest matrix peak
    std::int64_t peak_bytes = 0;            ///< planned: state, arena and inputs
    double build_milliseconds = 0;          ///< from tracing to the plan
    std::int64_t skipped_steps = 0;         ///< skipped by the loss scale
    std::vector<std::string> kernels = {};  ///< of convolutions and matrix multiplies
};

struct BenchReport {
    Target target;
    ReportedModel model;
    std::int64_t statistics = 0;  ///< running means and variances, parameters to Keras
    std::string optimizer;
    BenchSize size;  ///< the size that was run
    std::vector<BenchResult> results;
};

/// Runs the benchmark on batches of `batches`. Throws UserError for sizes that are not positive, if the
/// memory does not suffice, or if a loss is not finite.
BenchReport run_bench(Device& device, const BatchSource& batches, const BenchOptions& options);

/// The largest of 16, 8, 4, 2 and 1 images a batch at which every precision's step fits the available memory;
/// 1 if none does. Makes no kernels and runs nothing.
std::int64_t fitting_batch(Device& device, const BenchOptions& options);

/// The largest size that takes at most `seconds`, if a batch takes `batch_seconds` in all precisions
/// together: batches an iteration are reduced first, then iterations (to 3). Parts that are not free stay.
BenchSize affordable_size(BenchSize size, const FreeBenchSize& free, double batch_seconds, double seconds);

/// The tutorial's table: a row per precision, with the A100's values where the tutorial has them.
std::string bench_table(const BenchReport& report);

/// The report as a self-contained page. `command`: the command line, for readers who want to repeat it.
std::string bench_html(const BenchReport& report, const std::string& command);

/// The report as JSON; docs/json.md describes every member.
std::string bench_json(const BenchReport& report);

}  // namespace mantissa
