// A step by source lines of the traced program: the work that each line causes.
#pragma once

#include "mantissa/report/explain.h"
#include "mantissa/report/ladder.h"
#include "mantissa/report/roofline.h"

namespace mantissa::inline v0 {

/// A row per line, in the order of the step: the first module that runs it and the number of others, its
/// nodes in all passes, GFLOP, MB and arithmetic formats. Work without a known line comes last, as "-".
Grid lines_of(const Explanation& explanation);

/// The rows with time and the share of the step, the slowest line first.
Grid source_lines_of(const Roofline& roofline);

/// The milliseconds of each line in each rung's last training step, the slowest in the first rung first. A
/// fused kernel counts at its first line.
Grid source_lines_of(const LadderReport& ladder);

}  // namespace mantissa
