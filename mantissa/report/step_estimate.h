// About how long a training step takes, from its plan and the machine's peaks: to choose sizes by, not to
// report.
#pragma once

#include "mantissa/report/unit_peak.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

/// Products at half of their unit's peak, and each byte that the step holds moved twelve times, as records of
/// several machines have it within a factor of 1.5. Without a peak of copying the bytes cost nothing.
double estimated_seconds(const TrainingPlan& plan, const Peaks& peaks, const Target& target);

/// For each kernel of the step's contractions, matrix multiplies and convolutions, the first that it runs.
std::vector<const PlannedNode*> contractions_of(const Plan& plan);

}  // namespace mantissa
