#include "mantissa/report/ladder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>

#include "mantissa/base/error.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/report/kept_peaks.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/step_estimate.h"
#include "mantissa/train/step_execution.h"

namespace mantissa::inline v0 {

namespace {

/// The operations that a rung changes; if the model has none, the rung equals the one before.
enum class Change : std::uint8_t { none, attention, fused_linear_cross_entropy };

struct Rung {
    std::string_view name;
    std::string_view policy;
    double loss_tolerance;      ///< allowed difference of its losses from the first rung's
    std::string_view multiply;  ///< factors of its matrix multiplies; they add in FP32
    bool fuse = false;
    bool match_attention = false;
    bool pad = false;  ///< if a size is ugly; else it equals the rung before
    bool fuse_linear_cross_entropy = false;
    Change change = Change::none;

    /// The optional passes. Rungs that follow PyTorch cast weights at each use, as it does.
    std::vector<std::string> passes() const {
        std::vector<std::string> names{"simplify"};
        if (fuse) names.insert(names.end(), {"fuse", "lay_out"});
        if (match_attention) names.emplace_back("match_attention");
        if (pad) names.emplace_back("pad");
        if (fuse_linear_cross_entropy) names.emplace_back("fuse_linear_cross_entropy");
        return names;
    }
};

constexpr std::string_view fp32_with_all_passes = "fp32-all";

/// A policy below sixteen bits, which has its name: as the rung `loss`, except for its roundings.
constexpr Rung with_all_passes(std::string_view policy, double loss_tolerance) {
    return {.name = policy,
            .policy = policy,
            .loss_tolerance = loss_tolerance,
            .multiply = "bf16",
            .fuse = true,
            .match_attention = true,
            .pad = true,
            .fuse_linear_cross_entropy = true};
}

/// Existing rungs, in the ladder's order. Tolerances: equal kernels give equal bits, and passes change the
/// order of sums; BF16 keeps 8 bits of each operand, TF32 and FP16 keep 11; losses of GPT-2 over tens of
/// steps were seen to differ by 0.001. Below sixteen bits: the largest gaps that papers report after
/// trainings (docs/guide/below-sixteen-bits.md).
constexpr Rung known_rungs[] = {
    {.name = "fp32", .policy = "fp32", .loss_tolerance = 0.0, .multiply = "f32"},
    {.name = "tf32", .policy = "tf32", .loss_tolerance = 1e-3, .multiply = "tf32"},
    {.name = "bf16", .policy = "bf16", .loss_tolerance = 0.02, .multiply = "bf16"},
    {.name = "compiled", .policy = "bf16", .loss_tolerance = 0.02, .multiply = "bf16", .fuse = true},
    {.name = "flash",
     .policy = "bf16",
     .loss_tolerance = 0.02,
     .multiply = "bf16",
     .fuse = true,
     .match_attention = true,
     .change = Change::attention},
    {.name = "nice",
     .policy = "bf16",
     .loss_tolerance = 0.02,
     .multiply = "bf16",
     .fuse = true,
     .match_attention = true,
     .pad = true},
    {.name = "loss",
     .policy = "bf16",
     .loss_tolerance = 0.02,
     .multiply = "bf16",
     .fuse = true,
     .match_attention = true,
     .pad = true,
     .fuse_linear_cross_entropy = true,
     .change = Change::fused_linear_cross_entropy},
    {.name = fp32_with_all_passes,
     .policy = "fp32",
     .loss_tolerance = 1e-3,
     .multiply = "f32",
     .fuse = true,
     .match_attention = true,
     .pad = true,
     .fuse_linear_cross_entropy = true},
    {.name = "fp16", .policy = "fp16", .loss_tolerance = 0.02, .multiply = "f16"},
    with_all_passes("fp8", 0.02),
    with_all_passes("fp8-delayed", 0.02),
    with_all_passes("fp8-block", 0.02),
    with_all_passes("mxfp8", 0.02),
    with_all_passes("mxfp6", 0.03),
    with_all_passes("mxfp6-e2m3", 0.03),
    with_all_passes("mxfp4", 0.11),
    with_all_passes("mxfp4-up", 0.11),
    with_all_passes("nvfp4", 0.06)};

const Rung& find_rung(const std::string& name) {
    for (const Rung& rung : known_rungs)
        if (rung.name == name) return rung;
    throw UserError(
        fmt::format("there is no rung '{}'; there are: {}", name, fmt::join(ladder_rungs(), ", ")));
}

TrainerOptions options_of(const Rung& rung, TrainerOptions options) {
    options.policy = find_policy(rung.policy);
    options.passes = rung.passes();
    options.loss_scale = {};
    return options;
}

double median_deviation(std::vector<double> values) {
    const double center = median(values);
    for (double& value : values) value = std::abs(value - center);
    return median(values);
}

/// The beginning of another memory, which must outlive it.
class PartOfMemory final : public DeviceMemory {
  public:
    PartOfMemory(DeviceMemory& whole, std::size_t bytes) : whole_(whole), bytes_(bytes) {}
    std::byte* data() const override { return whole_.data(); }
    std::size_t size() const override { return bytes_; }

