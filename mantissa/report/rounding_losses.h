// The effect of a policy below sixteen bits on the tensors of one training step: the share of numbers that
// become zero or saturate, by tensor.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/graph/reference_rounding.h"
#include "mantissa/graph/target.h"
#include "mantissa/report/report.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

struct RoundedTensor {
    std::string name;    ///< scope of the layer, and its tensor: "h.3.mlp.c_fc x"
    std::string format;  ///< as in `explain`: "e4m3 in blocks of 32 along the depth, ..."
    reference::RoundingLosses losses = {};

    double flushed() const;    ///< share of nonzero numbers that became zero
    double saturated() const;  ///< share of nonzero numbers that saturated
    double decibels() const;   ///< signal over noise; infinite without changes
};

struct RoundingReport {
    std::string model, policy;
    std::int64_t steps = 0;  ///< of training before the measurement
    std::vector<double> losses = {};
    std::vector<RoundedTensor> tensors = {};
};

/// The passes of a trainer for this measurement: all but `lay_out`, which rounds weights between steps.
std::vector<std::string> passes_to_look_into(const Target& target, const Policy& policy);

/// Runs one step up to its update and compares every rounding; changes nothing. Throws UserError if there is
/// none. The trainer must have passes_to_look_into(). `tensors`: a safetensors file to write, or empty. Of
/// rounding K it has the operand K.x, the results K.y and, with a scale for the tensor, K.factor; name and
/// attributes are metadata.
RoundingReport measure_rounding(Trainer& trainer, const Batch& batch,
                                const std::filesystem::path& tensors = {});

/// For people: the tensors with the largest losses first.
std::string rounding_table(const RoundingReport& report);
/// For machines: docs/json.md.
std::string rounding_json(const RoundingReport& report);

}  // namespace mantissa
