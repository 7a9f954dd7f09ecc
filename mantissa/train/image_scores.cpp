#include "mantissa/train/image_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/data/image_batches.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/forward.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::int64_t few = 5;

/// Classes that rank before the label's: their scores are higher, or not finite.
std::int64_t rank_of(std::span<const double> scores, std::size_t label) {
    std::int64_t before = std::isfinite(scores[label]) ? 0 : few;
    for (std::size_t i = 0; i < scores.size(); ++i)
        if (!(scores[i] <= scores[label]) || (scores[i] == scores[label] && i < label)) ++before;
    return before;
}

}  // namespace

void ImageScores::add(std::span<const double> scores, std::int32_t label) {
    const auto at = static_cast<std::size_t>(label);
    const double highest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - highest);
    const double loss = highest + std::log(sum) - scores[at];
    total_loss += loss;
    not_finite += std::isfinite(loss) ? 0 : 1;
    const std::int64_t rank = rank_of(scores, at);
    classes = std::ssize(scores);
    ++images;
    top1 += rank < 1;
    top5 += rank < few;
}

ImageScorer::ImageScorer(const Trainer& trainer) {
    const TrainingPlan& training = trainer.plan();
    PipelineOptions pipeline = training.pipeline();
    pipeline.dump = {};
    const auto trace = [&](Graph& graph) {
        return nn::trace_output(training.model(), graph, training.options().batch);
    };
    forward_ = std::make_unique<Forward>(training.device(), trace, pipeline, "logits", &trainer.state());
    forward_->bind(trainer.state(), {"validation", "lower the batch"});
}

ImageScorer::~ImageScorer() = default;

void ImageScorer::add(const Batch& batch, ImageScores& scores) {
    Execution& execution = forward_->execution();
    execution.set_input("images", batch.values()[0].bytes);
    execution.run();
    const std::vector<std::byte> logits = execution.read_result("logits");
    const std::span labels(reinterpret_cast<const std::int32_t*>(batch.values()[1].bytes.data()),
                           batch.values()[1].bytes.size() / sizeof(std::int32_t));
    const Graph& graph = forward_->plan().graph();
    const Type& type = graph.type(graph.results().front().value);
    const std::int64_t classes = type.shape[-1];
    std::vector<double> row(classes);
    for (std::size_t i = 0; i < labels.size(); ++i) {
        if (labels[i] == ImageBatches::no_class) continue;
        for (std::int64_t c = 0; c < classes; ++c)
            row[c] = load_as_f64(logits.data(), type.dtype, static_cast<std::int64_t>(i) * classes + c);
        scores.add(row, labels[i]);
    }
}

ImageScores ImageScorer::score(const ImageBatches& images, std::uint64_t max_steps, int threads,
                               FunctionRef<void(std::uint64_t done, std::uint64_t of)> made) {
    const std::uint64_t steps = std::min(images.steps_per_epoch(), max_steps);
    ImageReader reader(images, {.threads = threads, .end = steps});
    forward_->derive();
    ImageScores scores;
    for (std::uint64_t step = 0; step < steps; ++step) {
        add(reader.next(), scores);
        made(step + 1, steps);
    }
    if (scores.images == 0)
        throw UserError(fmt::format("none of the {} images of validation can be decoded",
                                    std::min(images.set().count(), steps * images.rows_per_step())));
    return scores;
}

}  // namespace mantissa