  private:
    DeviceMemory& whole_;
    std::size_t bytes_;
};

/// Memory for measuring copies beside an arena: none if the arena is large enough.
std::int64_t scratch_beside(std::int64_t arena, const Target& target) {
    return arena >= copy_scratch_bytes(target) ? 0 : copy_scratch_bytes(target);
}

/// Throws UserError if a rung would run another rung's kernels. Only policies of FP8 have FP8 products.
void require_own_kernels(const Rung& rung, const Plan& plan) {
    for (const PlannedNode* planned : plan.nodes_of("matmul"))
        if (planned->arithmetic.multiply != rung.multiply || planned->arithmetic.sums != DType::f32)
            throw UserError(fmt::format("rung {} multiplies {} and adds in f32, but '{}' would run",
                                        rung.name, rung.multiply, planned->kernel));
}

std::vector<std::string> matmul_kernels_of(const Plan& plan) {
    std::vector<std::string> kernels = plan.kernels_of("matmul");
    std::ranges::copy(plan.kernels_of("scaled_matmul"), std::back_inserter(kernels));
    return kernels;
}

/// The reason why a rung has no effect on this model's plan; empty if it has one.
std::string no_change(const Rung& rung, const TrainingPlan& plan) {
    const auto missing = [&](std::string_view op, std::string_view pass, std::string_view what) {
        if (!plan.step().kernels_of(op).empty()) return std::string();
        for (const PassRefusal& refusal : plan.refused())
            if (refusal.pass == pass)
                return fmt::format("no {} was found: {}{}", what, refusal.reason,
                                   refusal.line.empty() ? "" : " (" + refusal.line + ")");
        return fmt::format("{} has no {}", plan.model().name, what);
    };
    if (find_policy(rung.policy).blocks && plan.step().kernels_of("round_blocks").empty())
        return fmt::format("{} has no layer that {} rounds", plan.model().name, rung.policy);
    switch (rung.change) {
        case Change::attention:
            return missing("attention", "match_attention", "attention");
        case Change::fused_linear_cross_entropy:
            return missing("linear_cross_entropy", "fuse_linear_cross_entropy",
                           "linear layer with a cross-entropy");
        case Change::none:
            break;
    }
    return {};
}

/// A rung while the ladder runs.
struct RunningRung {
    const Rung& rung;
    Trainer trainer;
    std::vector<double> losses = {};
    std::vector<double> seconds = {};
    // The last step of training is profiled, so that profiling disturbs no timed step.
    Profile profile = {};
    double profiled_seconds = 0;
    std::size_t part = 0;  ///< index in the remaining time
};

class LadderRun {
  public:
    LadderRun(Device& device, const BatchSource& batches, const LadderOptions& options)
        : device_(device),
          options_(options),
          batches_(batches),
          buffer_(options.model, options.trainer.batch) {}

