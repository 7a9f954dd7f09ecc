// A planned training step: bytes by part, and about how long it may take, from its plan and the machine's
// peaks: to choose sizes by, not to report. How long a run of several parts still takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/device/device.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

class TimeLeft {
  public:
    /// A part of so many steps, each of about so many seconds. Parts are numbered from 0.
    void add(double seconds_a_step, std::int64_t steps) { parts_.push_back({seconds_a_step, steps}); }
    /// A step of that part took so long.
    void took(std::size_t part, double seconds);

    /// Whether a step ran, so that more than the estimate is known.
    bool is_measured() const;
    /// Seconds of the steps that are left. A part that ran counts with its steps' mean; another with its
    /// estimate, times what those that ran took of theirs.
    double seconds() const;

  private:
    struct Part {
        double estimate = 0;
        std::int64_t left = 0, done = 0;
        double spent = 0;
    };

    std::vector<Part> parts_;
};

/// Bytes of what a trainer keeps, by what it is, in the order of a table's rows.
struct PlannedBytes {
    std::string part;
    std::int64_t bytes = 0;
};
std::vector<PlannedBytes> planned_bytes(const TrainingPlan& plan);

/// These as a table, and the step's seconds as `estimated_seconds` has them.
std::string plan_text(const TrainingPlan& plan, const Peaks& peaks);

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
