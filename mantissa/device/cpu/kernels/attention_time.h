// Time of attention as one kernel, and as the operations that it replaces, estimated from measured figures:
// so passes see where it loses (TimeBesideParts).
#pragma once

#include <optional>

#include "mantissa/device/cpu/attention/kernel_table.h"
#include "mantissa/graph/target.h"

namespace mantissa::inline v0::on_cpu {

enum class AttentionPass : bool { forward, backward };

/// The time of all heads; empty for kernels that were not measured. `table`: the blocks that are seen, as far
/// as positions decide.
std::optional<TimeBesideParts> attention_time(const AttentionKernels& kernels, const AttentionSize& size,
                                              const BlockTable& table, AttentionPass pass);

}  // namespace mantissa::on_cpu
