// The same training in several precisions, with equal weights and batches; and, where one differs from the
// first, a list of places to search for the fault. Nothing here is timed.
//
// The mean of the last steps' losses is judged, not a single loss, since the losses of two equally good
// trainings may differ for some steps and meet again. The allowed difference comes from the first precision
// itself, trained from other initial weights.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/report/report.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/schedule.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

struct ConvergeOptions {
    std::vector<Policy> policies;  ///< the first is the reference
    nn::Model model = {};
    TrainerOptions trainer = {};  ///< of all runs, except policy and loss scale
    /// Sets each training's initial weights; none: drawn from its seed.
    std::function<void(StateBlock&)> begin = {};
    std::int64_t steps = 20;
    LearningRateSchedule learning_rate = {};  ///< over `steps`
    /// The allowed difference of the mean of last losses from the first run's. Negative: the first
    /// precision's spread over `seeds` initial weights. The ladder's tolerance of the policy replaces the
    /// spread if it is larger, or if the spread exceeds the loss's fall.
    double tolerance = -1;
    int seeds = 3;                                          ///< 1: only the ladder's tolerances
    double fixed_loss_scale = 0;                            ///< for policies that need one; 0: dynamic
    std::function<void(const std::string&)> progress = {};  ///< called with the current activity
    /// The share of held-out examples that a trainer's model gets right, asked for every `validate_every`
    /// steps of each precision and after its last step. Reported, not judged.
    std::function<double(Trainer&)> accuracy = {};
    std::int64_t validate_every = 0;  ///< 0: never
};

/// A weight of one training compared with another training's.
struct WeightApart {
    std::string name;  ///< of the parameter
    std::string line;  ///< of its first use, as in "model.py:52"; empty: unknown
    double share = 0;  ///< norm of the difference over the first training's total change
};

struct ConvergedRun {
    std::string policy;
    std::vector<double> losses = {};  ///< per step, before its update; fewer if it was given up
    bool scale_at_fault = false;      ///< given up with a finite loss that overflowed when scaled
    std::string gave_up = {};         ///< why it was given up, with the first non-finite number; else empty
    double mean = 0;                  ///< of the last ConvergeReport::averaged losses
    double difference = 0;            ///< of `mean` from the first run's
    double allowed = 0;               ///< largest allowed difference
    bool undecided = false;           ///< within `allowed`, which is no less than the first loss's fall
    double furthest = 0;              ///< difference from the first run's loss at one step, signed
    std::int64_t furthest_step = 0;   ///< the step of `furthest`
    bool scaled = false;              ///< whether there is a loss scale
    double loss_scale = 1;            ///< after the last step
    std::int64_t skipped = 0;         ///< steps with gradients not finite at the scale of that step
    double lost = 0;                  ///< share of the gradients that casts made zero, at the end
    std::vector<WeightApart> weights = {};    ///< furthest from the first run's; none if given up
    std::vector<double> accuracies = {};      ///< of held-out examples
    std::vector<double> accuracy_steps = {};  ///< step of each accuracy

    bool agrees() const;
    /// The first loss minus the mean.
    double fallen() const;
};

/// The first precision from other initial weights, on the same batches.
struct SeedSpread {
    std::vector<std::uint64_t> seeds = {};  ///< of the trainings not given up, the run's own first
    std::vector<double> means = {};         ///< per seed: mean of the last losses
    double largest = 0;                     ///< largest difference of two means; 0 for one
};

struct ConvergeReport {
    ReportedModel model;
    std::int64_t steps = 0;
    std::uint64_t seed = 0;
    LearningRateSchedule learning_rate = {};
    std::int64_t averaged =
        1;  ///< losses at the end with the judged mean: a quarter of the steps, at most 20
    SeedSpread spread = {};
    std::vector<ConvergedRun> runs;

    /// Whether the first run trains, and the others agree with it.
    bool all_agree() const;
    /// Whether the first run trains, and the others agree with it or are undecided.
    bool none_differs() const;
    /// Why the first run is no reference: it was given up, or ended above its initial loss; empty: it is.
    std::string broken() const;
};

/// Throws UserError if there are fewer than two policies, or one is named twice.
void require_comparable(const std::vector<Policy>& policies);

/// Trains under one policy after another, then under the first from other seeds. Throws UserError as
/// require_comparable does, if there are no steps or no seed, or if the memory does not suffice.
ConvergeReport run_converge(Device& device, const BatchSource& batches, const ConvergeOptions& options);

/// Places to search for the fault, in order, with the runs' evidence; empty if all agree.
std::vector<std::string> where_to_look(const ConvergeReport& report);

/// A sentence about the runs that agree and that do not, with the tolerances.
std::string verdict(const ConvergeReport& report);

/// For people.
std::string converge_table(const ConvergeReport& report);
/// For machines: docs/json.md.
std::string converge_json(const ConvergeReport& report);
/// A self-contained page with the curves. `command`: the command line.
std::string converge_html(const ConvergeReport& report, const std::string& command);

}  // namespace mantissa
