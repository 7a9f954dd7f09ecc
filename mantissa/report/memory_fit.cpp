#include "mantissa/report/memory_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mantissa {

namespace {

/// What is changed of a step.
struct Change {
    std::set<std::string> recompute;
    std::int64_t batch = 0, sequence = 0;
};

std::vector<Change> changes_of(const TrainerOptions& options) {
    std::vector<Change> changes = {{{"gelu", "norm"}, options.batch, options.sequence},
                                   {{"gelu", "norm", "softmax"}, options.batch, options.sequence}};
    for (std::int64_t batch = options.batch; batch >= 1; batch /= 2)
        changes.push_back({{"block"}, batch, options.sequence});
    for (std::int64_t sequence = options.sequence / 2; sequence >= 128; sequence /= 2)
        changes.push_back({{"block"}, 1, sequence});
    return changes;
}

std::string as_options(const Change& change, const TrainerOptions& before) {
    std::string text = fmt::format("--recompute {}", fmt::join(change.recompute, ","));
    if (change.batch != before.batch) text += fmt::format(" --batch {}", change.batch);
    if (change.sequence != before.sequence) text += fmt::format(" --sequence {}", change.sequence);
    return text;
}

double giga(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

std::vector<MemoryFit> what_would_fit(Device& device, const TrainerOptions& options, std::int64_t available) {
    std::vector<MemoryFit> fits;
    for (const Change& change : changes_of(options)) {
        TrainerOptions changed = options;
        changed.pipeline.recompute = change.recompute;
        changed.batch = change.batch;
        changed.sequence = change.sequence;
        const std::int64_t bytes = Trainer(device, changed).memory().total();
        fits.push_back({as_options(change, options), bytes, bytes <= available});
        if (fits.back().fits) break;
    }
    return fits;
}

std::string fit_table(const std::vector<MemoryFit>& fits, std::int64_t state, std::int64_t available) {
    std::string text = fmt::format("{:.2f} GB are available. What would need less:\n", giga(available));
    for (const MemoryFit& fit : fits)
        text += fmt::format("{:>11.2f} GB  {:<52} {}\n", giga(fit.bytes), fit.options,
                            fit.fits ? "fits" : "does not fit");
    if (fits.empty() || !fits.back().fits)
        text += fmt::format("parameters, moments and constants alone take {:.2f} GB\n", giga(state));
    return text;
}

}  // namespace mantissa
