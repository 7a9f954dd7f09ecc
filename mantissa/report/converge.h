// The same training in several precisions: same weights, same batches; and, where one leaves the first, the
// order in which to look for the fault. Nothing here is timed.
//
// Judged is where a training arrives: the mean of the last steps' losses, not any one of them, since the
// losses of two trainings that are equally good part for some steps and meet again. How far they may lie
// apart says the first precision itself, from other initial weights.
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
    std::vector<Policy> policies;  ///< the first is what the others are held against
    nn::Model model = {};
    TrainerOptions trainer = {};  ///< of all; policy and loss scale apart
    /// Gives each training the weights that it begins with; none: they are drawn from its seed.
    std::function<void(StateBlock&)> begin = {};
    std::int64_t steps = 20;
    LearningRateSchedule learning_rate = {};  ///< of so many steps
    /// How far the mean of the last losses may lie from the first's; negative: as far as those of the first
    /// precision lie apart for `seeds` initial weights, or the ladder's tolerance of the policy if that is
    /// more, or seeds end further apart than the loss has fallen.
    double tolerance = -1;
    int seeds = 3;                                          ///< 1: the ladder's tolerances alone
    double fixed_loss_scale = 0;                            ///< for policies that need one; 0: dynamic
    std::function<void(const std::string&)> progress = {};  ///< called with what is being done
    /// The share of held-out examples that a trainer's model gets right, and how often it is asked for: after
    /// every so many steps of each precision, and after its last. Reported and not judged.
    std::function<double(Trainer&)> accuracy = {};
    std::int64_t validate_every = 0;  ///< 0: never
};

/// A weight of one training beside that of another.
struct WeightApart {
    std::string name;  ///< of the parameter
    std::string line;  ///< that first takes it, as in "model.py:52"; empty: unknown
    double share = 0;  ///< the norm of the difference, over how far the first training moved it
};

struct ConvergedRun {
    std::string policy;
    std::vector<double> losses = {};  ///< of each step before its update; fewer where it was given up
    bool scale_at_fault = false;      ///< that it was given up: the loss was finite, and times the scale not
    std::string gave_up = {};         ///< why, with the first number that was not finite; empty if it was not
    double mean = 0;                  ///< of the last ConvergeReport::averaged losses
    double difference = 0;            ///< of that from the first run's
    double allowed = 0;               ///< how large that may be
    bool undecided = false;  ///< it is not larger, but allowed is as much as the first's loss has fallen
    double furthest = 0;     ///< from the first run's loss at the same step, with its sign
    std::int64_t furthest_step = 0;  ///< where that was
    bool scaled = false;             ///< whether there is a loss scale
    double loss_scale = 1;           ///< after the last step
    std::int64_t skipped = 0;        ///< steps whose gradients were not finite at the scale of the moment
    double lost = 0;  ///< share of the gradients that became zero when they were cast, at the end
    std::vector<WeightApart> weights = {};    ///< that end furthest from the first run's; none where given up
    std::vector<double> accuracies = {};      ///< of held-out examples
    std::vector<double> accuracy_steps = {};  ///< after which each was found

    bool agrees() const;
    /// By how much the mean lies below the first loss.
    double fallen() const;
};

/// The first precision from other initial weights, on the same batches.
struct SeedSpread {
    std::vector<std::uint64_t> seeds = {};  ///< of the trainings that were not given up, the run's own first
    std::vector<double> means = {};         ///< of their last losses
    double largest = 0;                     ///< difference of two of them; 0 of one
};

struct ConvergeReport {
    ReportedModel model;
    std::int64_t steps = 0;
    std::uint64_t seed = 0;
    LearningRateSchedule learning_rate = {};
    std::int64_t averaged =
        1;  ///< losses at the end whose mean is judged: a quarter of the steps, at most 20
    SeedSpread spread = {};
    std::vector<ConvergedRun> runs;

    /// The first trains, and the others agree with it.
    bool all_agree() const;
    /// The first trains, and the others agree with it or are undecided.
    bool none_differs() const;
    /// Why nothing can be held against the first run: that it was given up, or ended above the loss that it
    /// began with; empty if it trains.
    std::string broken() const;
};

/// Throws UserError if there are fewer than two policies, or one is named twice.
void require_comparable(const std::vector<Policy>& policies);

/// Trains under one policy after another, then under the first from other seeds. Throws UserError as
/// require_comparable does, if there are no steps or no seed, or if the memory does not suffice.
ConvergeReport run_converge(Device& device, const BatchSource& batches, const ConvergeOptions& options);

/// Where to look for the fault, in order, with what the runs say of each place; empty if all agree.
std::vector<std::string> where_to_look(const ConvergeReport& report);

/// A sentence about the runs that agree and those that do not, with what was compared.
std::string verdict(const ConvergeReport& report);

/// For people.
std::string converge_table(const ConvergeReport& report);
/// For machines: docs/json.md.
std::string converge_json(const ConvergeReport& report);
/// A page that needs no other file, with the curves. `command`: what was typed.
std::string converge_html(const ConvergeReport& report, const std::string& command);

}  // namespace mantissa
