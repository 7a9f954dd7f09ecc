// The ladder: the same model on the same weights and batches, one rung after another, each compared with the
// first.
//
// Two phases, on one state and one arena sized for the largest rung. Losses: each rung alone trains from the
// seed. Timing: rungs take turns, step by step, with the machine's peaks measured between, so that what
// disturbs the machine disturbs all alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/report/report.h"
#include "mantissa/report/roofline.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

/// The names of all rungs, in the order of the ladder.
std::vector<std::string> ladder_rungs();

/// The rungs that a machine climbs by default: not fp16, which is bf16 with a loss scale, and
/// none below sixteen bits; tf32 only where the
/// machine multiplies it faster than FP32; FP32 with all passes (fp32-all) only where no unit multiplies BF16
/// faster; those with fused kernels only where they can be made.
std::vector<std::string> default_rungs(const Target& target);

struct LadderOptions {
    std::vector<std::string> rungs = {"fp32"};
    nn::Model model;
    TrainerOptions trainer;
    /// Gives each rung the weights that it begins with; none: they are drawn from the seed.
    std::function<void(StateBlock&)> begin = {};
    std::int64_t steps = 5;    ///< of training, from the seed, whose losses are compared
    std::int64_t repeats = 3;  ///< steps of each rung that are timed, after those
    double learning_rate = 3e-4;
    Peaks known_peaks = {};                                 ///< of this machine, measured earlier
    std::string known_from = {};                            ///< in words, as in "kept in FILE"
    std::function<void(const std::string&)> progress = {};  ///< called with what is being done
};

struct RungReport {
    std::string name;
    double milliseconds = 0;        ///< per step, median of the timed ones
    double deviation = 0;           ///< median absolute deviation of them
    double units_per_second = 0;    ///< of the model's unit: tokens, images
    double speedup = 1;             ///< over the first rung
    double step_speedup = 1;        ///< over the rung before
    double mfu = 0;                 ///< model FLOP/s over the machine's fastest matrix peak
    double share_of_unit_peak = 0;  ///< over the peak of the unit that this rung's contractions run on
    std::int64_t peak_bytes = 0;    ///< planned: state, arena and inputs
    double build_milliseconds = 0;  ///< from tracing to the plan
    std::vector<double> losses = {};
    /// How far they may lie from the first rung's; infinite where batch norms amplify every rounding.
    double loss_tolerance = 0;
    std::string policy = {};               ///< what it computes in
    std::vector<std::string> passes = {};  ///< the optional ones that it ran
    std::vector<std::string> matmul_kernels = {};
    std::vector<std::string> attention_kernels = {};  ///< empty where attention runs as its parts
    std::vector<std::string> loss_kernels = {};       ///< empty where the logits exist whole
    bool pads = false;                                ///< whether ugly sizes are looked for
    std::vector<PaddedParameter> padded = {};         ///< those found
    Roofline roofline = {};                           ///< of the last step of training
};

/// A rung that changes nothing in this model.
struct SkippedRung {
    std::string name;
    std::string reason;
};

struct LadderReport {
    Target target;
    Peaks peaks;  ///< the largest of those measured between the timed steps, and of those known before
    std::string known_from = {};  ///< where the latter come from; empty where those measured here are larger
    ReportedModel model;
    std::string optimizer;
    MemoryUse memory;                ///< of the largest rung
    std::int64_t scratch_bytes = 0;  ///< for measuring copies, where the arena is too small for it
    std::int64_t process_bytes = 0;  ///< resident before anything was allocated: program, text, plans
    std::vector<RungReport> rungs;
    std::vector<SkippedRung> skipped;

    /// The memory that the process will hold at most, as planned.
    std::int64_t planned_bytes() const { return memory.total() + scratch_bytes + process_bytes; }
};

/// How large a step of the ladder is, and about how long all of it then takes.
struct LadderSize {
    std::int64_t batch = 1;  ///< examples of a step
    double seconds = 0;      ///< of all rungs, losses and timing
    /// The size that the memory has room for, if time alone makes it fewer.
    std::int64_t max_that_fits = 1;
    double seconds_of_most = 0;
};

/// The largest of 4, 2 and 1 examples a step with which the rungs fit in the available memory and take at
/// most about so many seconds by LadderOptions::known_peaks; 1 if none does.
LadderSize ladder_size(Device& device, const LadderOptions& options, double max_seconds = 240);

/// How far losses may lie from those of FP32 over some tens of steps, under a policy or its emulation.
double loss_tolerance_of(const Policy& policy);

/// Runs the ladder on batches of LadderOptions::trainer's size. A rung that changes nothing in this model is
/// skipped, with the reason in the report. Throws UserError for an unknown rung, if the memory does not
/// suffice, or if no rung is left. Throws it, too, if a rung would run on other kernels than its own, or if
/// its losses differ from the first rung's by more than its tolerance. Losses of models with batch norms are
/// not judged.
LadderReport run_ladder(Device& device, const BatchSource& batches, const LadderOptions& options);

/// The report as a table for people.
std::string ladder_table(const LadderReport& report);

/// The report as a page that needs no other file. `command`: what was typed, for who wants it again.
std::string ladder_html(const LadderReport& report, const std::string& command);

/// The report as JSON; docs/json.md describes every member.
std::string ladder_json(const LadderReport& report);

}  // namespace mantissa
