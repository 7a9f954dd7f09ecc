#include "mantissa/train/picture_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/data/picture_reader.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/execution.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::int64_t few = 5;

/// Before the class of the label come those whose score is higher, or no number.
std::int64_t rank_of(std::span<const double> scores, std::size_t label) {
    std::int64_t before = std::isfinite(scores[label]) ? 0 : few;
    for (std::size_t i = 0; i < scores.size(); ++i)
        if (!(scores[i] <= scores[label]) || (scores[i] == scores[label] && i < label)) ++before;
    return before;
}

BuiltGraph build(const TrainingPlan& training, const nn::ImageModel& network) {
    PipelineOptions pipeline = training.options().pipeline;
    pipeline.dump = {};
    const std::int64_t batch = training.options().batch, side = network.sizes.image;
    const auto trace = [&](Graph& graph) {
        const Tensor images(graph, graph.add_input("images", {DType::f32, {batch, side, side, 3}}));
        return network.logits(images, nn::Mode{});
    };
    return build_evaluation(trace, pipeline, "logits");
}

}  // namespace

void PictureScores::add(std::span<const double> scores, std::int32_t label) {
    const auto at = static_cast<std::size_t>(label);
    const double highest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - highest);
    total_loss += highest + std::log(sum) - scores[at];
    const std::int64_t rank = rank_of(scores, at);
    ++pictures;
    top1 += rank < 1;
    top5 += rank < few;
}

struct PictureScorer::Forward {
    Forward(const Trainer& trainer, const nn::ImageModel& network)
        : Forward(trainer, build(trainer.plan(), network)) {}

    Forward(const Trainer& trainer, BuiltGraph built)
        : device(trainer.plan().device()),
          plan(std::move(built.graph), device),
          derive(std::move(built.derive), device),
          state(device, plan.graph().states(), trainer.state()),
          arena(allocate()),
          execution(plan, state, *arena),
          derivation(derive, state, *arena) {}

    std::unique_ptr<DeviceMemory> allocate() const {
        const std::int64_t bytes = std::max(plan.memory().arena_bytes, derive.memory().arena_bytes);
        if (const std::int64_t available = device.free_memory(); bytes > available)
            throw UserError(fmt::format("validation needs {} MB more, {} MB are available; lower the batch",
                                        bytes / 1000000, available / 1000000));
        return device.allocate(static_cast<std::size_t>(bytes), "validation");
    }

    void add(const Batch& batch, PictureScores& scores) {
        execution.set_input("images", batch.values()[0].bytes);
        execution.run();
        const std::vector<std::byte> logits = execution.read_result("logits");
        const std::span labels(reinterpret_cast<const std::int32_t*>(batch.values()[1].bytes.data()),
                               batch.values()[1].bytes.size() / sizeof(std::int32_t));
        const Type& type = plan.graph().type(plan.graph().results().front().value);
        const std::int64_t classes = type.shape[-1];
        std::vector<double> row(static_cast<std::size_t>(classes));
        for (std::size_t i = 0; i < labels.size(); ++i) {
            if (labels[i] == PictureBatches::no_class) continue;
            for (std::int64_t c = 0; c < classes; ++c)
                row[static_cast<std::size_t>(c)] =
                    load_as_f64(logits.data(), type.dtype, static_cast<std::int64_t>(i) * classes + c);
            scores.add(row, labels[i]);
        }
    }

    Device& device;
    Plan plan, derive;
    StateBlock state;
    std::unique_ptr<DeviceMemory> arena;
    Execution execution, derivation;
};

PictureScorer::PictureScorer(const Trainer& trainer, const nn::ImageModel& network)
    : forward_(std::make_unique<Forward>(trainer, network)) {}

PictureScorer::~PictureScorer() = default;

PictureScores PictureScorer::score(const PictureBatches& pictures, std::uint64_t most_steps, int threads,
                                   FunctionRef<void(std::uint64_t done, std::uint64_t of)> made) {
    const std::uint64_t steps = std::min(pictures.steps_per_epoch(), most_steps);
    PictureReader reader(pictures, {.threads = threads, .end = steps});
    forward_->derivation.run();
    PictureScores scores;
    for (std::uint64_t step = 0; step < steps; ++step) {
        forward_->add(reader.next(), scores);
        made(step + 1, steps);
    }
    if (scores.pictures == 0)
        throw UserError(fmt::format("none of the {} pictures of validation can be decoded",
                                    std::min(pictures.set().count(), steps * pictures.rows_per_step())));
    return scores;
}

}  // namespace mantissa
