// The numbers of one training step (weights, activations, gradients), compared with the ranges of FP16, BF16
// and TF32. The share of gradients that FP16 loses at each loss scale, and the scale to choose.
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
    std::string name;  ///< of a weight, or scope and operation, as in "h.3.mlp gelu_grad"
    ExponentHistogram histogram = {};
};

/// Numbers of one kind: by tensor, in the order of the run, and together.
struct NumericsOfKind {
    ExponentHistogram all = {};
    std::vector<TensorNumerics> tensors = {};

    void add(std::string name, const ExponentHistogram& histogram);
};

/// Gradients in FP16 at a loss scale of 2^exponent.
struct ScaledGradients {
    int exponent = 0;
    double lost = 0;         ///< share that becomes zero
    bool overflows = false;  ///< the largest becomes infinite
    bool proposed = false;
};

struct NumericsReport {
    std::string model;
    std::int64_t steps = 0;  ///< of training before the measurement
    NumericsOfKind weights = {}, activations = {}, gradients = {};
    std::vector<double> losses = {};  ///< of these steps

    /// Why the numbers do not represent a training: weights, gradients or losses are not finite, or the loss
    /// has climbed. No scale is proposed then. Empty: no fault.
    std::string fault() const;
};

/// At scale 1, at every fourth power of two up to 2^24, and at the scale to choose, if there is one.
std::vector<ScaledGradients> at_loss_scales(const NumericsReport& report);
/// A row for each of these scales.
Grid loss_scales(const NumericsReport& report);

/// A loss scale of 1, kept as a state: values that depend on it are gradients or their factors. Other values
/// of the backward pass, such as the powers in a norm's gradient, do not scale with the loss.
LossScaleOptions traced_loss_scale();

/// Runs one step up to its update and counts every number; changes nothing. The trainer's loss scale must be
/// traced_loss_scale(). Its policy should be fp32, so that nothing is lost before counting.
NumericsReport measure_numerics(Trainer& trainer, const Batch& batch);

struct NumericsOptions {
    std::int64_t steps = 10;  ///< of training before the measurement
    double learning_rate = 3e-4;
    std::function<void(const std::string&)> progress = {};  ///< called with the current activity
};

/// Measures after some steps of training. Later steps continue with the next batches.
NumericsReport run_numerics(Trainer& trainer, const BatchSource& batches,
                            const NumericsOptions& options = {});

/// For people.
std::string numerics_table(const NumericsReport& report);
/// For machines: docs/json.md.
std::string numerics_json(const NumericsReport& report);

/// A self-contained page: histograms of every tensor under the formats' ranges, and the loss scale.
/// `command`: the command line.
std::string numerics_html(const NumericsReport& report, const std::string& command);

}  // namespace mantissa
