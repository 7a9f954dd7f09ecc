// Where the time of a run went: by operation and stage, with the kernel that ran.
#pragma once

#include <string>

#include "mantissa/runtime/execution.h"

namespace mantissa::inline v0 {

/// A line for each operation, stage and kernel, longest first: launches, milliseconds, share of the whole,
/// and what was reached in GFLOP/s and GB/s by the op table's counts.
std::string profile_table(const Plan& plan, const Profile& profile);

}  // namespace mantissa
