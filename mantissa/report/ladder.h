// The ladder: one model on equal weights and batches, on one rung after another; each rung is compared with
// the first.
//
// Two phases, on one state and one arena sized for the largest rung. Losses: each rung alone trains from the
// seed. Timing: rungs take turns, step by step, and the machine's peaks are measured in between, so that a
// disturbance of the machine hits all alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/report/report.h"
#include "mantissa/report/roofline.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

/// The names of all rungs, in the ladder's order.
std::vector<std::string> ladder_rungs();

/// The rungs of a machine by default. Left out are fp16, which is bf16 with a loss scale, and rungs below
/// sixteen bits; tf32 unless the machine multiplies it faster than FP32; FP32 with all passes (fp32-all) if a
/// unit multiplies BF16 faster; rungs with fused kernels if these cannot be made.
std::vector<std::string> default_rungs(const Target& target);

struct LadderOptions {
    std::vector<std::string> rungs = {"fp32"};
    nn::Model model;
    TrainerOptions trainer;
    /// Sets each rung's initial weights; none: drawn from the seed.
    std::function<void(StateBlock&)> begin = {};
    std::int64_t steps = 5;    ///< of training from the seed; their losses are compared
    std::int64_t repeats = 3;  ///< timed steps of each rung, after the training
    double learning_rate = 3e-4;
    Peaks known_peaks = {};                                 ///< of this machine, measured earlier
    std::string known_from = {};                            ///< in words, as in "kept in FILE"
    std::function<void(const std::string&)> progress = {};  ///< called with the current activity
};

struct RungReport {
    std::string name;
    double milliseconds = 0;        ///< per step, median of the timed steps
    double deviation = 0;           ///< median absolute deviation of the timed steps
    double units_per_second = 0;    ///< of the model's unit: tokens, images
    double speedup = 1;             ///< over the first rung
    double step_speedup = 1;        ///< over the previous rung
    double mfu = 0;                 ///< model FLOP/s over the machine's fastest matrix peak
    double share_of_unit_peak = 0;  ///< over the peak of the unit of this rung's contractions
    std::int64_t peak_bytes = 0;    ///< planned: state, arena and inputs
    double build_milliseconds = 0;  ///< from tracing to the plan
    std::vector<double> losses = {};
    /// Largest allowed difference from the first rung's; infinite where batch norms amplify every rounding.
    double loss_tolerance = 0;
    std::string policy = {};               ///< policy of its arithmetic
    std::vector<std::string> passes = {};  ///< the optional passes that it ran
    std::vector<std::string> matmul_kernels = {};
    std::vector<std::string> attention_kernels = {};  ///< empty if attention runs as its parts
    std::vector<std::string> loss_kernels = {};       ///< empty if the logits exist whole
    bool pads = false;                                ///< whether it pads ugly sizes
    std::vector<PaddedParameter> padded = {};         ///< the padded ones
    Roofline roofline = {};                           ///< of the last step of training
};

/// A rung without effect on this model.
struct SkippedRung {
    std::string name;
    std::string reason;
};

struct LadderReport {
    Target target;
    Peaks peaks;                  ///< the largest, measured between the timed steps or known before
    std::string known_from = {};  ///< origin of the latter; empty if the former are larger
    ReportedModel model;
    std::string optimizer;
    MemoryUse memory;                ///< of the largest rung
    std::int64_t scratch_bytes = 0;  ///< for measuring copies, if the arena is too small
    std::int64_t process_bytes = 0;  ///< resident before any allocation: program, text, plans
    std::vector<RungReport> rungs;
    std::vector<SkippedRung> skipped;

    /// The most memory that the process will hold, as planned.
    std::int64_t planned_bytes() const { return memory.total() + scratch_bytes + process_bytes; }
};

/// Size of a step of the ladder, and about the time of the whole ladder.
struct LadderSize {
    std::int64_t batch = 1;  ///< examples of a step
    double seconds = 0;      ///< of all rungs, losses and timing
    /// The size that fits the memory, if only time makes it smaller.
    std::int64_t max_that_fits = 1;
    double seconds_of_most = 0;
};

/// The largest of 4, 2 and 1 examples a step at which the rungs fit the available memory and take at most
/// about so many seconds by LadderOptions::known_peaks; 1 if none does.
LadderSize ladder_size(Device& device, const LadderOptions& options, double max_seconds = 240);

/// The allowed difference of losses from FP32's over some tens of steps, under a policy or its emulation.
double loss_tolerance_of(const Policy& policy);

/// Runs the ladder on batches of LadderOptions::trainer's size. A rung without effect on this model is
/// skipped; the report has the reason. Throws UserError for an unknown rung, if the memory does not suffice,
/// or if no rung is left. Throws it, too, if a rung would run another rung's kernels, or if its losses differ
/// from the first rung's by more than its tolerance. Losses of models with batch norms are not judged.
LadderReport run_ladder(Device& device, const BatchSource& batches, const LadderOptions& options);

/// The report as a table for people.
std::string ladder_table(const LadderReport& report);

/// The report as a self-contained page. `command`: the command line, for readers who want to repeat it.
std::string ladder_html(const LadderReport& report, const std::string& command);

/// The report as JSON; docs/json.md describes every member.
std::string ladder_json(const LadderReport& report);

}  // namespace mantissa
