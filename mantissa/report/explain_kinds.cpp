#include "mantissa/report/explain_kinds.h"

#include <map>
#include <tuple>

namespace mantissa::inline v0 {

std::vector<ExplainedKind> kinds_of(const std::vector<ExplainedNode>& nodes) {
    using Key = std::tuple<std::string, std::string, std::string, std::string, std::string, std::string>;
    std::vector<ExplainedKind> kinds;
    std::map<Key, std::size_t> known;
    for (const ExplainedNode& node : nodes) {
        const Key key{node.pass, node.op, node.storage, arithmetic_of(node), node.output, node.rule};
        const auto [entry, is_new] = known.try_emplace(key, kinds.size());
        if (is_new) {
            kinds.push_back({node, 1});
            continue;
        }
        ExplainedKind& kind = kinds[entry->second];
        kind.node.flops += node.flops;
        kind.node.bytes += node.bytes;
        ++kind.count;
    }
    return kinds;
}

std::vector<CastKind> kinds_of(const std::vector<ExplainedCast>& casts) {
    std::map<std::tuple<std::string, std::string, std::string, std::string>, CastKind> by_key;
    for (const ExplainedCast& cast : casts) {
        const auto [entry, is_new] =
            by_key.try_emplace({cast.pass, cast.from, cast.to, cast.rule}, CastKind{cast, 1});
        if (is_new) continue;
        entry->second.cast.bytes += cast.bytes;
        ++entry->second.count;
    }
    std::vector<CastKind> kinds;
    for (auto& [key, kind] : by_key) kinds.push_back(std::move(kind));
    return kinds;
}

std::vector<RefusalKind> kinds_of(const std::vector<PassRefusal>& refused) {
    std::vector<RefusalKind> kinds;
    std::map<std::tuple<std::string, std::string, std::string>, std::size_t> known;
    for (const PassRefusal& refusal : refused) {
        const auto [entry, is_new] =
            known.try_emplace({refusal.pass, refusal.op, refusal.reason}, kinds.size());
        if (is_new) kinds.push_back({refusal, 0});
        ++kinds[entry->second].count;
    }
    return kinds;
}

std::vector<ArithmeticTotal> totals_of(const Explanation& explanation) {
    std::map<std::string, ArithmeticTotal> by_arithmetic;
    for (const ExplainedNode& node : explanation.nodes) {
        const std::string arithmetic = arithmetic_of(node);
        ArithmeticTotal& total = by_arithmetic[arithmetic];
        total.name = arithmetic == "-" ? "movement" : arithmetic;
        total.flops += node.flops;
        total.bytes += node.bytes;
    }
    std::vector<ArithmeticTotal> totals;
    for (auto& [key, total] : by_arithmetic) totals.push_back(std::move(total));
    ArithmeticTotal casts{.name = "casts"};
    for (const ExplainedCast& cast : explanation.casts) casts.bytes += cast.bytes;
    totals.push_back(std::move(casts));
    return totals;
}

}  // namespace mantissa
