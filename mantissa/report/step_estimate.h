// About how long a training step takes, from its plan and the machine's peaks: to choose sizes by, not to
// report.
#pragma once

#include "mantissa/device/device.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

/// Products, those computed again too, at half of their unit's peak, and each byte that the step holds moved
/// twelve times, as records of several machines have it within a factor of 1.5. Without a peak of copying
/// the bytes cost nothing.
double estimated_seconds(const TrainingPlan& plan, const Peaks& peaks, const Target& target);

/// For each kernel of the step's contractions, matrix multiplies and convolutions, the first that it runs.
std::vector<const PlannedNode*> contractions_of(const Plan& plan);

/// The peak that a kernel is measured against: the BF16 unit's where the machine has one and the kernel runs
/// on it, as TF32 by three products of BF16 does; else FP32's. FP8's is taken to be twice BF16's, as all data
/// sheets of GPUs that multiply it have it.
inline double unit_peak(const Arithmetic& arithmetic, const Peaks& peaks, const Target& target) {
    const bool on_unit = !target.bf16_unit.empty() && arithmetic.unit == target.bf16_unit;
    if (!on_unit || peaks.bf16_matrix <= 0) return peaks.f32_fma;
    return arithmetic.multiply == "fp8" ? 2 * peaks.bf16_matrix : peaks.bf16_matrix;
}

}  // namespace mantissa
