#include "mantissa/report/explain_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace mantissa::inline v0 {

std::vector<PartKind> part_kinds_of(const ExplainedNode& node) {
    using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;
    struct Ops {
        const ExplainedNode* first;
        std::vector<std::pair<std::string, int>> counts;
    };
    std::map<Key, std::size_t> known;
    std::vector<Ops> kinds;
    for (const ExplainedNode& part : node.parts) {
        const auto [entry, is_new] = known.try_emplace(
            {part.storage, arithmetic_of(part), part.sum, part.output, part.rule}, kinds.size());
        if (is_new) kinds.push_back({&part, {}});
        auto& counts = kinds[entry->second].counts;
        const auto same = std::find_if(counts.begin(), counts.end(),
                                       [&](const auto& count) { return count.first == part.op; });
        if (same == counts.end())
            counts.emplace_back(part.op, 1);
        else
            ++same->second;
    }
    std::vector<PartKind> parts;
    for (const Ops& kind : kinds) {
        std::string ops;
        for (const auto& [op, count] : kind.counts)
            ops += fmt::format("{}{}{}", ops.empty() ? "" : ", ", op,
                               count == 1 ? "" : fmt::format(" ({})", count));
        parts.push_back({*kind.first, std::move(ops)});
    }
    return parts;
}

namespace {

/// By what fused kernels differ.
std::string parts_text(const ExplainedNode& node) {
    std::string text;
    for (const ExplainedNode& part : node.parts)
        text += fmt::format("{} {} {} {} {};", part.op, part.storage, arithmetic_of(part), part.output,
                            part.rule);
    return text;
}

}  // namespace

std::vector<ExplainedKind> kinds_of(const std::vector<ExplainedNode>& nodes) {
    using Key =
        std::tuple<std::string, std::string, std::string, std::string, std::string, std::string, std::string>;
    std::vector<ExplainedKind> kinds;
    std::map<Key, std::size_t> known;
    for (const ExplainedNode& node : nodes) {
        const Key key{node.pass,   node.op,   node.storage,    arithmetic_of(node),
                      node.output, node.rule, parts_text(node)};
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

std::vector<AttentionKind> kinds_of(const std::vector<ExplainedAttention>& attentions) {
    std::vector<AttentionKind> kinds;
    const auto said = [](const ExplainedAttention& a) {
        return std::tuple(a.form, a.formula, a.blocks, a.all_blocks, a.why);
    };
    for (const ExplainedAttention& attention : attentions) {
        const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const AttentionKind& k) {
            return said(k.attention) == said(attention);
        });
        if (kind == kinds.end())
            kinds.push_back({attention, 1});
        else
            ++kind->count;
    }
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