    LadderReport run() {
        if (options_.steps < 1 || options_.repeats < 1)
            throw UserError(fmt::format("steps and repeats must be 1 or more, got {} and {}", options_.steps,
                                        options_.repeats));
        allocate(build());
        for (RunningRung& running : rungs_) train(running);
        compare_losses();
        time_in_turns();
        report();
        return std::move(report_);
    }

  private:
    void say(const std::string& what) const {
        if (!options_.progress) return;
        options_.progress(time_left_.is_measured()
                              ? fmt::format("{}; about {} to go", what, duration_text(time_left_.seconds()))
                              : what);
    }

    struct PlannedRung {
        const Rung& rung;
        TrainingPlan plan;
    };

    std::vector<PlannedRung> build() {
        for (const std::string& name : options_.rungs) find_rung(name);
        std::vector<PlannedRung> planned;
        for (const std::string& name : options_.rungs) {
            say(name + ": building");
            const Rung& rung = find_rung(name);
            TrainingPlan plan(device_, options_.model, options_of(rung, options_.trainer));
            require_own_kernels(rung, plan.step());
            if (std::string reason = no_change(rung, plan); !reason.empty())
                report_.skipped.push_back({name, std::move(reason)});
            else
                planned.push_back({rung, std::move(plan)});
        }
        if (planned.empty())
            throw UserError(fmt::format("none of these rungs changes anything in {}: {}", options_.model.name,
                                        report_.skipped.front().reason));
        return planned;
    }

    void allocate(std::vector<PlannedRung> planned) {
        report_.process_bytes = resident_memory();
        std::vector<const TrainingPlan*> plans;
        for (const PlannedRung& each : planned) {
            plans.push_back(&each.plan);
            if (each.plan.memory().total() > report_.memory.total()) report_.memory = each.plan.memory();
        }
        memory_ = allocate_training_memory(plans);
        for (PlannedRung& each : planned) {
            time_left_.add(estimated_seconds(each.plan, options_.known_peaks, device_.target()),
                           options_.steps + options_.repeats);
            rungs_.push_back({each.rung, Trainer(std::move(each.plan), memory_)});
            rungs_.back().part = rungs_.size() - 1;
        }
        prepare_scratch();
    }

    /// Between steps, the arena holds nothing that is still needed.
    void prepare_scratch() {
        report_.scratch_bytes =
            scratch_beside(static_cast<std::int64_t>(memory_->arena->size()), device_.target());
        const auto bytes = static_cast<std::size_t>(copy_scratch_bytes(device_.target()));
        if (report_.scratch_bytes == 0)
            scratch_ = std::make_unique<PartOfMemory>(*memory_->arena, bytes);
        else
            scratch_ = device_.allocate(bytes, "bandwidth measurement");
    }

    StepResult step(RunningRung& running, std::int64_t index, Profile* profile = nullptr) {
        const Batch batch = buffer_.fill(batches_, static_cast<std::uint64_t>(index));
        const StepResult result = running.trainer.step(batch, options_.learning_rate, profile);
        time_left_.took(running.part, result.seconds);
        // A dynamic loss scale may skip steps while it falls; their loss counts all the same.
        const bool scaled = running.trainer.plan().options().loss_scale.kind != LossScaleOptions::Kind::none;
        if (!result.applied && !(scaled && std::isfinite(result.loss)))
            throw UserError(fmt::format("{}: the loss of step {} is not finite", running.rung.name, index));
        return result;
    }

    void train(RunningRung& running) {
        memory_->state->initialize(options_.trainer.seed);
        if (options_.begin) options_.begin(*memory_->state);
        for (std::int64_t i = 0; i < options_.steps; ++i) {
            say(fmt::format("{}: training, step {} of {}", running.rung.name, i + 1, options_.steps));
            const StepResult result = step(running, i, i + 1 == options_.steps ? &running.profile : nullptr);
            running.losses.push_back(static_cast<double>(result.loss));
            running.profiled_seconds = result.seconds;
        }
    }

