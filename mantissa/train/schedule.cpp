#include "mantissa/train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

double LearningRateSchedule::at(std::int64_t step) const {
    if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
    if (step >= steps) return least;
    const double done =
        static_cast<double>(step - warmup) / static_cast<double>(std::max<std::int64_t>(1, steps - warmup));
    return least + 0.5 * (1.0 + std::cos(std::numbers::pi * done)) * (peak - least);
}

std::string LearningRateSchedule::text() const {
    std::string text = fmt::format("{}", peak);
    if (warmup > 0) text += fmt::format(" after {} steps of warm-up", warmup);
    if (least != peak) text += fmt::format(", by a cosine to {} at step {}", least, steps);
    return text;
}

namespace {

bool is_rate(double rate) { return rate >= 0 && std::isfinite(static_cast<float>(rate)); }

}  // namespace

void require_learning_rate(double rate) {
    if (!is_rate(rate))
        throw UsageError(fmt::format("`peak` must be 0 or more and finite in FP32, got {}", rate));
}

void require_step_rate(double rate) {
    if (!is_rate(rate))
        throw UserError(
            fmt::format("the learning rate of a step must be 0 or more and finite in FP32, got {}", rate));
}

void validate(const LearningRateSchedule& schedule) {
    require_learning_rate(schedule.peak);
    if (!(schedule.least >= 0 && schedule.least <= schedule.peak))
        throw UsageError(
            fmt::format("`least` must lie between 0 and `peak` {}, got {}", schedule.peak, schedule.least));
    if (schedule.warmup < 0)
        throw UsageError(fmt::format("`warmup` must be 0 or more steps, got {}", schedule.warmup));
}

}  // namespace mantissa
