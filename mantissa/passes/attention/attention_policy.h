// Decides whether an attention that was found becomes one operation. It does only if the device has a kernel
// for it, in the policy's formats, and for its gradient, and loses no time by it.
#pragma once

#include <cstdint>

#include "mantissa/passes/attention/match_attention.h"

namespace mantissa::inline v0 {

struct Machine;
struct PipelineOptions;

/// Whether a forward pass is one of a training step.
enum class Differentiated : std::uint8_t { no, yes };

/// For one run of match_attention. Options and machine must live as long.
AcceptAttention attention_policy(const PipelineOptions& options, const Machine& machine,
                                 Differentiated differentiated);

}  // namespace mantissa
