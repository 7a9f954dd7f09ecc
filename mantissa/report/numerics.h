// The numbers of one training step, weights, activations and gradients, against the ranges of FP16, BF16 and
// TF32; what FP16 would lose of the gradients at each loss scale, and which scale to choose.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mantissa/numerics/value_histogram.h"
#include "mantissa/report/report.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

struct TensorNumerics {
    std::string name;  ///< of a weight its own; else scope and operation, as in "h.3.mlp gelu_grad"
    ExponentHistogram histogram = {};
};

/// Numbers of one kind, tensor by tensor in the order of the run, and together.
struct NumericsOfKind {
    ExponentHistogram all = {};
    std::vector<TensorNumerics> tensors = {};

    void add(std::string name, const ExponentHistogram& histogram);
};

/// Gradients in FP16 at a loss scale of 2^exponent.
struct ScaledGradients {
    int exponent = 0;
    double lost = 0;         ///< share that becomes zero
    bool overflows = false;  ///< the greatest becomes infinite
    bool proposed = false;
};

struct NumericsReport {
    std::string model;
    std::int64_t steps = 0;  ///< of training before
    NumericsOfKind weights = {}, activations = {}, gradients = {};
    std::vector<double> losses = {};  ///< of those steps

    /// Why these are not the numbers of a training: weights, gradients or losses are not finite, or the loss
    /// has climbed. Nothing is proposed then. Empty: they are.
    std::string fault() const;
};

/// At 1, at every fourth power of two up to 2^24, and at the scale to choose, if there is one.
std::vector<ScaledGradients> at_loss_scales(const NumericsReport& report);
/// A row for each of them.
Grid loss_scales(const NumericsReport& report);

/// Always 1, and a state of the graph: what depends on it is a gradient, in its factors, too; what else the
/// backward pass makes, as the powers in a norm's gradient, is not, and a loss scale would not move it.
LossScaleOptions traced_loss_scale();

/// Runs one step up to its update and looks at every number; changes nothing. The trainer's loss scale must
/// be traced_loss_scale(), and its policy should be fp32, so that nothing was lost before it is looked at.
NumericsReport measure_numerics(Trainer& trainer, const Batch& batch);

struct NumericsOptions {
    std::int64_t steps = 10;  ///< of training before
    double learning_rate = 3e-4;
    std::function<void(const std::string&)> progress = {};  ///< called with what is being done
};

/// The same after some steps of training. Steps that follow go on with the next batches.
NumericsReport run_numerics(Trainer& trainer, const BatchSource& batches,
                            const NumericsOptions& options = {});

/// For people.
std::string numerics_table(const NumericsReport& report);
/// For machines: docs/json.md.
std::string numerics_json(const NumericsReport& report);

/// A page that needs no other file: histograms of every tensor under the ranges of the formats, and the loss
/// scale. `command`: what was typed.
std::string numerics_html(const NumericsReport& report, const std::string& command);

}  // namespace mantissa
