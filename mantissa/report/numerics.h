// The numbers of one training step, weights, activations and gradients, against the ranges of FP16, BF16 and
// TF32; what FP16 would lose of the gradients at each loss scale, and which scale to choose.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/numerics/exponent_histogram.h"
#include "mantissa/train/trainer.h"

namespace mantissa {

struct TensorNumerics {
    std::string name;  ///< scope and operation, as in "h.3.mlp gelu_grad"
    ExponentHistogram histogram = {};
};

struct NumericsReport {
    std::string model;
    std::int64_t steps = 0;  ///< of training before
    ExponentHistogram weights = {}, activations = {}, gradients = {};
    std::vector<TensorNumerics> gradient_tensors = {};  ///< in the order of the backward pass
};

/// Runs one step up to its update and looks at every number; changes nothing. Tokens and targets i32 [B, T].
/// The trainer's policy should be fp32, so that nothing was lost before it is looked at.
NumericsReport measure_numerics(Trainer& trainer, std::span<const std::int32_t> tokens,
                                std::span<const std::int32_t> targets);

std::string numerics_table(const NumericsReport& report);
std::string numerics_json(const NumericsReport& report);

}  // namespace mantissa
