#include "mantissa/report/memory_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mantissa/graph/target.h"

namespace mantissa::inline v0 {

namespace {

/// The change of a step.
struct SmallerPlan {
    std::set<std::string> recompute;
    std::int64_t batch = 0, length = 0;
};

std::vector<SmallerPlan> smaller_plans(const TrainingPlan& plan, bool has_length) {
    const std::int64_t batch = plan.options().batch, length = plan.model().units_per_example;
    std::vector<SmallerPlan> changes = {{{"gelu", "norm"}, batch, length},
                                        {{"gelu", "norm", "softmax"}, batch, length}};
    for (std::int64_t fewer = batch; fewer >= 1; fewer /= 2) changes.push_back({{"block"}, fewer, length});
    if (!has_length) return changes;
    for (std::int64_t shorter = length / 2; shorter >= 128; shorter /= 2)
        changes.push_back({{"block"}, 1, shorter});
    return changes;
}

std::string in_words(const SmallerPlan& change, const TrainingPlan& before) {
    std::string text = fmt::format("`recompute` {}", fmt::join(change.recompute, ","));
    if (change.batch != before.options().batch) text += fmt::format(" `batch` {}", change.batch);
    if (change.length != before.model().units_per_example)
        text += fmt::format(" `sequence` {}", change.length);
    return text;
}

double giga(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

std::vector<MemoryFit> what_would_fit(const TrainingPlan& plan, std::int64_t available,
                                      const std::function<nn::Model(std::int64_t)>& at_length) {
    std::vector<MemoryFit> fits;
    for (const SmallerPlan& change : smaller_plans(plan, at_length != nullptr)) {
        TrainerOptions changed = plan.options();
        changed.recompute = change.recompute;
        changed.dump = {};
        changed.batch = change.batch;
        const bool shorter = change.length != plan.model().units_per_example;
        const nn::Model model = shorter ? at_length(change.length) : plan.model();
        const std::int64_t bytes = TrainingPlan(plan.device(), model, changed).memory().total();
        fits.push_back({in_words(change, plan), bytes, bytes <= available});
        if (fits.back().fits) break;
    }
    return fits;
}

std::optional<TrainerOptions> first_that_fits(const TrainingPlan& plan, std::int64_t available,
                                              const OpenSettings& open) {
    TrainerOptions options = plan.options();
    if (plan.memory().total() <= available) return options;
    options.dump = {};
    std::vector<Layout> trunks{options.lora ? options.lora->trunk : Layout::row_major};
    if (open.trunk && options.lora && plan.device().target().cannot_widen_codes.empty() &&
        !options.policy.blocks && options.policy.low != DType::f16 && options.policy.emulate.empty())
        trunks.insert(trunks.end(), {Layout::int8, Layout::nf4});
    std::vector<std::set<std::string>> recomputes{options.recompute};
    if (open.recompute) recomputes.push_back({"block"});
    const std::int64_t batch = options.batch, accumulate = options.accumulate;
    const bool fewer_examples = open.batch && options.last_batch == 0;
    for (const Layout trunk : trunks)
        for (const std::set<std::string>& recompute : recomputes)
            for (std::int64_t fewer = batch; fewer >= 1; fewer = fewer_examples ? fewer / 2 : 0) {
                const bool is_given =
                    trunk == trunks.front() && recompute == recomputes.front() && fewer == batch;
                if (is_given || batch % fewer != 0) continue;
                if (options.lora) options.lora->trunk = trunk;
                options.recompute = recompute;
                options.batch = fewer;
                options.accumulate = accumulate * (batch / fewer);
                const MemoryUse memory = TrainingPlan(plan.device(), plan.model(), options).memory();
                if (memory.total() <= available) return options;
                if (memory.state > available) break;  // no smaller batch helps
            }
    return {};
}

std::string fit_table(const std::vector<MemoryFit>& fits, std::int64_t state, std::int64_t available) {
    std::string text = fmt::format("{:.2f} GB are available. What would need less:\n", giga(available));
    for (const MemoryFit& fit : fits)
        text += fmt::format("{:>11.2f} GB  {:<52} {}\n", giga(fit.bytes), fit.change,
                            fit.fits ? "fits" : "does not fit");
    if (fits.empty() || !fits.back().fits)
        text += fmt::format("parameters, moments and constants alone take {:.2f} GB\n", giga(state));
    return text;
}

}  // namespace mantissa
