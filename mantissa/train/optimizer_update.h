// The update of all parameters by an optimizer, recorded in the graph: skipped as a whole when anything is
// not finite. What all optimizers share is here; each is a file of its own (adamw.cpp, sgd.cpp, muon.cpp).
#pragma once

#include <optional>
#include <string>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// Scalars that the updates of all parameters share.
struct OptimizerStep {
    Tensor learning_rate = {};   // f32
    Tensor step = {};            // f64, counted from 1; empty unless the optimizer counts its steps
    Tensor gradient_scale = {};  // f32: every gradient times this is the one to use
    Tensor apply = {};           // bool: where it is false all stays as it was, to the bit
};

/// The subject of an update: a parameter, or a rank's part of it.
struct UpdatedParameter {
    State state;                              ///< of the parameter
    Tensor value, gradient;                   ///< of one type: the parameter's, or that of a part of it
    std::optional<double> weight_decay = {};  ///< its group's, in place of the optimizer's
    bool is_shard() const { return value.shape() != state.type.shape; }
};

/// Adds the input `learning_rate` (f32 scalar); the states of the optimizer; and the results `loss`,
/// `gradient_norm` (f32 scalars) and `applied` (bool). If the loss or any element of a gradient is not
/// finite, nothing is updated, running statistics among it, to the bit, no step is counted, and `applied` is
/// false. Throws UserError for a clip that is negative or not finite in FP32. Gradients that come with a loss
/// scale are divided by it; see loss_scale.h. Of gradients that are parts, parts of parameters are updated,
/// and put together over the ranks.
TraceUpdate optimizer_update(const Optimizer& optimizer, const LossScaleOptions& scaling = {},
                             const Distribution& distribution = {});

// For the files of optimizers.

/// A state of the optimizer that starts at zero. Its name is PREFIX.PARAMETER, and its type is that of the
/// parameter.
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

/// Whether a parameter is a matrix of a hidden layer: something is multiplied with it, no ids pick rows of
/// it, and it makes no logits of a cross-entropy.
bool is_hidden_matrix(const Graph& graph, const State& parameter);

}  // namespace mantissa
