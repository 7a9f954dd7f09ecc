// An explanation as a table, as JSON and as the difference of two.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "mantissa/base/version.h"
#include "mantissa/report/explain.h"

namespace mantissa {

namespace {

constexpr const char* row = "{:<20} {:<9} {:>6} {:<10} {:<15} {:<5} {:<8} {:>11} {:>11}  {}\n";

std::string header() {
    return fmt::format(row, "operation", "pass", "nodes", "stored", "multiplied", "sum", "output", "GFLOP",
                       "MB", "rule");
}

double giga(std::int64_t flops) { return static_cast<double>(flops) / 1e9; }
double mega(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

std::string line(const ExplainedNode& node, const std::string& name, int count) {
    return fmt::format(row, name, node.pass, count, node.storage, arithmetic_of(node),
                       node.sum.empty() ? "-" : node.sum, node.output,
                       fmt::format("{:.3f}", giga(node.flops)), fmt::format("{:.2f}", mega(node.bytes)),
                       node.rule);
}

/// Nodes that differ in nothing but their place in the model, added up, in order of first use.
std::string lines_by_kind(const std::vector<ExplainedNode>& nodes) {
    using Key = std::tuple<std::string, std::string, std::string, std::string, std::string, std::string>;
    std::vector<std::pair<ExplainedNode, int>> kinds;
    std::map<Key, std::size_t> known;
    for (const ExplainedNode& node : nodes) {
        const Key key{node.pass, node.op, node.storage, arithmetic_of(node), node.output, node.rule};
        const auto [entry, is_new] = known.try_emplace(key, kinds.size());
        if (is_new) {
            kinds.emplace_back(node, 1);
            continue;
        }
        auto& [kind, count] = kinds[entry->second];
        kind.flops += node.flops;
        kind.bytes += node.bytes;
        ++count;
    }
    std::string text;
    for (const auto& [kind, count] : kinds) text += line(kind, kind.op, count);
    return text;
}

std::string cast_lines(const std::vector<ExplainedCast>& casts) {
    std::map<std::tuple<std::string, std::string, std::string, std::string>, std::pair<int, std::int64_t>>
        kinds;
    for (const ExplainedCast& cast : casts) {
        auto& [count, bytes] = kinds[{cast.pass, cast.from, cast.to, cast.rule}];
        ++count;
        bytes += cast.bytes;
    }
    if (kinds.empty()) return "no casts\n";
    std::string text = fmt::format("{:<16} {:<9} {:>6} {:>11}  {}\n", "casts", "pass", "nodes", "MB", "rule");
    for (const auto& [key, total] : kinds) {
        const auto& [pass, from, to, rule] = key;
        text += fmt::format("{:<16} {:<9} {:>6} {:>11.2f}  {}\n", from + " -> " + to, pass, total.first,
                            mega(total.second), rule);
    }
    return text;
}

std::string totals(const Explanation& explanation) {
    std::map<std::string, std::pair<std::int64_t, std::int64_t>> by_arithmetic;
    std::int64_t flops = 0, bytes = 0, cast_bytes = 0;
    for (const ExplainedNode& node : explanation.nodes) {
        auto& total = by_arithmetic[arithmetic_of(node)];
        total.first += node.flops;
        total.second += node.bytes;
        flops += node.flops;
        bytes += node.bytes;
    }
    for (const ExplainedCast& cast : explanation.casts) cast_bytes += cast.bytes;
    bytes += cast_bytes;
    const auto share = [](std::int64_t part, std::int64_t whole) {
        return whole == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
    };
    const auto total_line = [&](const std::string& name, std::int64_t f, std::int64_t b) {
        return fmt::format("{:<16} {:>12.3f} {:>6.1f} % {:>12.2f} {:>6.1f} %\n", name, giga(f),
                           share(f, flops), mega(b), share(b, bytes));
    };
    std::string text = fmt::format("{:<16} {:>12} {:>8} {:>12} {:>8}\n", "totals", "GFLOP", "", "MB", "");
    for (const auto& [arithmetic, total] : by_arithmetic)
        text += total_line(arithmetic == "-" ? "movement" : arithmetic, total.first, total.second);
    text += total_line("casts", 0, cast_bytes);
    return text + total_line("all", flops, bytes);
}

nlohmann::ordered_json or_null(const std::string& text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

nlohmann::ordered_json memory_json(const MemoryAtPeak& memory) {
    nlohmann::ordered_json json = {
        {"state", memory.state},
        {"arena", memory.arena},
        {"inputs", memory.inputs},
        {"total", memory.total()},
        {"peak", {{"op", memory.peak_op}, {"name", memory.peak_name}, {"pass", memory.peak_pass}}},
        {"live", nlohmann::ordered_json::array()}};
    for (const LiveValues& kind : memory.live)
        json["live"].push_back({{"op", kind.op},
                                {"pass", kind.pass},
                                {"type", or_null(kind.type)},
                                {"values", kind.count},
                                {"bytes", kind.bytes}});
    return json;
}

}  // namespace

std::string explain_table(const Explanation& explanation, Detail detail) {
    std::string text = fmt::format("{} at {} x {}, policy {}: one training step\n\n", explanation.model,
                                   explanation.batch, explanation.sequence, explanation.policy) +
                       header();
    if (detail == Detail::kinds)
        text += lines_by_kind(explanation.nodes);
    else
        for (const ExplainedNode& node : explanation.nodes)
            text += line(node, node.op, 1) + fmt::format("    {}, {}\n", node.name, node.kernel);
    return text + "\n" + cast_lines(explanation.casts) + "\n" + totals(explanation) + "\n" +
           memory_table(explanation.memory);
}

std::string explain_json(const Explanation& explanation) {
    nlohmann::ordered_json json = {{"command", "explain"},
                                   {"version", version()},
                                   {"commit", commit()},
                                   {"model", explanation.model},
                                   {"policy", explanation.policy},
                                   {"batch", explanation.batch},
                                   {"sequence", explanation.sequence},
                                   {"nodes", nlohmann::ordered_json::array()},
                                   {"casts", nlohmann::ordered_json::array()}};
    for (const ExplainedNode& node : explanation.nodes)
        json["nodes"].push_back({{"op", node.op},
                                 {"name", node.name},
                                 {"pass", node.pass},
                                 {"storage", node.storage},
                                 {"multiply", or_null(node.multiply)},
                                 {"sum", or_null(node.sum)},
                                 {"output", node.output},
                                 {"rule", node.rule},
                                 {"kernel", node.kernel},
                                 {"bytes", node.bytes},
                                 {"flops", node.flops}});
    for (const ExplainedCast& cast : explanation.casts)
        json["casts"].push_back({{"name", cast.name},
                                 {"pass", cast.pass},
                                 {"from", cast.from},
                                 {"to", cast.to},
                                 {"bytes", cast.bytes},
                                 {"rule", cast.rule}});
    json["memory"] = memory_json(explanation.memory);
    return json.dump(2) + "\n";
}

std::string explain_difference(const Explanation& first, const Explanation& second) {
    // Without their casts two policies run the same operations in the same order.
    using Key = std::tuple<std::string, std::string, std::string, std::string>;
    std::vector<Key> order;
    std::map<Key, int> counts;
    const std::size_t common = std::min(first.nodes.size(), second.nodes.size());
    for (std::size_t i = 0; i < common; ++i) {
        const ExplainedNode &a = first.nodes[i], &b = second.nodes[i];
        const auto formats = [](const ExplainedNode& node) {
            return fmt::format("{} -> {} -> {}", node.storage, arithmetic_of(node), node.output);
        };
        if (formats(a) == formats(b)) continue;
        const Key key{a.pass, a.op, formats(a), formats(b)};
        if (counts[key]++ == 0) order.push_back(key);
    }
    std::string text = fmt::format("{} at {} x {}: what {} and {} do differently\n\n", first.model,
                                   first.batch, first.sequence, first.policy, second.policy);
    text += fmt::format("{:<20} {:<9} {:>6}  {:<32} {}\n", "operation", "pass", "nodes", first.policy,
                        second.policy);
    for (const Key& key : order)
        text += fmt::format("{:<20} {:<9} {:>6}  {:<32} {}\n", std::get<1>(key), std::get<0>(key),
                            counts[key], std::get<2>(key), std::get<3>(key));
    if (order.empty()) text += "nothing\n";
    if (first.nodes.size() != second.nodes.size())
        text += fmt::format("operations besides casts: {} and {}\n", first.nodes.size(), second.nodes.size());
    return text + fmt::format("casts: {} and {}\n", first.casts.size(), second.casts.size());
}

}  // namespace mantissa
