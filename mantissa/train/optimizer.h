// An optimizer as a value, and the update of all parameters by it, recorded in the graph: skipped as a whole
// when anything is not finite. What all optimizers share is here; each is a file of its own (adamw.h, sgd.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/configuration.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/train/loss_scale.h"

namespace mantissa::inline v0 {

/// What the updates of all parameters share; scalars.
struct OptimizerStep {
    Tensor learning_rate = {};   // f32
    Tensor step = {};            // f64, counted from 1; empty unless the optimizer counts its steps
    Tensor gradient_scale = {};  // f32: every gradient times this is the one to use
    Tensor apply = {};           // bool: where it is false all stays as it was, to the bit
};

/// What an update is of: a parameter, or a rank's part of it.
struct UpdatedParameter {
    State state;                              ///< of the parameter
    Tensor value, gradient;                   ///< of one type: the parameter's, or that of a part of it
    std::optional<double> weight_decay = {};  ///< its group's, in place of the optimizer's
    bool is_part() const { return value.shape() != state.type.shape; }
};

/// Whether some of a parameter's elements may be updated without the others.
using MayBeCut = std::function<bool(const Graph&, const State& parameter)>;

/// Parameters with settings of their own, as PyTorch's parameter groups.
struct ParameterGroup {
    std::string pattern;              ///< of their names (base/name_pattern.h): "head.*", "*.bias"
    double learning_rate_factor = 1;  ///< times the learning rate of the step
    /// Of all of them, whatever their shapes; none: as the optimizer has it.
    std::optional<double> weight_decay = {};
};

struct Optimizer {
    std::string name;             ///< "adamw": its states begin with it
    Configuration configuration;  ///< its numbers, which must be the same to resume
    bool counts_steps = false;    ///< keeps the state NAME.step
    /// Records the update of one parameter and of the states that the optimizer keeps for it. Returns the
    /// parameter's new value.
    std::function<Tensor(Graph&, const UpdatedParameter&, const OptimizerStep&)> update;
    /// What may not be is updated by every rank.
    MayBeCut may_be_cut = [](const Graph&, const State&) { return true; };
    /// The gradient is scaled down to this norm; 0: never. As in PyTorch: by clip / (norm + 1e-6) if that is
    /// below 1.
    double clip = 0;
    /// A parameter belongs to the first whose pattern its name matches.
    std::vector<ParameterGroup> groups = {};
};

/// The same with gradients scaled down to this norm.
Optimizer clipped(Optimizer optimizer, double norm);

/// The same with these groups. Throws UserError, naming the pattern, for a factor or a decay that is negative
/// or not finite in FP32. A group to which no parameter belongs is an error of the plan.
Optimizer grouped(Optimizer optimizer, std::vector<ParameterGroup> groups);

/// Adds the input `learning_rate` (f32 scalar); the states of the optimizer; and the results `loss`,
/// `gradient_norm` (f32 scalars) and `applied` (bool). If the loss or any element of a gradient is not
/// finite, nothing is updated, running statistics among it, to the bit, no step is counted, and `applied` is
/// false. Throws UserError for a clip that is negative or not finite in FP32. Gradients that come with a loss
/// scale are divided by it; see loss_scale.h. Of gradients that are parts, parts of parameters are updated,
/// and put together over the ranks.
TraceUpdate optimizer_update(const Optimizer& optimizer, const LossScaleOptions& scaling = {},
                             const Distribution& distribution = {});

// For the files of optimizers.

/// A state of the optimizer, starting at zero: its name is PREFIX.PARAMETER, its type that of what is
/// updated.
Tensor optimizer_state(Graph& graph, const std::string& prefix, const UpdatedParameter& parameter);

/// How much of a parameter decays. Matrices (and tables) only: no biases and weights of norms.
struct WeightDecay {
    double rate = 0;
    bool matrices_only = false;
    double of(const UpdatedParameter& parameter) const;
};

/// Whether a number is positive and finite in FP32, in which updates are computed: a subnormal one is flushed
/// to the 0 that it is not.
bool is_positive_in_fp32(double number);

/// Throws UserError, "WHAT, got GOT", unless it holds.
void require_option(bool holds, const char* what, double got);
/// Throws UserError for a decay that is negative or not finite in FP32.
void require_weight_decay(double rate);

}  // namespace mantissa
