// An explanation as text, as JSON, and as one page with every node and, if it was measured, a roofline.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "mantissa/report/explain.h"
#include "mantissa/report/html.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/report.h"
#include "mantissa/report/source_lines.h"

namespace mantissa::inline v0 {

namespace {

/// Operations, including the contents of fused kernels, which differ from policy to policy.
std::vector<ExplainedNode> operations_of(const Explanation& explanation) {
    std::vector<ExplainedNode> operations;
    for (const ExplainedNode& node : explanation.nodes) {
        if (node.op != "fused") operations.push_back(node);
        for (const ExplainedNode& part : node.parts)
            if (part.op != "cast") operations.push_back(part);
    }
    return operations;
}

std::string formats_of(const ExplainedNode& node) {
    return fmt::format("{} -> {} -> {}", node.storage, arithmetic_of(node), node.output);
}

/// Counts of equal lines: pass, operation, and its formats under either policy.
class Lines {
  public:
    void add(const ExplainedNode& node, const std::string& first, const std::string& second) {
        const Grid::Row key{node.op, node.pass, first, second};
        if (counts_[key]++ == 0) order_.push_back(key);
    }

    std::string text(const std::string& first, const std::string& second) const {
        Grid grid{{"operation", "pass", "nodes", first, second}};
        for (const Grid::Row& key : order_)
            grid.rows.push_back({key[0], key[1], std::to_string(counts_.at(key)), key[2], key[3]});
        return grid.text() + (order_.empty() ? "nothing\n" : "");
    }