    void time_in_turns() {
        for (std::int64_t i = 0; i < options_.repeats; ++i)
            for (RunningRung& running : rungs_) {
                say(fmt::format("timing, turn {} of {}: {}", i + 1, options_.repeats, running.rung.name));
                measure_peaks();
                running.seconds.push_back(step(running, options_.steps + i).seconds);
            }
        measure_peaks();
    }

    void measure_peaks() { report_.peaks = larger_of(report_.peaks, device_.measure_peaks(*scratch_)); }

    /// Batch norms over the few pixels of a ladder's batch amplify every rounding without a bound, so a fault
    /// cannot be told apart. Their losses are shown and not judged; converge judges them by seeds.
    bool judges_losses() const {
        const std::vector<State>& states = rungs_.front().trainer.plan().step().graph().states();
        return std::ranges::none_of(states,
                                    [](const State& state) { return state.kind == State::Kind::running; });
    }

    void compare_losses() const {
        if (!judges_losses()) return;
        const RunningRung& first = rungs_.front();
        for (const RunningRung& running : rungs_)
            for (std::size_t i = 0; i < running.losses.size(); ++i) {
                const double tolerance = std::max(running.rung.loss_tolerance, first.rung.loss_tolerance);
                if (!(std::abs(running.losses[i] - first.losses[i]) <= tolerance))
                    throw UserError(fmt::format(
                        "the loss of {} at step {} is {}, that of {} is {}: further apart than {}",
                        running.rung.name, i, running.losses[i], first.rung.name, first.losses[i],
                        tolerance));
            }
    }

    void report() {
        settle_peaks();
        report_.target = device_.target();
        const TrainingPlan& plan = rungs_.front().trainer.plan();
        report_.model = reported(plan.model(), plan.facts(), plan.options().batch);
        report_.optimizer = plan.options().optimizer.name;
        for (const RunningRung& running : rungs_) report_.rungs.push_back(report_of(running));
    }

    /// A kernel that ran faster than a peak is a better measurement of it, so that no share exceeds 1.
    void settle_peaks() {
        Peaks& peaks = report_.peaks;
        const Peaks known = options_.known_peaks;
        if (known.f32_fma > peaks.f32_fma || known.bf16_matrix > peaks.bf16_matrix || known.copy > peaks.copy)
            report_.known_from = options_.known_from;
        peaks = larger_of(peaks, known);
        for (const RunningRung& running : rungs_) {
            const TrainingPlan& plan = running.trainer.plan();
            const double reached = plan.flops_per_step() / median(running.seconds);
            const double peak = peak_of(plan.step());
            if (reached > peak) (peak == peaks.f32_fma ? peaks.f32_fma : peaks.bf16_matrix) = reached;
        }
    }

    RungReport report_of(const RunningRung& running) const {
        const TrainingPlan& plan = running.trainer.plan();
        const double typical = median(running.seconds);
        const double flops = plan.flops_per_step();
        RungReport rung{.name = std::string(running.rung.name),
                        .milliseconds = typical * 1e3,
                        .deviation = median_deviation(running.seconds) * 1e3,
                        .units_per_second = static_cast<double>(plan.units_per_step()) / typical,
                        .mfu = flops / typical / report_.peaks.fastest(),
                        .peak_bytes = plan.memory().total(),
                        .build_milliseconds = plan.build_milliseconds(),
                        .losses = running.losses,
                        .loss_tolerance = judges_losses() ? running.rung.loss_tolerance : INFINITY,
                        .policy = plan.options().policy.name,
                        .passes = chosen_passes(plan.pipeline()),
                        .matmul_kernels = matmul_kernels_of(plan.step()),
                        .attention_kernels = plan.step().kernels_of("attention"),
                        .loss_kernels = plan.step().kernels_of("linear_cross_entropy"),
                        .pads = running.rung.pad,
                        .padded = plan.padded()};
        rung.roofline = roofline(plan.step(), running.profile, report_.peaks, running.profiled_seconds);
        rung.share_of_unit_peak = flops / typical / peak_of(plan.step());
        if (!report_.rungs.empty()) {
            rung.speedup = report_.rungs.front().milliseconds / rung.milliseconds;
            rung.step_speedup = report_.rungs.back().milliseconds / rung.milliseconds;
        }
        return rung;
    }

