#include "mantissa/report/step_estimate.h"

#include <algorithm>

namespace mantissa::inline v0 {

std::vector<const PlannedNode*> contractions_of(const Plan& plan) {
    std::vector<const PlannedNode*> first;
    for (const char* op :
         {"matmul", "scaled_matmul", "conv2d", "conv2d_input_gradient", "conv2d_filter_gradient"})
        for (const PlannedNode* planned : plan.nodes_of(op))
            if (std::ranges::find(first, planned->kernel, &PlannedNode::kernel) == first.end())
                first.push_back(planned);
    return first;
}

double estimated_seconds(const TrainingPlan& plan, const Peaks& peaks, const Target& target) {
    constexpr double share_of_unit = 0.5, moves = 12;
    double unit = peaks.fastest();
    for (const PlannedNode* planned : contractions_of(plan.step()))
        unit = std::min(unit, unit_peak(planned->arithmetic, peaks, target));
    const double bytes = moves * static_cast<double>(plan.memory().total());
    const double flops = plan.flops_per_step() + plan.recomputed_flops();
    return flops / (share_of_unit * unit) + (peaks.copy > 0 ? bytes / peaks.copy : 0);
}

}  // namespace mantissa
