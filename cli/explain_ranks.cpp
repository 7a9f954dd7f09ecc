// `explain --ranks`: a step's estimated time on so many ranks over a link, and the fastest buckets and
// micro-batches.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cli/command_line.h"
#include "cli/explain_steps.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/ranks/ranks.h"
#include "mantissa/report/peaks.h"
#include "mantissa/report/rank_estimate.h"
#include "mantissa/report/roofline.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

namespace {

constexpr std::int64_t megabyte = std::int64_t{1} << 20;

void validate(const RankQuestion& question) {
    if (question.ranks < 2 || question.ranks > 4096)
        throw UserError(fmt::format("--ranks must be from 2 to 4096, got {}", question.ranks));
    if (!(question.link > 0) || !(question.latency >= 0))
        throw UserError(
            fmt::format("--link must be more than 0 GB/s and --latency 0 us or more, got {:g} and {:g}",
                        question.link, question.latency));
    if (question.measures && !question.on.empty())
        throw UserError(
            "--on takes the published peaks of an accelerator: without --roofline, which measures here");
}

Peaks published_peaks(const std::string& accelerator) {
    const FormatPeaks facts = accelerator_peaks(accelerator);
    Peaks peaks{.copy = facts.memory.value_or(0)};
    for (const MatrixPeak& each : facts.matrix)
        if (each.inputs == "bf16" && each.dense) peaks.bf16_matrix = std::max(peaks.bf16_matrix, *each.dense);
    for (const VectorPeak& each : facts.vector)
        if (each.format == "f32" && each.rate) peaks.f32_fma = *each.rate;
    return peaks;
}

/// Answers for one number of ranks.
class RankAnswers {
  public:
    RankAnswers(const RunOptions& run, const RankQuestion& question, FunctionRef<Peaks(Device&)> peaks)
        : run_(run),
          question_(question),
          ranks_(silent_transport(question.ranks)),
          device_(open_device(run, &ranks_)),
          policy_(policy_for(run, device_->target())),
          peaks_(question.on.empty() ? peaks(*device_)
                                     : in_option("--on", [&] { return published_peaks(question.on); })) {
        link_ = {.bytes_per_second = question.link * 1e9,
                 .latency = question.latency * 1e-6,
                 .local_bytes_per_second = peaks_.copy,
                 .in_pieces = question.on.empty()};
        if (question.on.empty()) {
            link_.core_seconds_per_byte = RankLink::core_seconds_per_byte_of_tcp;
            link_.threads = device_->target().threads;
        }
    }

    void print() {
        const std::int64_t batch = trainer_options(run_).batch;
        std::vector<RankOption> buckets;
        std::int64_t best = 0;
        for (const std::int64_t megabytes : {1, 4, 16, 64, 256}) {
            buckets.push_back(
                answer(batch, megabytes * megabyte, fmt::format("buckets of {} MB", megabytes)));
            if (buckets.back().units_per_second >= most(buckets)) best = megabytes * megabyte;
        }
        fmt::print("{}\n{}", heading(batch), rank_table(buckets, unit_));
        std::vector<RankOption> batches;
        for (const std::int64_t each : {batch, 2 * batch, 4 * batch, 8 * batch})
            if (each == batch || (!question_.measures && fits(each)))
                batches.push_back(answer(each, best, fmt::format("--batch {}", each)));
        if (batches.size() > 1) fmt::print("{}", rank_table(batches, unit_));
    }

  private:
    static double most(const std::vector<RankOption>& options) {
        return std::ranges::max(options, {}, &RankOption::units_per_second).units_per_second;
    }

    std::string heading(std::int64_t batch) const {
        const nn::Model model = training_model(run_);
        return fmt::format(
            "predicted, not measured: {}, {}, {} each, {}, gradients in {}, {:g} GB/s and "
            "{:g} us between them; launches {}",
            model.name, count_text(question_.ranks, "rank"), nn::batch_text(model, batch), policy_.name,
            question_.reduce_dtype, question_.link, question_.latency,
            question_.measures     ? "as measured here"
            : question_.on.empty() ? "at half of this machine's peaks"
                                   : fmt::format("at half of the published peaks of {}", question_.on));
    }

    TrainingPlan plan_of(std::int64_t batch, std::int64_t bucket_bytes) {
        TrainerOptions settings = in_policy(run_, policy_, device_->target());
        settings.batch = batch;
        settings.ranks = &ranks_;
        settings.bucket_bytes = bucket_bytes;
        if (question_.reduce_dtype == "bf16") settings.wire = Wire::bf16;
        return {*device_, training_model(run_), settings};
    }

    bool fits(std::int64_t batch) {
        return plan_of(batch, 16 * megabyte).memory().total() <= device_->free_memory();
    }

    RankOption answer(std::int64_t batch, std::int64_t bucket_bytes, std::string what) {
        TrainingPlan plan = plan_of(batch, bucket_bytes);
        unit_ = plan.model().unit;
        const auto units = static_cast<double>(plan.units_per_step());
        RankOption option{.what = std::move(what), .estimate = {}};
        if (question_.measures) {
            Trainer trainer(std::move(plan));
            const std::vector<double> seconds = measured(trainer);
            option.estimate = estimate_step(trainer.plan().step(), seconds, 0, link_);
        } else {
            const std::vector<double> seconds =
                estimated_node_seconds(plan.step(), peaks_, device_->target());
            option.estimate = estimate_step(plan.step(), seconds, 0, link_);
        }
        option.units_per_second = units / option.estimate.seconds;
        return option;
    }

    /// Medians of some steps on zeros, without other ranks: waits return at once.
    std::vector<double> measured(Trainer& trainer) {
        constexpr int warm_up = 2, steps = 5;
        std::vector<HostValues> zeros;
        std::vector<std::vector<std::byte>> bytes;
        for (const nn::InputSpec& input : trainer.model().inputs)
            bytes.emplace_back(static_cast<std::size_t>(input.type(trainer.plan().options().batch).bytes()));
        for (std::size_t i = 0; i < bytes.size(); ++i)
            zeros.push_back({trainer.model().inputs[i].dtype, bytes[i]});
        const Batch batch(std::move(zeros));
        std::vector<ProfiledStep> all;
        for (int step = -warm_up; step < steps; ++step) {
            Profile profile;
            const StepResult result = trainer.step(batch, 1e-4, &profile);
            if (step >= 0) all.push_back({std::move(profile), result.seconds});
        }
        return median_step(all).profile;
    }

    const RunOptions& run_;
    const RankQuestion& question_;
    Ranks ranks_;
    std::unique_ptr<Device> device_;
    Policy policy_;
    Peaks peaks_;
    RankLink link_;
    std::string unit_;
};

}  // namespace

void explain_ranks(const RunOptions& run, const RankQuestion& question, FunctionRef<Peaks(Device&)> peaks) {
    validate(question);
    if (run.device == "cuda")
        refuse_value("--device",
                     "a step among ranks is predicted from the CPU's plan, with --on at the published peaks "
                     "of an accelerator: leave it out");
    RankAnswers(run, question, peaks).print();
}

}  // namespace mantissa::cli
