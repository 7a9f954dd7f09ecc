// The effect of a policy below sixteen bits on the tensors of one training step: the share of their numbers
// that becomes zero or saturates, tensor by tensor.
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
    std::string name;    ///< scope of the layer, and which of its tensors: "h.3.mlp.c_fc x"
    std::string format;  ///< as `explain` says it: "e4m3 in blocks of 32 along the depth, ..."
    reference::RoundingLosses losses = {};

    double flushed() const;    ///< share of the numbers that were not zero
    double saturated() const;  ///< the same
    double decibels() const;   ///< signal over noise; infinite where nothing was changed
};

struct RoundingReport {
    std::string model, policy;
    std::int64_t steps = 0;  ///< of training before
    std::vector<double> losses = {};
    std::vector<RoundedTensor> tensors = {};
};

/// The passes that a trainer must have to be looked into: all but `lay_out`, which rounds weights between
/// steps.
std::vector<std::string> passes_to_look_into(const Target& target, const Policy& policy);

/// Runs one step up to its update and looks at every rounding; changes nothing. Throws UserError if there is
/// none. The trainer's passes: passes_to_look_into(). `tensors`: a safetensors file to write, none if it is
/// empty: of rounding K its operand K.x and its results K.y and, with a scale for the tensor, K.factor; its
/// name and attributes are metadata.
RoundingReport measure_rounding(Trainer& trainer, const Batch& batch,
                                const std::filesystem::path& tensors = {});

/// For people: the tensors that lose most first.
std::string rounding_table(const RoundingReport& report);
/// For machines: docs/json.md.
std::string rounding_json(const RoundingReport& report);

}  // namespace mantissa
