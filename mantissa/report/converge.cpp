#include "mantissa/report/converge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/plain_nan.h"
#include "mantissa/base/printable.h"
#include "mantissa/report/ladder.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/diagnosis.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

double distance(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        sum += difference * difference;
    }
    return std::sqrt(sum);
}

bool is_trained_in_f32(const State& state) {
    return state.kind == State::Kind::parameter && state.type.dtype == DType::f32;
}

/// By parameter, the line of the first operation that reads it, cast or not.
std::map<std::string, std::string> lines_of_parameters(const Graph& graph) {
    std::map<std::string, std::string> lines;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        if (node.op->name == "cast") continue;
        for (Value value : node.inputs) {
            while (graph.node(value.node).op->name == "cast") value = graph.node(value.node).inputs[0];
            const int state = graph.state_of(value.node);
            if (state >= 0 && graph.state(state).kind == State::Kind::parameter)
                lines.try_emplace(graph.state(state).name, node.origin.line.text());
        }
    }
    return lines;
}

/// Keeps the weights of the first training in host memory, for comparison with the others.
class WeightsOfFirst {
  public:
    /// To be called before its first step.
    void begin(const Trainer& trainer) {
        const StateBlock& states = trainer.state();
        for (const State& state : states.states())
            if (is_trained_in_f32(state)) weights_[state.name].numbers = states.read_f32(state.name);
    }
    /// To be called after its last step.
    void end(const Trainer& trainer) {
        for (auto& [name, weight] : weights_) {
            std::vector<float> numbers = trainer.state().read_f32(name);
            weight.moved = distance(numbers, weight.numbers);
            weight.numbers = std::move(numbers);
        }
    }
    /// The weights of another training that end furthest away, at most `most`, the furthest first. Weights
    /// that the first training did not move are left out.
    std::vector<WeightApart> furthest(const Trainer& other, std::size_t most) const {
        const std::map<std::string, std::string> lines = lines_of_parameters(other.plan().step().graph());
        std::vector<WeightApart> all;
        for (const auto& [name, weight] : weights_) {
            const double share = distance(other.state().read_f32(name), weight.numbers) / weight.moved;
            if (!std::isfinite(share)) continue;
            const auto line = lines.find(name);
            all.push_back({.name = name, .line = line == lines.end() ? "" : line->second, .share = share});
        }
        std::ranges::stable_sort(all, std::greater{}, &WeightApart::share);
        if (all.size() > most) all.resize(most);
        return all;
    }

  private:
    struct Weight {
        std::vector<float> numbers;
        double moved = 0;  ///< norm of the training's total change
    };
    std::map<std::string, Weight> weights_;
};

// A run is given up after this many steps in a row that are not finite.
constexpr int bad_steps = 3;
// Number of weights that a run reports.
constexpr std::size_t named_weights = 3;

LossScaleOptions loss_scale_of(const ConvergeOptions& options, const Policy& policy) {
    LossScaleOptions scale = default_loss_scale(policy);
    if (scale.kind == LossScaleOptions::Kind::none || options.fixed_loss_scale == 0) return scale;
    scale.kind = LossScaleOptions::Kind::fixed;
    scale.initial = options.fixed_loss_scale;
    validate(scale);
    return scale;
}

/// A training under one policy, from the first step to the last.
class Training {
  public:
    Training(Device& device, const BatchSource& batches, const ConvergeOptions& options, const Policy& policy,
             std::uint64_t seed)
        : options_(options),
          trainer_(device, options.model, settings_of(options, policy, seed)),
          batches_(batches),
          buffer_(options.model, options.trainer.batch, options.trainer.accumulate) {
        if (options.begin) options.begin(trainer_.state());
        run_.policy = policy.name;
        if (seed != options.trainer.seed) seed_text_ = fmt::format(" from seed {}", seed);
        run_.scaled = trainer_.plan().options().loss_scale.kind != LossScaleOptions::Kind::none;
    }