    /// The lowest peak among the units of its products, which all of the rung can reach.
    double peak_of(const Plan& plan) const {
        double lowest = report_.peaks.fastest();
        for (const PlannedNode* planned : plan.nodes_of("matmul"))
            lowest = std::min(lowest, unit_peak(planned->arithmetic, report_.peaks, device_.target()));
        return lowest;
    }

    Device& device_;
    const LadderOptions& options_;
    const BatchSource& batches_;
    BatchBuffer buffer_;
    TimeLeft time_left_;
    std::deque<RunningRung> rungs_;  // a deque keeps trainers in place
    std::shared_ptr<TrainingMemory> memory_;
    std::unique_ptr<DeviceMemory> scratch_;
    LadderReport report_;
};

}  // namespace

std::vector<std::string> ladder_rungs() {
    std::vector<std::string> names;
    for (const Rung& rung : known_rungs) names.emplace_back(rung.name);
    return names;
}

std::vector<std::string> default_rungs(const Target& target) {
    std::vector<std::string> names;
    for (const std::string& name : ladder_rungs()) {
        if (name == "fp16" || find_policy(find_rung(name).policy).blocks) continue;
        if (name == fp32_with_all_passes && !target.bf16_unit.empty()) continue;
        if (name == "tf32" && (!target.tf32_beats_fp32 || !target.cannot_multiply_tf32.empty())) continue;
        if (find_rung(name).fuse && !target.cannot_compile.empty()) continue;
        names.push_back(name);
    }
    return names;
}

namespace {

/// The planned ladder: about its seconds, by the peaks, and the largest memory of a rung.
struct PlannedLadder {
    double seconds = 0;
    std::int64_t memory = 0, arena = 0;
};

PlannedLadder planned_ladder(Device& device, const LadderOptions& options, std::int64_t batch) {
    PlannedLadder ladder;
    for (const std::string& name : options.rungs) {
        TrainerOptions trainer = options_of(find_rung(name), options.trainer);
        trainer.batch = batch;
        const TrainingPlan plan(device, options.model, std::move(trainer));
        ladder.memory = std::max(ladder.memory, plan.memory().total());
        ladder.arena = std::max(ladder.arena, plan.memory().arena);
        ladder.seconds += static_cast<double>(options.steps + options.repeats) *
                          estimated_seconds(plan, options.known_peaks, device.target());
    }
    return ladder;
}

}  // namespace

LadderSize ladder_size(Device& device, const LadderOptions& options, double max_seconds) {
    LadderSize size;
    for (const std::int64_t batch : {4, 2, 1}) {
        const PlannedLadder ladder = planned_ladder(device, options, batch);
        const std::int64_t needed = ladder.memory + scratch_beside(ladder.arena, device.target());
        if (batch > 1 && needed > device.free_memory()) continue;
        if (batch > size.max_that_fits || size.seconds_of_most == 0) {
            size.max_that_fits = batch;
            size.seconds_of_most = ladder.seconds;
        }
        size.batch = batch;
        size.seconds = ladder.seconds;
        if (ladder.seconds <= max_seconds) break;
    }
    return size;
}

double loss_tolerance_of(const Policy& policy) {
    // Below sixteen bits, a training agrees if it does as well as one in sixteen bits; a rung of the ladder
    // may deviate more on the way.
    if (policy.blocks) return find_rung("bf16").loss_tolerance;
    const std::string_view name = policy.emulate.empty()    ? std::string_view(policy.name)
                                  : policy.emulate == "f16" ? "fp16"
                                                            : std::string_view(policy.emulate);
    for (const Rung& rung : known_rungs)
        if (rung.policy == name) return rung.loss_tolerance;
    throw InternalError("every policy has its rung");
}

LadderReport run_ladder(Device& device, const BatchSource& batches, const LadderOptions& options) {
    if (options.rungs.empty()) throw UserError("no rung was asked for");
    return LadderRun(device, batches, options).run();
}

}  // namespace mantissa
