// The same training in several precisions: same weights, same batches, losses held against those of the
// first; and, where one leaves it, the order in which to look for the fault. Nothing here is timed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/report/reported_model.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

struct ConvergeOptions {
    std::vector<Policy> policies;  ///< the first is what the others are held against
    nn::Model model = {};
    TrainerOptions trainer = {};  ///< of all; policy and loss scale apart
    std::int64_t steps = 20;
    double learning_rate = 1e-3;
    double tolerance = -1;        ///< of losses; negative: of each policy its own, as the ladder has it
    double fixed_loss_scale = 0;  ///< for policies that need one; 0: dynamic
    std::function<void(const std::string&)> progress = {};  ///< called with what is being done
};

struct ConvergedRun {
    std::string policy;
    std::vector<double> losses = {};  ///< of each step before its update; fewer where it was given up
    std::string gave_up = {};         ///< why, with the first number that was not finite; empty if it was not
    double tolerance = 0;
    double furthest = 0;             ///< from the first run's loss at the same step, with its sign
    std::int64_t furthest_step = 0;  ///< where that was
    bool scaled = false;             ///< whether there is a loss scale
    double loss_scale = 1;           ///< after the last step
    std::int64_t skipped = 0;        ///< steps whose gradients were not finite at the scale of the moment
    double lost = 0;  ///< share of the gradients that became zero when they were cast, at the end

    bool agrees() const;
    /// The mean of up to the last 20 losses.
    double last_mean() const;
};

struct ConvergeReport {
    ReportedModel model;
    std::int64_t steps = 0;
    std::uint64_t seed = 0;
    double learning_rate = 0;
    std::vector<ConvergedRun> runs;
};

/// Trains under one policy after another. Throws UserError if there are fewer than two policies or no steps,
/// if one is named twice, or if the memory does not suffice.
ConvergeReport run_converge(Device& device, const BatchSource& batches, const ConvergeOptions& options);

/// Where to look for the fault, in order, with what the runs say of each place; empty if all agree.
std::vector<std::string> where_to_look(const ConvergeReport& report);

/// For people.
std::string converge_table(const ConvergeReport& report);
/// For machines: docs/json.md.
std::string converge_json(const ConvergeReport& report);
/// A page that needs no other file, with the curves. `command`: what was typed.
std::string converge_html(const ConvergeReport& report, const std::string& command);

}  // namespace mantissa
