// Every combination of the optional passes on one model: the time of a step, and the distance of `train`'s
// own choice from the best.
//
// Combinations with equal plans are one. First each runs alone, then the best ones and train's own in turns,
// on one state; the first step of each turn is not counted. BENCH_MODEL (gpt2-tiny), BENCH_BATCH (1),
// BENCH_SEQUENCE (the context), BENCH_POLICY (the fastest), BENCH_STEPS (5), BENCH_TURNS (7), BENCH_THREADS
// (all); BENCH_PAIRS=1: only train's own choice and those with one pass or two switched. MANTISSA_ISA chooses
// the level.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/step_execution.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2.h"

namespace mantissa {
namespace {

std::string text_option(const char* name, const std::string& standard) {
    const char* const text = std::getenv(name);
    return text ? text : standard;
}

struct Candidate {
    std::string passes;
    std::unique_ptr<Trainer> trainer;
    std::vector<double> alone = {}, in_turns = {};
};

class Comparison {
  public:
    explicit Comparison(Device& device)
        : device_(device),
          policy_(chosen_policy()),
          config_(nn::gpt2_config(text_option("BENCH_MODEL", "gpt2-tiny"))) {
        sequence_ = on_cpu::option("BENCH_SEQUENCE", static_cast<int>(config_.context));
        batch_ = on_cpu::option("BENCH_BATCH", 1);
        fill_batch();
        fmt::print("{}, {} x {} tokens a step, {}, {}, {} threads\n", config_.name, batch_, sequence_,
                   policy_.name, device.target().isa, device.target().threads);
        plan();
    }

    void run() {
        const int steps = on_cpu::option("BENCH_STEPS", 5), turns = on_cpu::option("BENCH_TURNS", 7);
        for (Candidate& each : candidates_) time(each, steps, each.alone);
        std::ranges::stable_sort(candidates_, {}, [](const Candidate& c) { return on_cpu::median(c.alone); });
        for (const Candidate& each : candidates_)
            fmt::print("{:8.2f} ms  {}{}\n", on_cpu::median(each.alone), each.passes, own_mark(each));
        std::vector<Candidate*> finalists;
        for (std::size_t i = 0; i < candidates_.size(); ++i)
            if (i < 5 || is_own(candidates_[i])) finalists.push_back(&candidates_[i]);
        for (int turn = 0; turn < turns; ++turn)
            for (Candidate* each : finalists) time(*each, 2, each->in_turns);
        std::ranges::stable_sort(finalists, {},
                                 [](const Candidate* c) { return on_cpu::median(c->in_turns); });
        fmt::print("in turns:\n");
        const double best = on_cpu::median(finalists.front()->in_turns);
        for (const Candidate* each : finalists) {
            const double typical = on_cpu::median(each->in_turns);
            fmt::print("{:8.2f} ms {:6.1f} %  {}{}\n", typical, 100 * (typical / best - 1), each->passes,
                       own_mark(*each));
        }
    }

  private:
    Policy chosen_policy() const {
        return find_policy(text_option("BENCH_POLICY", device_.target().fastest_policy));
    }

    void fill_batch() {
        const RandomStream random{.seed = 1};
        for (std::int64_t i = 0; i < batch_ * sequence_; ++i) {
            const auto token = [&](std::int64_t element) {
                return static_cast<std::int32_t>(random.bits(static_cast<std::uint64_t>(element)) %
                                                 static_cast<std::uint32_t>(config_.vocabulary));
            };
            tokens_.push_back(token(2 * i));
            targets_.push_back(token(2 * i + 1));
        }
    }

    bool is_own(const Candidate& candidate) const { return candidate.passes == own_; }
    const char* own_mark(const Candidate& candidate) const {
        return is_own(candidate) ? "   <- train's own" : "";
    }

    static std::string text_of(const std::vector<std::string>& names) {
        return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
    }

    void plan() {
        const std::vector<std::string> names = runnable_passes(device_.target(), policy_);
        const bool pairs = on_cpu::option("BENCH_PAIRS", 0) != 0;
        std::vector<std::unique_ptr<TrainingPlan>> plans;
        std::vector<std::string> texts;
        for (unsigned bits = (1U << names.size()); bits-- > 0;) {
            std::vector<std::string> on;
            for (std::size_t i = 0; i < names.size(); ++i)
                if (bits >> i & 1) on.push_back(names[i]);
            if (pairs && names.size() - static_cast<std::size_t>(std::popcount(bits)) > 2) continue;
            const TrainerOptions options{.batch = batch_, .policy = policy_, .passes = on};
            auto plan = std::make_unique<TrainingPlan>(device_, nn::gpt2_model(config_, sequence_), options);
            const std::string text = plan->step().text();
            if (on.size() == names.size()) own_ = text_of(on);
            if (std::ranges::find(texts, text) != texts.end()) continue;
            texts.push_back(text);
            plans.push_back(std::move(plan));
            candidates_.push_back({text_of(on), nullptr});
        }
        std::vector<const TrainingPlan*> views;
        for (const auto& each : plans) views.push_back(each.get());
        const auto memory = allocate_training_memory(views);
        memory->state->initialize(1337);
        for (std::size_t i = 0; i < plans.size(); ++i)
            candidates_[i].trainer = std::make_unique<Trainer>(std::move(*plans[i]), memory);
        fmt::print("{} combinations, {} different plans\n", 1U << names.size(), candidates_.size());
    }

    /// The first step finds another candidate's caches and derived states.
    void time(Candidate& candidate, int steps, std::vector<double>& into) {
        for (int i = 0; i < steps + 1; ++i) {
            const StepResult result = candidate.trainer->step({tokens_, targets_}, 1e-4);
            if (i > 0) into.push_back(1e3 * result.seconds);
        }
    }

    Device& device_;
    Policy policy_;
    nn::Gpt2Config config_;
    std::int64_t sequence_ = 0, batch_ = 0;
    std::vector<std::int32_t> tokens_, targets_;
    std::string own_;
    std::vector<Candidate> candidates_;
};

}  // namespace
}  // namespace mantissa

int main() {
    const auto device = mantissa::make_cpu_device({.threads = mantissa::on_cpu::option("BENCH_THREADS", 0)});
    mantissa::Comparison(*device).run();
}
