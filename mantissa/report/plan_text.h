// A planned training step in some lines: bytes by part, and how long it may take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/device/device.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

/// Bytes of what a trainer keeps, by what it is, in the order of a table's rows.
struct PlannedBytes {
    std::string part;
    std::int64_t bytes = 0;
};
std::vector<PlannedBytes> planned_bytes(const TrainingPlan& plan);

/// These as a table, and the step's seconds as `estimated_seconds` has them.
std::string plan_text(const TrainingPlan& plan, const Peaks& peaks);

}  // namespace mantissa
