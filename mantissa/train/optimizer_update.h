// The update of all parameters by an optimizer, recorded in the graph: skipped as a whole if any number is
// not finite. Each optimizer has a file of its own (adamw.cpp, sgd.cpp, muon.cpp).
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
    Tensor gradient_scale = {};  // f32: factor of every gradient before use
    Tensor apply = {};           // bool: false leaves every state as it was, to the bit
};

/// The subject of an update: a parameter, or a rank's part of it.
struct UpdatedParameter {
    State state;                              ///< of the whole parameter
    Tensor value, gradient;                   ///< of one type: the parameter's, or its part's
    std::optional<double> weight_decay = {};  ///< the group's, in place of the optimizer's
    bool is_shard() const { return value.shape() != state.type.shape; }
};

/// Adds the input `learning_rate` (f32 scalar), the optimizer's states, and the results `loss`,
/// `gradient_norm` (f32 scalars) and `applied` (bool). If the loss or any element of a gradient is not
/// finite, no state changes by a bit, running statistics included, no step is counted, and `applied` is
/// false. Gradients that come with a loss scale are divided by it; see loss_scale.h. If a gradient is
/// sharded, each rank updates its part of the parameter, and the ranks gather the parts. Throws UserError for
/// a clip that is negative or not finite in FP32.
TraceUpdate optimizer_update(const Optimizer& optimizer, const LossScaleOptions& scaling = {},
                             const Distribution& distribution = {});

// For the files of optimizers.

/// A state of the optimizer that starts at zero, named PREFIX.PARAMETER, of the parameter's type.
Tensor optimizer_state(Graph& graph, const std::string& prefix, const UpdatedParameter& parameter);

/// The decay rate of a parameter. Matrices (and tables) only: no biases and weights of norms.
struct WeightDecay {
    double rate = 0;
    bool matrices_only = false;
    double of(const UpdatedParameter& parameter) const;
};

/// Whether a number is positive and finite in FP32, the precision of updates: a subnormal number is flushed
/// to 0.
bool is_positive_in_fp32(double number);

/// Throws UserError, "WHAT, got GOT", unless `holds`.
void require_option(bool holds, const char* what, double got);
/// Throws UserError for a decay that is negative or not finite in FP32.
void require_weight_decay(double rate);

/// Whether a parameter is a matrix of a hidden layer: it is multiplied, no ids pick its rows, and it makes no
/// logits of a cross-entropy.
bool is_hidden_matrix(const Graph& graph, const State& parameter);

}  // namespace mantissa
