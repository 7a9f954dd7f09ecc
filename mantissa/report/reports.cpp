#include "mantissa/report/reports.h"

#include <fmt/format.h>

#include "mantissa/base/atomic_file.h"
#include "mantissa/report/converge.h"
#include "mantissa/report/explain.h"
#include "mantissa/report/kept_peaks.h"
#include "mantissa/report/ladder.h"
#include "mantissa/report/lint.h"
#include "mantissa/report/numerics.h"
#include "mantissa/report/roofline.h"
#include "mantissa/report/source_lines.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0::report {

namespace {

/// The text on a page in place of a command line.
std::string call_of(const char* report, const nn::Model& model) {
    return fmt::format("report::{} of {}", report, model.name);
}

}  // namespace

void Report::write_page(const std::filesystem::path& file) const { write_whole(file, page); }
void Report::write_json(const std::filesystem::path& file) const { write_whole(file, json); }

Report explain(Device& device, const nn::Model& model, const Options& options) {
    TrainerOptions settings = options.trainer;
    settings.make_kernels = MakeKernels::no;
    const Explanation explanation = mantissa::explain(TrainingPlan(device, model, settings));
    return {.text = explain_table(explanation, Detail::kinds) + "\n" + lines_of(explanation).text(),
            .page = explain_html(explanation, nullptr, call_of("explain", model)),
            .json = explain_json(explanation)};
}

Report roofline(Device& device, const nn::Model& model, const BatchSource& batches, const Options& options) {
    Trainer trainer(device, model, options.trainer);
    BatchBuffer buffer(model, options.trainer.batch, options.trainer.accumulate);
    const Roofline measured =
        measure_roofline(trainer, buffer.fill(batches, 0), known_peaks(device), options.progress);
    const Explanation explanation = mantissa::explain(trainer.plan());
    return {.text = roofline_table(measured) + "\n" + source_lines_of(measured).text(),
            .page = explain_html(explanation, &measured, call_of("roofline", model)),
            .json = explain_json(explanation)};
}

Report ladder(Device& device, const nn::Model& model, const BatchSource& batches, const Options& options) {
    KeptPeaks kept(device, peaks_file());
    const LadderReport made =
        run_ladder(device, batches,
                   {.rungs = options.names.empty() ? default_rungs(device.target()) : options.names,
                    .model = model,
                    .trainer = options.trainer,
                    .steps = options.steps,
                    .repeats = options.repeats,
                    .learning_rate = options.learning_rate,
                    .known_peaks = kept.peaks(),
                    .known_from = kept.place(),
                    .progress = options.progress ? options.progress : [](const std::string&) {}});
    kept.raise(made.peaks);
    return {.text = ladder_table(made) + "\nms by source line, in the last step of training\n" +
                    source_lines_of(made).text(),
            .page = ladder_html(made, call_of("ladder", model)),
            .json = ladder_json(made)};
}

Report numerics(Device& device, const nn::Model& model, const BatchSource& batches, const Options& options) {
    TrainerOptions settings = options.trainer;
    settings.policy = {};
    if (!settings.passes)
        settings.passes = {"simplify"};  // so that no number is hidden inside a fused operation
    settings.loss_scale = traced_loss_scale();
    Trainer trainer(device, model, settings);
    const NumericsReport made = run_numerics(
        trainer, batches,
        {.steps = options.steps, .learning_rate = options.learning_rate, .progress = options.progress});
    return {.text = numerics_table(made),
            .page = numerics_html(made, call_of("numerics", model)),
            .json = numerics_json(made)};
}

Report converge(Device& device, const nn::Model& model, const BatchSource& batches, const Options& options) {
    const std::vector<std::string> names = options.names.empty() ? sixteen_bit_policy_names() : options.names;
    const ConvergeReport made =
        run_converge(device, batches,
                     {.policies = {names.begin(), names.end()},
                      .model = model,
                      .trainer = options.trainer,
                      .steps = options.steps,
                      .learning_rate = {.peak = options.learning_rate,
                                        .least = options.learning_rate,
                                        .steps = options.steps},
                      .progress = options.progress ? options.progress : [](const std::string&) {}});
    return {.text = converge_table(made),
            .page = converge_html(made, call_of("converge", model)),
            .json = converge_json(made)};
}

Report lint(Device& device, const nn::Model& model, const Options& options) {
    const LintReport made = run_lint(device, model,
                                     {.policy = options.trainer.policy,
                                      .batch = options.trainer.batch,
                                      .repeats = static_cast<int>(options.repeats),
                                      .progress = options.progress});
    return {
        .text = lint_table(made), .page = lint_html(made, call_of("lint", model)), .json = lint_json(made)};
}

}  // namespace mantissa::report
