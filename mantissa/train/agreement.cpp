#include "mantissa/train/agreement.h"

#include <fmt/format.h>

#include "mantissa/base/checksum.h"
#include "mantissa/base/version.h"
#include "mantissa/graph/graph.h"
#include "mantissa/train/state_tensors.h"

namespace mantissa::inline v0 {

namespace {

std::string text_of(const Configuration& configuration) {
    std::string text;
    for (const Setting& setting : configuration)
        std::visit(
            [&](const auto& value) {
                text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", setting.name, value);
            },
            setting.value);
    return text;
}

std::string checksum_of_plans(const TrainingPlan& plan) {
    std::string text = plan.step().text();
    for (const auto& before : plan.accumulate()) text += before->text();
    return checksum_text(checksum_of(std::as_bytes(std::span(text))));
}

/// The first rank with another value than rank 0; 0: none.
int first_other(const std::vector<std::string>& all) {
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank] != all[0]) return static_cast<int>(rank);
    return 0;
}

}  // namespace

RankFacts facts_of(const TrainingPlan& plan) {
    const TrainerOptions& options = plan.options();
    return {
        {"version", std::string(version()) + " " + std::string(commit())},
        {"instruction set", plan.device().target().isa},
        {"BF16 unit", plan.device().target().bf16_unit.empty() ? "none" : plan.device().target().bf16_unit},
        {"model", plan.model().name + ": " + text_of(plan.model().configuration)},
        {"policy", std::string(options.policy.name)},
        {"batch", fmt::format("{}", options.batch)},
        {"micro-batches", fmt::format("{}", options.accumulate)},
        {"seed", fmt::format("{}", options.seed)},
        {"optimizer", fmt::format("{}: {}, clip = {}", options.optimizer.name,
                                  text_of(options.optimizer.configuration), options.optimizer.clip)},
        {"gradients on the wire", options.wire == Wire::bf16 ? "bf16" : "fp32"},
        {"plan of a step (checksum)", checksum_of_plans(plan)}};
}

void require_alike(Ranks& ranks, const RankFacts& facts) {
    for (const auto& [name, value] : facts) {
        const std::vector<std::string> all = ranks.gather(value);
        if (const int other = first_other(all); other != 0)
            throw AgreedError(fmt::format(
                "ranks differ in {}: {} has {}, {} has {}; start the same program with the same options on "
                "all of them",
                name, ranks.name_of(other), all[other], ranks.name_of(0), all[0]));
    }
}

void require_same_states(Ranks& ranks, const StateBlock& state, std::int64_t step) {
    std::vector<std::string> names;
    std::vector<std::uint64_t> checksums;
    for (const State& each : state.states()) {
        // Sharded states differ from rank to rank. Of a sharded parameter, the copy that every rank holds is
        // compared.
        const bool is_kept = is_weight(each) || is_of_optimizer(each) || each.kind == State::Kind::derived;
        if (!is_kept || each.shard_of) continue;
        names.push_back(each.name);
        checksums.push_back(checksum_of(state.read(each.name)));
    }
    const auto* bytes = reinterpret_cast<const char*>(checksums.data());
    const std::size_t size = sizeof(std::uint64_t);
    const std::vector<std::string> all = ranks.gather(std::string(bytes, checksums.size() * size));
    const int other = first_other(all);
    if (other == 0) return;
    std::size_t first = 0;
    while (all[0].compare(first * size, size, all[other], first * size, size) == 0) ++first;
    throw AgreedError(fmt::format(
        "after step {} {} has other numbers than {} in {}: ranks have drifted apart, by a fault of "
        "memory or of a network; resume from the last checkpoint",
        step, ranks.name_of(other), ranks.name_of(0), names[first]));
}

}  // namespace mantissa
