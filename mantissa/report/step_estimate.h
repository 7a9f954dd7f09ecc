// A planned training step: bytes by part, and about its time, from its plan and the machine's peaks: for
// choosing sizes, not for reports. Also the remaining time of a run of several parts.
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
    /// A part of `steps` steps, each of about `seconds_a_step`. Parts are numbered from 0.
    void add(double seconds_a_step, std::int64_t steps) { parts_.push_back({seconds_a_step, steps}); }
    /// Records the time of a step of that part.
    void took(std::size_t part, double seconds);

    /// Whether a step ran, so that the time is no longer only estimated.
    bool is_measured() const;
    /// Seconds of the remaining steps. A part that ran counts with its steps' mean; other parts count with
    /// their estimate, times the ratio of measured to estimated time of the parts that ran.
    double seconds() const;

  private:
    struct Part {
        double estimate = 0;
        std::int64_t left = 0, done = 0;
        double spent = 0;
    };

    std::vector<Part> parts_;
};

/// Bytes that a trainer keeps, by kind, in the order of a table's rows.
struct PlannedBytes {
    std::string part;
    std::int64_t bytes = 0;
};
std::vector<PlannedBytes> planned_bytes(const TrainingPlan& plan);

/// The bytes as a table, and the step's estimated_seconds.
std::string plan_text(const TrainingPlan& plan, const Peaks& peaks);

/// Products, recomputed ones too, run at half of their unit's peak; each byte that the step holds moves
/// twelve times. Records of several machines agree within a factor of 1.5. Without a peak of copying, bytes
/// cost nothing.
double estimated_seconds(const TrainingPlan& plan, const Peaks& peaks, const Target& target);

/// The first node of each kernel among the step's contractions, matrix multiplies and convolutions.
std::vector<const PlannedNode*> contractions_of(const Plan& plan);

/// The reference peak of a kernel: the BF16 unit's if the machine has one and the kernel runs on it, as TF32
/// by three BF16 products does; else FP32's. FP8's is assumed to be twice BF16's, as in all data sheets of
/// GPUs that multiply it.
inline double unit_peak(const Arithmetic& arithmetic, const Peaks& peaks, const Target& target) {
    const bool on_unit = !target.bf16_unit.empty() && arithmetic.unit == target.bf16_unit;
    if (!on_unit || peaks.bf16_matrix <= 0) return peaks.f32_fma;
    return arithmetic.multiply == "fp8" ? 2 * peaks.bf16_matrix : peaks.bf16_matrix;
}

}  // namespace mantissa
