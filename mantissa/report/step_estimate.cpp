#include "mantissa/report/step_estimate.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/graph/graph.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/report.h"

namespace mantissa::inline v0 {

void TimeLeft::took(std::size_t part, double seconds) {
    Part& ran = parts_[part];
    ran.spent += seconds;
    ++ran.done;
    --ran.left;
}

bool TimeLeft::is_measured() const {
    return std::ranges::any_of(parts_, [](const Part& part) { return part.done > 0; });
}

double TimeLeft::seconds() const {
    double spent = 0, estimated = 0;
    for (const Part& part : parts_) {
        spent += part.spent;
        estimated += static_cast<double>(part.done) * part.estimate;
    }
    const double factor = estimated > 0 ? spent / estimated : 1;
    double left = 0;
    for (const Part& part : parts_)
        left += static_cast<double>(part.left) *
                (part.done > 0 ? part.spent / static_cast<double>(part.done) : factor * part.estimate);
    return left;
}

std::vector<PlannedBytes> planned_bytes(const TrainingPlan& plan) {
    std::int64_t frozen = 0, coded = 0, trained = 0, optimizer = 0, copies = 0;
    for (const State& state : plan.step().graph().states()) {
        const std::int64_t bytes = plan.step().aligned(state.stored_bytes());
        if (state.kind == State::Kind::derived)
            copies += bytes;
        else if (!is_weight(state))
            optimizer += bytes;
        else if (has_codes(state.type.layout))
            coded += bytes;
        else
            (state.frozen ? frozen : trained) += bytes;
    }
    const MemoryUse use = plan.memory();
    std::vector<PlannedBytes> parts;
    const auto add = [&](const char* part, std::int64_t bytes) {
        if (bytes > 0) parts.push_back({part, bytes});
    };
    if (coded > 0)
        parts.push_back({fmt::format("frozen weights in {}", name_of(plan.options().lora->trunk)), coded});
    add(coded > 0 ? "other frozen weights" : "frozen weights", frozen);
    add(plan.options().lora ? "adapters" : "weights", trained);
    add("copies of them in the policy's format", copies);
    add("optimizer and sums of gradients", optimizer);
    add("constants", use.state - frozen - coded - trained - copies - optimizer);
    add("activations and gradients", use.arena);
    add("inputs", use.inputs);
    add("gradients on their way", use.exchange);
    return parts;
}

std::string plan_text(const TrainingPlan& plan, const Peaks& peaks) {
    Grid grid{{"MB", "part"}};
    for (const PlannedBytes& part : planned_bytes(plan))
        grid.rows.push_back({with_decimals(megabytes(part.bytes), 1), part.part});
    const double seconds = estimated_seconds(plan, peaks, plan.device().target());
    const double again = plan.recomputed_flops() / 1e9;
    return fmt::format("{}a step: {:.3g} GFLOP{}, about {:.3g} s, {:.3g} {}/s\n", grid.text(),
                       plan.flops_per_step() / 1e9, again > 0 ? fmt::format(" and {:.3g} again", again) : "",
                       seconds, static_cast<double>(plan.units_per_step()) / seconds, plan.model().unit);
}

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