    ConvergedRun run() {
        for (std::int64_t i = 0; i < options_.steps && run_.gave_up.empty(); ++i) {
            if (options_.progress)
                options_.progress(
                    fmt::format("{}{}: step {} of {}", run_.policy, seed_text_, i + 1, options_.steps));
            step(i);
            if (is_due(i)) {
                run_.accuracies.push_back(options_.accuracy(trainer_));
                run_.accuracy_steps.push_back(static_cast<double>(i));
            }
        }
        run_.loss_scale = trainer_.loss_scale().scale;
        if (run_.gave_up.empty() && run_.scaled)
            run_.lost = trainer_.underflow(batch_at(options_.steps - 1)).share();
        return std::move(run_);
    }

    const Trainer& trainer() const { return trainer_; }

  private:
    static TrainerOptions settings_of(const ConvergeOptions& options, const Policy& policy,
                                      std::uint64_t seed) {
        TrainerOptions settings = options.trainer;
        settings.seed = seed;
        settings.policy = policy;
        if (!settings.passes) settings.passes = {"simplify"};  // so that precision alone differs
        settings.loss_scale = loss_scale_of(options, policy);
        return settings;
    }

    /// Trainings for the spread of seeds report no accuracy.
    bool is_due(std::int64_t step) const {
        return options_.accuracy && options_.validate_every > 0 && seed_text_.empty() &&
               ((step + 1) % options_.validate_every == 0 || step + 1 == options_.steps);
    }

    Batch batch_at(std::int64_t step) { return buffer_.fill(batches_, static_cast<std::uint64_t>(step)); }

    void step(std::int64_t index) {
        const Batch batch = batch_at(index);
        const StepResult result = trainer_.step(batch, options_.learning_rate.at(index));
        run_.losses.push_back(static_cast<double>(result.loss));
        if (result.applied) {
            bad_in_a_row_ = 0;
            return;
        }
        ++run_.skipped;
        // A dynamic loss scale skips steps while it falls to the right scale; that is no fault.
        const LossScaleOptions& scaling = trainer_.plan().options().loss_scale;
        const bool searching = scaling.kind == LossScaleOptions::Kind::dynamic &&
                               trainer_.loss_scale().scale > scaling.floor && std::isfinite(result.loss);
        if (searching || ++bad_in_a_row_ < bad_steps) return;
        run_.scale_at_fault = is_fault_of_loss_scale(result.loss, trainer_.loss_scale().scale);
        const auto found = trainer_.first_non_finite(batch, options_.learning_rate.at(index));
        run_.gave_up = fmt::format("{} steps in a row were not finite, the last at step {}: {}", bad_steps,
                                   index, found ? found->text() : "nothing was found when it was run again");
    }

    const ConvergeOptions& options_;
    Trainer trainer_;
    const BatchSource& batches_;
    BatchBuffer buffer_;
    ConvergedRun run_;
    std::string seed_text_;
    int bad_in_a_row_ = 0;
};