  private:
    std::vector<Grid::Row> order_;
    std::map<Grid::Row, int> counts_;
};

}  // namespace

std::string explain_difference(const Explanation& first, const Explanation& second) {
    using Where = std::tuple<std::string, std::string, std::string>;
    const auto where_of = [](const ExplainedNode& node) { return Where{node.pass, node.op, node.name}; };
    const std::vector<ExplainedNode> ours = operations_of(first), theirs = operations_of(second);
    std::map<Where, std::queue<std::size_t>> open;  // of `second`, not yet paired
    for (std::size_t i = 0; i < theirs.size(); ++i) open[where_of(theirs[i])].push(i);
    std::vector<bool> paired(theirs.size());
    Lines lines;
    for (const ExplainedNode& node : ours) {
        std::queue<std::size_t>& candidates = open[where_of(node)];
        if (candidates.empty()) {
            lines.add(node, formats_of(node), "not there");
            continue;
        }
        const ExplainedNode& other = theirs[candidates.front()];
        paired[candidates.front()] = true;
        candidates.pop();
        if (formats_of(node) != formats_of(other)) lines.add(node, formats_of(node), formats_of(other));
    }
    for (std::size_t i = 0; i < theirs.size(); ++i)
        if (!paired[i]) lines.add(theirs[i], "not there", formats_of(theirs[i]));
    std::string text = fmt::format("{} at {}: what {} and {} do differently in {}\n", first.model.name,
                                   first.model.examples, first.policy, second.policy, first.of);
    text += first.passes_text() + "\n\n";
    return text + lines.text(first.policy, second.policy) +
           fmt::format("casts: {} and {}\n", first.casts.size(), second.casts.size());
}

namespace {

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }
std::string gigas(std::int64_t flops) { return with_decimals(gigaflops(flops), 3); }
std::string megas(std::int64_t bytes) { return with_decimals(megabytes(bytes), 2); }

Grid kinds(const Explanation& explanation) {
    Grid grid{{"operation", "pass", "nodes", "stored", "multiplied", "sum", "output", "GFLOP", "MB", "rule"}};
    for (const auto& [node, count] : kinds_of(explanation.nodes)) {
        grid.rows.push_back({node.op, node.pass, std::to_string(count), node.storage, arithmetic_of(node),
                             or_dash(node.sum), node.output, gigas(node.flops), megas(node.bytes),
                             node.rule});
        for (const auto& [part, ops] : part_kinds_of(node))
            grid.rows.push_back({"  in it", "", "", part.storage, arithmetic_of(part), or_dash(part.sum),
                                 part.output, "", "", part.rule + ": " + ops});
    }
    return grid;
}

struct RuleMeaning {
    std::string_view rule, means;
};
constexpr RuleMeaning rule_meanings[] = {
    {"f32 list", "the policy keeps such operations in FP32"},
    {"bf16 list", "the policy gives such operations BF16"},
    {"f16 list", "the policy gives such operations FP16"},
    {"tf32 list", "the policy gives such operations TF32"},
    {"promotion", "the widest format of the operands"},
    {"input types", "the formats that the operands are stored in"},
    {"asked for", "the model's code, or the pass that made the operation, says so"},
    {"its parts'", "those of the lines \"in it\""},
    {"copy", "that of what a pass copied into another layout"},
};

/// Whether a node's format follows from the rule, as in "copy, bf16 list: matmul".
bool follows(const ExplainedNode& node, std::string_view rule) {
    const std::string text = " " + node.rule;
    return text.find(fmt::format(" {}", rule)) != text.npos ||
           std::ranges::any_of(node.parts, [&](const ExplainedNode& part) { return follows(part, rule); });
}

/// The rules that were followed, in words.
Grid rule_words(const Explanation& explanation) {
    Grid grid{{"rule", "the format is"}};
    for (const auto& [rule, means] : rule_meanings)
        if (std::ranges::any_of(explanation.nodes,
                                [&](const ExplainedNode& node) { return follows(node, rule); }))
            grid.rows.push_back({std::string(rule), std::string(means)});
    return grid;
}

Grid every_node(const Explanation& explanation) {
    Grid grid{{"where", "line", "operation", "pass", "stored", "multiplied", "sum", "output", "GFLOP", "MB",
               "rule", "kernel"}};
    for (const ExplainedNode& node : explanation.nodes) {
        grid.rows.push_back({node.name, node.line, node.op, node.pass, node.storage, arithmetic_of(node),
                             or_dash(node.sum), node.output, gigas(node.flops), megas(node.bytes), node.rule,
                             node.kernel});
        for (const ExplainedNode& part : node.parts)
            grid.rows.push_back({"", "", "  in it: " + part.op, "", part.storage, arithmetic_of(part),
                                 or_dash(part.sum), part.output, "", "", part.rule, ""});
    }
    return grid;
}

Grid casts(const Explanation& explanation) {
    Grid grid{{"casts", "pass", "nodes", "MB", "rule"}};
    for (const auto& [cast, count] : kinds_of(explanation.casts))
        grid.rows.push_back(
            {cast.from + " -> " + cast.to, cast.pass, std::to_string(count), megas(cast.bytes), cast.rule});
    return grid;
}

Grid attentions(const Explanation& explanation) {
    Grid grid{{"attention", "nodes", "the first", "blocks", "f(s), and why"}};
    for (const auto& [attention, count] : kinds_of(explanation.attentions))
        grid.rows.push_back({attention.form, std::to_string(count), attention.name,
                             fmt::format("{} of {}", attention.blocks, attention.all_blocks),
                             fmt::format("{}; blocks of {} x {}: {}", attention.formula, attention.queries,
                                         attention.keys, attention.why)});
    return grid;
}

Grid refusals(const Explanation& explanation) {
    Grid grid{{"left as it was", "operation", "times", "the first", "line", "why"}};
    for (const auto& [refusal, count] : kinds_of(explanation.refused))
        grid.rows.push_back(
            {refusal.pass, refusal.op, std::to_string(count), refusal.place, refusal.line, refusal.reason});
    return grid;
}

/// Totals by arithmetic, and overall.
std::vector<ArithmeticTotal> totals_with_all(const Explanation& explanation) {
    std::vector<ArithmeticTotal> totals = totals_of(explanation);
    ArithmeticTotal all{.name = "all"};
    for (const ArithmeticTotal& total : totals) all.flops += total.flops, all.bytes += total.bytes;
    totals.push_back(all);
    return totals;
}

double share_of(std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

Grid totals(const Explanation& explanation) {
    Grid grid{{"totals", "GFLOP", "share", "MB", "share"}};
    const std::vector<ArithmeticTotal> all = totals_with_all(explanation);
    for (const ArithmeticTotal& total : all)
        grid.rows.push_back({total.name, gigas(total.flops), percent(share_of(total.flops, all.back().flops)),
                             megas(total.bytes), percent(share_of(total.bytes, all.back().bytes))});
    return grid;
}

/// Two bars, arithmetic and bytes, each divided by arithmetic format.
std::string arithmetic_bars(const Explanation& explanation) {
    html::Bar flops{"arithmetic", {}, ""}, bytes{"bytes", {}, ""};
    std::vector<html::Named> names;
    const std::vector<ArithmeticTotal> totals = totals_with_all(explanation);
    for (std::size_t i = 0; i + 1 < totals.size(); ++i) {
        const auto add = [&](html::Bar& bar, double part) {
            bar.parts.push_back({part, i, fmt::format("{}: {}", totals[i].name, percent(part))});
        };
        add(flops, share_of(totals[i].flops, totals.back().flops));
        add(bytes, share_of(totals[i].bytes, totals.back().bytes));
        names.push_back({totals[i].name, i});
    }
    flops.text = gigas(totals.back().flops) + " GFLOP";
    bytes.text = megas(totals.back().bytes) + " MB";
    return html::key(names) + html::bars({flops, bytes}, 1);
}

/// Nodes, or the parts of a node, which have no kernel, bytes and FLOPs of their own.
Table nodes_of(const std::vector<ExplainedNode>& nodes, bool are_parts = false) {
    Table table{{"op", "name", "line", "pass", "storage", "multiply", "sum", "output", "rule", "kernel",
                 "bytes", "flops", "parts"}};
    const auto of_node = [&](const auto& value) { return are_parts ? Datum() : Datum(value); };
    for (const ExplainedNode& node : nodes)
        table.add(node.op, node.name, or_null(node.line), node.pass, node.storage, or_null(node.multiply),
                  or_null(node.sum), node.output, node.rule, of_node(node.kernel), of_node(node.bytes),
                  of_node(node.flops), node.parts.empty() ? Datum() : Datum(nodes_of(node.parts, true)));
    return table;
}

Table casts_of(const Explanation& explanation) {
    Table table{{"name", "pass", "from", "to", "bytes", "rule"}};
    for (const ExplainedCast& cast : explanation.casts)
        table.add(cast.name, cast.pass, cast.from, cast.to, cast.bytes, cast.rule);
    return table;
}

Table attentions_of(const Explanation& explanation) {
    Table table{
        {"name", "form", "formula", "blocks.computed", "blocks.all", "blocks.queries", "blocks.keys", "why"}};
    for (const ExplainedAttention& attention : explanation.attentions)
        table.add(attention.name, attention.form, attention.formula, attention.blocks, attention.all_blocks,
                  attention.queries, attention.keys, attention.why);
    return table;
}

Table refused_of(const Explanation& explanation) {
    Table table{{"pass", "op", "place", "reason"}};
    for (const PassRefusal& refusal : explanation.refused)
        table.add(refusal.pass, refusal.op, or_null(refusal.place), refusal.reason);
    return table;
}

Fields memory_of(const MemoryAtPeak& memory) {
    Table live{{"op", "pass", "type", "values", "bytes"}};
    for (const LiveValues& kind : memory.live)
        live.add(kind.op, kind.pass, or_null(kind.type), kind.count, kind.bytes);
    return {{"state", memory.state},         {"arena", memory.arena},
            {"inputs", memory.inputs},       {"total", memory.total()},
            {"peak.op", memory.peak_op},     {"peak.name", memory.peak_name},
            {"peak.pass", memory.peak_pass}, {"live", live}};
}

/// A table followed by an empty line; empty if it has no rows.
std::string paragraph(const Grid& grid) { return grid.rows.empty() ? "" : grid.text() + "\n"; }

std::string section(const char* title, const Grid& grid) {
    return grid.rows.empty() ? "" : fmt::format("<h2>{}</h2>\n{}", title, html::table(grid));
}

}  // namespace

std::string explain_table(const Explanation& explanation, Detail detail) {
    return explanation.title() + "\n" + explanation.passes_text() + "\n\n" +
           (detail == Detail::kinds ? kinds(explanation) : every_node(explanation)).text() + "\n" +
           paragraph(attentions(explanation)) +
           (explanation.casts.empty() ? "no casts\n\n" : paragraph(casts(explanation))) +
           paragraph(rule_words(explanation)) + paragraph(totals(explanation)) +
           paragraph(refusals(explanation)) + memory_table(explanation.memory);
}

std::string explain_html(const Explanation& explanation, const Roofline* roofline,
                         const std::string& command) {
    return html::page(
        explanation.title(),
        "<p>What each operation is stored, multiplied and summed in, and the rule that chose it, read off "
        "the plan that runs. Times are in the roofline, where one was measured.</p>\n<p class='note'>" +
            html::escaped(explanation.passes_text()) + "</p>\n<h2>What arithmetic is done in</h2>\n" +
            arithmetic_bars(explanation) + html::table(totals(explanation)) +
            section("Operations by kind", kinds(explanation)) + html::table(rule_words(explanation)) +
            section("Operations by source line", lines_of(explanation)) +
            section("Attention", attentions(explanation)) +
            (explanation.casts.empty() ? "<h2>Casts</h2>\n<p>None.</p>\n"
                                       : section("Casts", casts(explanation))) +
            section("What passes left as it was", refusals(explanation)) +
            (roofline ? "<h2>Roofline</h2>\n" + roofline_section(*roofline) : "") +
            fmt::format("<h2>Every operation</h2>\n<details><summary>{} operations, in the order in which "
                        "they run</summary>\n{}</details>\n",
                        explanation.nodes.size(), html::table(every_node(explanation))) +
            html::footer(command));
}

std::string explain_json(const Explanation& explanation, const ThreadReport* threads) {
    return json_of("explain", {{"model", explanation.model.name},
                               {"policy", explanation.policy},
                               {"batch", explanation.model.batch},
                               {"sequence", explanation.model.units_per_example},
                               {"of", explanation.of},
                               {"passes", explanation.passes},
                               {"nodes", nodes_of(explanation.nodes)},
                               {"casts", casts_of(explanation)},
                               {"attentions", attentions_of(explanation)},
                               {"refused", refused_of(explanation)},
                               {"memory", memory_of(explanation.memory)},
                               {"threads", threads ? Datum(fields_of(*threads)) : Datum()}});
}

}  // namespace mantissa
