#include "mantissa/train/memory_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "mantissa/graph/target.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/ranks/ranks.h"

namespace mantissa::inline v0 {

namespace {

double giga(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

std::string in_words(const std::vector<std::pair<std::string, std::string>>& settings) {
    std::vector<std::string> words;
    for (const auto& [field, value] : settings) words.push_back("`" + field + "` " + value);
    return fmt::format("{}", fmt::join(words, " "));
}

/// Memory of the step with other options; no kernels are made.
MemoryUse memory_by(const TrainingPlan& plan, TrainerOptions options, const nn::Model& model) {
    options.dump = {};
    options.make_kernels = MakeKernels::no;
    return TrainingPlan(plan.device(), model, std::move(options)).memory();
}

/// Memory for one rank: the least that a rank has; ranks on one host share its memory.
std::int64_t available_to_each(const Device& device, Ranks* ranks) {
    std::int64_t available = device.free_memory();
    if (!ranks || ranks->size() == 1) return available;
    if (device.target().device == "cpu") available /= ranks->on_this_host();
    for (const std::string& each : ranks->gather(std::to_string(available)))
        available = std::min<std::int64_t>(available, std::strtoll(each.c_str(), nullptr, 10));
    return available;
}

/// Options of the first fitting step that changes open settings alone; none: no such step fits.
std::optional<TrainerOptions> first_that_fits(const TrainingPlan& plan, std::int64_t available) {
    TrainerOptions options = plan.options();
    std::vector<Layout> trunks{options.lora->trunk};
    if (options.open.trunk && plan.device().target().cannot_widen_codes.empty() && !options.policy.blocks &&
        options.policy.low != DType::f16 && options.policy.emulate.empty())
        trunks.insert(trunks.end(), {Layout::int8, Layout::nf4});
    std::vector<std::set<std::string>> recomputes{options.recompute};
    if (options.open.recompute) recomputes.push_back({"block"});
    const std::int64_t examples = options.batch * options.accumulate;
    const bool fewer_examples = options.open.batch && options.last_batch == 0;
    for (const Layout trunk : trunks)
        for (const std::set<std::string>& recompute : recomputes)
            for (std::int64_t batch = plan.options().batch; batch >= 1;
                 batch = fewer_examples ? batch / 2 : 0) {
                if (examples % batch != 0) continue;
                options.lora->trunk = trunk;
                options.recompute = recompute;
                options.batch = batch;
                options.accumulate = examples / batch;
                if (chosen_settings(plan.options(), options).empty()) continue;
                const MemoryUse memory = memory_by(plan, options, plan.model());
                if (memory.total() <= available) return options;
                if (memory.state > available) break;  // no smaller batch helps
            }
    return {};
}

}  // namespace

TrainingPlan plan_that_fits(Device& device, nn::Model model, TrainerOptions options) {
    const bool chooses = options.lora && (options.open.trunk || options.open.batch || options.open.recompute);
    TrainingPlan plan(device, std::move(model), std::move(options));
    if (!chooses) return plan;
    const std::int64_t available = available_to_each(device, plan.options().ranks);
    if (plan.memory().total() <= available) return plan;
    // Planning takes some memory, too, and other programs may take some meanwhile.
    const std::optional<TrainerOptions> fits = first_that_fits(plan, available - available / 64);
    return fits ? TrainingPlan(device, plan.model(), *fits) : std::move(plan);
}

std::vector<std::pair<std::string, std::string>> chosen_settings(const TrainerOptions& given,
                                                                 const TrainerOptions& planned) {
    std::vector<std::pair<std::string, std::string>> chosen;
    if (planned.lora && given.lora->trunk != planned.lora->trunk)
        chosen.emplace_back("trunk", name_of(planned.lora->trunk));
    if (given.recompute != planned.recompute)
        chosen.emplace_back("recompute", fmt::format("{}", fmt::join(planned.recompute, ",")));
    if (given.batch != planned.batch) chosen.emplace_back("batch", std::to_string(planned.batch));
    if (given.accumulate != planned.accumulate)
        chosen.emplace_back("accumulate", std::to_string(planned.accumulate));
    return chosen;
}

std::string choice_text(const TrainerOptions& given, const TrainingPlan& plan) {
    const auto chosen = chosen_settings(given, plan.options());
    return chosen.empty()
               ? ""
               : fmt::format("chosen, since the step as given does not fit: {}, which needs {:.2f} GB",
                             in_words(chosen), giga(plan.memory().total()));
}

std::vector<MemoryFit> what_would_fit(const TrainingPlan& plan, std::int64_t available,
                                      const std::function<nn::Model(std::int64_t)>& at_length) {
    std::vector<MemoryFit> fits;
    TrainerOptions options = plan.options();
    const std::int64_t length = plan.model().units_per_example;
    const auto fits_at = [&](std::int64_t shorter) {
        auto changes = chosen_settings(plan.options(), options);
        if (shorter != length) changes.emplace_back("sequence", std::to_string(shorter));
        if (changes.empty()) return false;
        const nn::Model model = shorter == length ? plan.model() : at_length(shorter);
        const std::int64_t bytes = memory_by(plan, options, model).total();
        fits.push_back({in_words(changes), bytes, bytes <= available});
        return fits.back().fits;
    };
    options.recompute = {"gelu", "norm"};
    if (fits_at(length)) return fits;
    options.recompute.insert("softmax");
    if (fits_at(length)) return fits;
    options.recompute = {"block"};
    for (; options.batch >= 1; options.batch /= 2)
        if (fits_at(length)) return fits;
    options.batch = 1;
    for (std::int64_t shorter = length / 2; at_length && shorter >= 128; shorter /= 2)
        if (fits_at(shorter)) return fits;
    return fits;
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