double mean_of_last(const std::vector<double>& losses, std::int64_t averaged) {
    const std::size_t count = std::min(static_cast<std::size_t>(averaged), losses.size());
    double sum = 0;
    for (std::size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
    return count == 0 ? 0 : plain_nan(sum / static_cast<double>(count));
}

/// Why this run is no reference; empty: it is one.
std::string broken_training(const ConvergedRun& first) {
    if (!first.gave_up.empty()) return "broke down itself";
    if (first.losses.empty() || first.mean <= first.losses.front()) return "";
    return fmt::format("came from a loss of {:.4f} to {:.4f} itself", first.losses.front(), first.mean);
}

/// Trains under the first policy from the seeds after the run's own seed, which was used already.
SeedSpread spread_of_seeds(Device& device, const BatchSource& batches, const ConvergeOptions& options,
                           const ConvergedRun& first, std::int64_t averaged) {
    SeedSpread spread;
    if (!broken_training(first).empty()) return spread;
    spread.seeds = {options.trainer.seed};
    spread.means = {first.mean};
    for (int i = 1; i < options.seeds && options.tolerance < 0; ++i) {
        const std::uint64_t seed = options.trainer.seed + static_cast<std::uint64_t>(i);
        ConvergedRun run = Training(device, batches, options, options.policies.front(), seed).run();
        run.mean = mean_of_last(run.losses, averaged);
        // A run that does not train differs from all, and would make all agree.
        if (!broken_training(run).empty()) continue;
        spread.seeds.push_back(seed);
        spread.means.push_back(run.mean);
    }
    const auto [least, most] = std::minmax_element(spread.means.begin(), spread.means.end());
    spread.largest = *most - *least;
    return spread;
}

void judge(ConvergedRun& run, const ConvergeOptions& options, const Policy& policy,
           const ConvergeReport& report) {
    const ConvergedRun& first = report.runs.front();
    run.difference = plain_nan(run.mean - first.mean);
    run.allowed = options.tolerance;
    if (options.tolerance >= 0) return;
    // Seeds that differ by more than the loss has fallen would let anything agree.
    const double tolerance = loss_tolerance_of(policy), apart = report.spread.largest,
                 fallen = first.fallen();
    const bool needs_no_seeds = std::abs(run.difference) <= tolerance;
    run.allowed = needs_no_seeds && apart >= fallen ? tolerance : std::max(tolerance, apart);
    run.undecided = &run != &first && run.agrees() && run.allowed >= fallen;
}

void find_furthest(ConvergedRun& run, const ConvergedRun& first) {
    const std::size_t steps = std::min(run.losses.size(), first.losses.size());
    for (std::size_t i = 0; i < steps; ++i) {
        const double difference = plain_nan(run.losses[i] - first.losses[i]);
        // The negation makes a NaN the furthest difference.
        if (i > 0 && std::abs(difference) <= std::abs(run.furthest)) continue;
        run.furthest = difference;
        run.furthest_step = static_cast<std::int64_t>(i);
        if (!std::isfinite(difference)) return;
    }
}

/// Whether a policy computes in this format, or emulates it.
bool is_of_format(const ConvergedRun& run, std::string_view format) {
    return run.policy == format || run.policy == fmt::format("emulated {}", format);
}

/// TF32 has 10 bits of fraction: FP16 as many, BF16 fewer. If one agrees, the bits are not at fault.
std::string tf32_finding(const ConvergeReport& report) {
    const ConvergedRun *tf32 = nullptr, *acquits = nullptr;
    for (const ConvergedRun& run : report.runs) {
        if (!tf32 && is_of_format(run, "tf32")) tf32 = &run;
        if (!acquits && run.agrees() && (is_of_format(run, "bf16") || is_of_format(run, "fp16")))
            acquits = &run;
    }
    if (!tf32) return "It was not run here: compare fp32 and tf32, too.";
    if (tf32->undecided) return "Here it cannot be told whether it agrees: make more steps.";
    if (tf32->agrees())
        return "Here it agrees, so 10 bits of fraction are enough and the range of 8 exponent bits is: look "
               "at "
               "what has fewer.";
    if (acquits)
        return fmt::format(
            "Here it does not agree, but {} does, which has no more bits of fraction: so a lack of bits is "
            "not the fault. More steps tell a difference that stays from one that passes.",
            acquits->policy);
    return "Here it does not agree either, so this network wants more than 10 bits of fraction, or a smaller "
           "learning rate; no loss scale will help.";
}

std::string scale_finding(const ConvergeReport& report) {
    std::string text;
    for (const ConvergedRun& run : report.runs)
        if (run.scaled)
            text +=
                fmt::format("{}{}: {:g} after the last step, {} of {} skipped.", text.empty() ? "" : " ",
                            run.policy, run.loss_scale, run.skipped, count_text(run.losses.size(), "step"));
    return text.empty() ? "None of these runs has one." : text;
}

std::string loss_finding(const ConvergeReport& report) {
    std::string text;
    for (const ConvergedRun& run : report.runs)
        if (run.scaled && !run.losses.empty())
            text += fmt::format("{}{}: {:.4f} times {:g} is {:.3g}.", text.empty() ? "" : " ", run.policy,
                                run.losses.back(), run.loss_scale, run.losses.back() * run.loss_scale);
    return text;
}

std::string underflow_finding(const ConvergeReport& report) {
    std::string text;
    for (const ConvergedRun& run : report.runs)
        if (run.scaled && run.gave_up.empty())
            text +=
                fmt::format("{}{}: {:.2f} % of the gradients became zero when they were cast, at the end.",
                            text.empty() ? "" : " ", run.policy, 100 * run.lost);
    return text;
}

}  // namespace

