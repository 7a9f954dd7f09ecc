#include "mantissa/report/explain_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace mantissa::inline v0 {

namespace {

/// Items of the same key. `add` adds one to the first of its kind.
template <class Item, class KeyOf, class Add>
std::vector<Kind<Item>> alike(const std::vector<Item>& items, const KeyOf& key_of, const Add& add) {
    std::vector<Kind<Item>> kinds;
    std::map<decltype(key_of(items.front())), std::size_t> known;
    for (const Item& item : items) {
        const auto [entry, is_new] = known.try_emplace(key_of(item), kinds.size());
        if (is_new)
            kinds.push_back({item});
        else
            add(kinds[entry->second].first, item);
        ++kinds[entry->second].count;
    }
    return kinds;
}

constexpr auto add_nothing = [](auto&, const auto&) {};

std::tuple<std::string, std::string, std::string, std::string, std::string> formats_and_rule(
    const ExplainedNode& node) {
    return {node.storage, arithmetic_of(node), node.sum, node.output, node.rule};
}

/// By what fused kernels differ.
std::string parts_text(const ExplainedNode& node) {
    std::string text;
    for (const ExplainedNode& part : node.parts)
        text += fmt::format("{} {} {} {} {};", part.op, part.storage, arithmetic_of(part), part.output,
                            part.rule);
    return text;
}

}  // namespace

std::vector<Kind<ExplainedNode>> kinds_of(const std::vector<ExplainedNode>& nodes) {
    return alike(
        nodes,
        [](const ExplainedNode& node) {
            return std::tuple(node.pass, node.op, node.storage, arithmetic_of(node), node.output, node.rule,
                              parts_text(node));
        },
        [](ExplainedNode& all, const ExplainedNode& node) {
            all.flops += node.flops;
            all.bytes += node.bytes;
        });
}

std::vector<Kind<ExplainedCast>> kinds_of(const std::vector<ExplainedCast>& casts) {
    return alike(
        casts, [](const ExplainedCast& cast) { return std::tuple(cast.pass, cast.from, cast.to, cast.rule); },
        [](ExplainedCast& all, const ExplainedCast& cast) { all.bytes += cast.bytes; });
}

std::vector<Kind<ExplainedAttention>> kinds_of(const std::vector<ExplainedAttention>& attentions) {
    return alike(
        attentions,
        [](const ExplainedAttention& a) {
            return std::tuple(a.form, a.formula, a.blocks, a.all_blocks, a.why);
        },
        add_nothing);
}

std::vector<Kind<PassRefusal>> kinds_of(const std::vector<PassRefusal>& refused) {
    return alike(
        refused,
        [](const PassRefusal& refusal) { return std::tuple(refusal.pass, refusal.op, refusal.reason); },
        add_nothing);
}

std::vector<PartKind> part_kinds_of(const ExplainedNode& node) {
    std::vector<PartKind> parts;
    const auto formats_and_op = [](const ExplainedNode& part) {
        return std::tuple(formats_and_rule(part), part.op);
    };
    for (const auto& [part, count] : alike(node.parts, formats_and_op, add_nothing)) {
        auto same = std::ranges::find(parts, formats_and_rule(part),
                                      [](const PartKind& kind) { return formats_and_rule(kind.part); });
        if (same == parts.end()) same = parts.insert(same, {part, ""});
        same->ops += fmt::format("{}{}{}", same->ops.empty() ? "" : ", ", part.op,
                                 count == 1 ? "" : fmt::format(" ({})", count));
    }
    return parts;
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
