#include "mantissa/report/step_estimate.h"

#include <algorithm>

namespace mantissa::inline v0 {

std::vector<std::string> contraction_kernels(const Plan& plan) {
    std::vector<std::string> names;
    for (const char* op : {"matmul", "conv2d", "conv2d_input_gradient", "conv2d_filter_gradient"})
        for (std::string& kernel : plan.kernels_of(op))
            if (std::ranges::find(names, kernel) == names.end()) names.push_back(std::move(kernel));
    return names;
}

double estimated_seconds(const TrainingPlan& plan, const Peaks& peaks, const Target& target) {
    constexpr double share_of_unit = 0.5, moves = 12;
    double unit = peaks.fastest();
    for (const std::string& kernel : contraction_kernels(plan.step()))
        unit = std::min(unit, unit_peak(kernel, peaks, target));
    const double bytes = moves * static_cast<double>(plan.memory().total());
    return plan.flops_per_step() / (share_of_unit * unit) + (peaks.copy > 0 ? bytes / peaks.copy : 0);
}

}  // namespace mantissa