// A NaN difference does not agree.
bool ConvergedRun::agrees() const { return !undecided && gave_up.empty() && std::abs(difference) <= allowed; }

double ConvergedRun::fallen() const { return losses.empty() ? 0 : losses.front() - mean; }

bool ConvergeReport::all_agree() const {
    return broken().empty() &&
           std::all_of(runs.begin(), runs.end(), [](const ConvergedRun& run) { return run.agrees(); });
}

bool ConvergeReport::none_differs() const {
    return broken().empty() && std::all_of(runs.begin(), runs.end(), [](const ConvergedRun& run) {
               return run.undecided || run.agrees();
           });
}

std::string ConvergeReport::broken() const { return broken_training(runs.front()); }

void require_comparable(const std::vector<Policy>& policies) {
    if (policies.size() < 2)
        throw UserError(fmt::format("two precisions or more are compared, got {}", policies.size()));
    for (const Policy& policy : policies)
        if (std::count_if(policies.begin(), policies.end(),
                          [&](const Policy& other) { return other.name == policy.name; }) > 1)
            throw UserError(fmt::format("the policy {} was named twice", policy.name));
}

ConvergeReport run_converge(Device& device, const BatchSource& batches, const ConvergeOptions& options) {
    require_comparable(options.policies);
    if (options.steps < 1) throw UserError(fmt::format("steps must be 1 or more, got {}", options.steps));
    validate(options.learning_rate);
    if (options.seeds < 1) throw UserError(fmt::format("seeds must be 1 or more, got {}", options.seeds));
    ConvergeReport report{.model = reported(options.model, nn::facts_of(options.model, options.trainer.batch),
                                            options.trainer.batch),
                          .steps = options.steps,
                          .seed = options.trainer.seed,
                          .learning_rate = options.learning_rate,
                          .averaged = std::clamp<std::int64_t>(options.steps / 4, 1, 20),
                          .runs = {}};
    WeightsOfFirst weights;
    for (const Policy& policy : options.policies) {
        Training training(device, batches, options, policy, options.trainer.seed);
        if (report.runs.empty()) weights.begin(training.trainer());
        ConvergedRun run = training.run();
        if (report.runs.empty())
            weights.end(training.trainer());
        else if (run.gave_up.empty())
            run.weights = weights.furthest(training.trainer(), named_weights);
        run.mean = mean_of_last(run.losses, report.averaged);
        report.runs.push_back(std::move(run));
        find_furthest(report.runs.back(), report.runs.front());
    }
    report.spread = spread_of_seeds(device, batches, options, report.runs.front(), report.averaged);
    for (std::size_t i = 0; i < report.runs.size(); ++i)
        judge(report.runs[i], options, options.policies[i], report);
    return report;
}

std::vector<std::string> where_to_look(const ConvergeReport& report) {
    if (report.all_agree()) return {};
    if (const std::string broken = report.broken(); !broken.empty())
        return {fmt::format(
            "Look at the training, not at the precisions: {}, what the others are held against, {}. Lower "
            "the learning rate {:g} until it trains, and compare then.",
            report.runs.front().policy, broken, report.learning_rate.peak)};
    if (report.none_differs()) return {"Make more steps, until the loss has fallen further than that."};
    const auto with = [](const std::string& place, const std::string& finding) {
        return finding.empty() ? place : place + " " + finding;
    };
    return {
        with("Try TF32: it has FP32's range and FP16's precision, so it tells a lack of bits from a lack of "
             "range.",
             tf32_finding(report)),
        with("Look at the loss scale: one that sinks to its floor means numbers that overflow whatever the "
             "scale, one that is fixed and small that gradients may be lost.",
             scale_finding(report)),
        with("Compare the loss with and without the scale: without it, it must be FP32's; with it, and in "
             "every gradient, it must stay finite.",
             loss_finding(report)),
        with("Look for underflow: the page of numerics shows the gradients of every tensor under "
             "FP16's range, and proposes a scale.",
             underflow_finding(report))};
}

}  // namespace mantissa
