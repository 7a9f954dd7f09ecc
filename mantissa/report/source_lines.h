// A step by the lines of the program that traced it: how much of the work each line asks for.
#pragma once

#include "mantissa/report/explain.h"
#include "mantissa/report/ladder.h"
#include "mantissa/report/roofline.h"

namespace mantissa::inline v0 {

/// A row for each line, in the order of the step: the first module that runs it and how many more, its nodes
/// in all passes, GFLOP, MB and the formats of its arithmetic. What no line is known of comes last, as "-".
Grid lines_of(const Explanation& explanation);

/// The same with time and the share of the step, the slowest line first.
Grid source_lines_of(const Roofline& roofline);

/// The milliseconds of each line in the last step of training of each rung, the slowest of the first rung
/// first. What is fused counts where it begins.
Grid source_lines_of(const LadderReport& ladder);

}  // namespace mantissa
