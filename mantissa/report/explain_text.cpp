// An explanation as a table and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/version.h"
#include "mantissa/report/explain.h"
#include "mantissa/report/explain_kinds.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

constexpr const char* row = "{:<20} {:<9} {:>6} {:<10} {:<15} {:<5} {:<8} {:>11} {:>11}  {}\n";

std::string header() {
    return fmt::format(row, "operation", "pass", "nodes", "stored", "multiplied", "sum", "output", "GFLOP",
                       "MB", "rule");
}

std::string line(const ExplainedNode& node, const std::string& name, int count) {
    return fmt::format(row, name, node.pass, count, node.storage, arithmetic_of(node),
                       node.sum.empty() ? "-" : node.sum, node.output,
                       fmt::format("{:.3f}", gigaflops(node.flops)),
                       fmt::format("{:.2f}", megabytes(node.bytes)), node.rule);
}

/// What is in a fused kernel, below its line.
std::string part_lines(const ExplainedNode& node) {
    std::string text;
    for (const PartKind& kind : part_kinds_of(node))
        text += fmt::format(row, "  in it", "", "", kind.part.storage, arithmetic_of(kind.part),
                            kind.part.sum.empty() ? "-" : kind.part.sum, kind.part.output, "", "",
                            kind.part.rule + ": " + kind.ops);
    return text;
}

std::string cast_lines(const std::vector<ExplainedCast>& casts) {
    if (casts.empty()) return "no casts\n";
    std::string text = fmt::format("{:<16} {:<9} {:>6} {:>11}  {}\n", "casts", "pass", "nodes", "MB", "rule");
    for (const CastKind& kind : kinds_of(casts))
        text += fmt::format("{:<16} {:<9} {:>6} {:>11.2f}  {}\n", kind.cast.from + " -> " + kind.cast.to,
                            kind.cast.pass, kind.count, megabytes(kind.cast.bytes), kind.cast.rule);
    return text;
}

/// Nothing where there is no attention.
std::string attention_lines(const std::vector<ExplainedAttention>& attentions) {
    if (attentions.empty()) return "";
    std::string text =
        fmt::format("{:<40} {:>6} {:>15}  {}\n", "attention", "nodes", "blocks", "f(s), and why");
    for (const auto& [attention, count] : kinds_of(attentions))
        text += fmt::format("{:<40} {:>6} {:>15}  {}; blocks of {} x {}: {}\n", attention.form, count,
                            fmt::format("{} of {}", attention.blocks, attention.all_blocks),
                            attention.formula, attention.queries, attention.keys, attention.why);
    return text + "\n";
}

/// Nothing where no pass refused anything, as where none ran.
std::string refusal_lines(const std::vector<PassRefusal>& refused) {
    if (refused.empty()) return "";
    std::string text =
        fmt::format("{:<16} {:<20} {:>6}  {}\n", "left as it was", "operation", "times", "why");
    for (const RefusalKind& kind : kinds_of(refused))
        text += fmt::format("{:<16} {:<20} {:>6}  {}\n", kind.refusal.pass, kind.refusal.op, kind.count,
                            kind.refusal.reason);
    return text + "\n";
}

std::string totals(const Explanation& explanation) {
    const std::vector<ArithmeticTotal> parts = totals_of(explanation);
    ArithmeticTotal all{.name = "all"};
    for (const ArithmeticTotal& part : parts) {
        all.flops += part.flops;
        all.bytes += part.bytes;
    }
    const auto share = [](std::int64_t part, std::int64_t whole) {
        return whole == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
    };
    const auto total_line = [&](const ArithmeticTotal& total) {
        return fmt::format("{:<16} {:>12.3f} {:>6.1f} % {:>12.2f} {:>6.1f} %\n", total.name,
                           gigaflops(total.flops), share(total.flops, all.flops), megabytes(total.bytes),
                           share(total.bytes, all.bytes));
    };
    std::string text = fmt::format("{:<16} {:>12} {:>8} {:>12} {:>8}\n", "totals", "GFLOP", "", "MB", "");
    for (const ArithmeticTotal& part : parts) text += total_line(part);
    return text + total_line(all);
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

/// What is said of a node and of a part of a fused one alike.
nlohmann::ordered_json formats_json(const ExplainedNode& node) {
    return {{"op", node.op},
            {"name", node.name},
            {"pass", node.pass},
            {"storage", node.storage},
            {"multiply", or_null(node.multiply)},
            {"sum", or_null(node.sum)},
            {"output", node.output},
            {"rule", node.rule}};
}

nlohmann::ordered_json node_json(const ExplainedNode& node) {
    nlohmann::ordered_json json = formats_json(node);
    json["kernel"] = node.kernel;
    json["bytes"] = node.bytes;
    json["flops"] = node.flops;
    if (node.parts.empty()) return json;
    json["parts"] = nlohmann::ordered_json::array();
    for (const ExplainedNode& part : node.parts) json["parts"].push_back(formats_json(part));
    return json;
}

}  // namespace

std::string explain_table(const Explanation& explanation, Detail detail) {
    std::string text = explanation.title() + "\n" + explanation.passes_text() + "\n\n" + header();
    if (detail == Detail::kinds)
        for (const ExplainedKind& kind : kinds_of(explanation.nodes))
            text += line(kind.node, kind.node.op, kind.count) + part_lines(kind.node);
    else
        for (const ExplainedNode& node : explanation.nodes)
            text += line(node, node.op, 1) + part_lines(node) +
                    fmt::format("    {}, {}\n", node.name, node.kernel);
    return text + "\n" + attention_lines(explanation.attentions) + cast_lines(explanation.casts) + "\n" +
           totals(explanation) + "\n" + refusal_lines(explanation.refused) + memory_table(explanation.memory);
}

std::string explain_json(const Explanation& explanation, const ThreadReport* threads) {
    nlohmann::ordered_json json = {{"command", "explain"},
                                   {"version", version()},
                                   {"commit", commit()},
                                   {"model", explanation.model.name},
                                   {"policy", explanation.policy},
                                   {"batch", explanation.model.batch},
                                   {"sequence", explanation.model.units_per_example},
                                   {"of", explanation.of},
                                   {"passes", explanation.passes},
                                   {"nodes", nlohmann::ordered_json::array()},
                                   {"casts", nlohmann::ordered_json::array()}};
    for (const ExplainedNode& node : explanation.nodes) json["nodes"].push_back(node_json(node));
    for (const ExplainedCast& cast : explanation.casts)
        json["casts"].push_back({{"name", cast.name},
                                 {"pass", cast.pass},
                                 {"from", cast.from},
                                 {"to", cast.to},
                                 {"bytes", cast.bytes},
                                 {"rule", cast.rule}});
    json["attentions"] = nlohmann::ordered_json::array();
    for (const ExplainedAttention& attention : explanation.attentions)
        json["attentions"].push_back({{"name", attention.name},
                                      {"form", attention.form},
                                      {"formula", attention.formula},
                                      {"blocks",
                                       {{"computed", attention.blocks},
                                        {"all", attention.all_blocks},
                                        {"queries", attention.queries},
                                        {"keys", attention.keys}}},
                                      {"why", attention.why}});
    json["refused"] = nlohmann::ordered_json::array();
    for (const PassRefusal& refusal : explanation.refused)
        json["refused"].push_back({{"pass", refusal.pass},
                                   {"op", refusal.op},
                                   {"place", or_null(refusal.place)},
                                   {"reason", refusal.reason}});
    json["memory"] = memory_json(explanation.memory);
    if (threads) json["threads"] = thread_json(*threads);
    return json.dump(2) + "\n";
}

}  // namespace mantissa
