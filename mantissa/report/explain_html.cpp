// An explanation as one page: totals, kinds of operations, casts, what passes left, every node, and a
// roofline where one was measured.
#include <fmt/format.h>

#include "mantissa/report/explain_kinds.h"
#include "mantissa/report/html.h"
#include "mantissa/report/html_charts.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }
std::string gigas(std::int64_t flops) { return fmt::format("{:.3f}", gigaflops(flops)); }
std::string megas(std::int64_t bytes) { return fmt::format("{:.2f}", megabytes(bytes)); }

/// Two bars, arithmetic and bytes, each divided by what it is done in.
std::string arithmetic_bars(const Explanation& explanation) {
    html::Bar flops{"arithmetic", {}, ""}, bytes{"bytes", {}, ""};
    std::vector<html::Named> names;
    std::vector<html::Row> rows;
    std::int64_t all_flops = 0, all_bytes = 0;
    const std::vector<ArithmeticTotal> parts = totals_of(explanation);
    for (const ArithmeticTotal& part : parts) {
        all_flops += part.flops;
        all_bytes += part.bytes;
    }
    const auto share = [](std::int64_t part, std::int64_t all) {
        return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
    };
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const ArithmeticTotal& part = parts[i];
        const double of_flops = share(part.flops, all_flops), of_bytes = share(part.bytes, all_bytes);
        flops.parts.push_back({of_flops, i, fmt::format("{}: {}", part.name, percent(of_flops))});
        bytes.parts.push_back({of_bytes, i, fmt::format("{}: {}", part.name, percent(of_bytes))});
        names.push_back({part.name, i});
        rows.push_back(
            {part.name, gigas(part.flops), percent(of_flops), megas(part.bytes), percent(of_bytes)});
    }
    rows.push_back({"all", gigas(all_flops), percent(1), megas(all_bytes), percent(1)});
    flops.text = gigas(all_flops) + " GFLOP";
    bytes.text = megas(all_bytes) + " MB";
    return "<h2>What arithmetic is done in</h2>\n" + html::key(names) + html::bars({flops, bytes}, 1) +
           html::table({"multiplied + summed in", "GFLOP", "share", "MB read and written", "share"}, rows);
}

std::string kinds(const Explanation& explanation) {
    std::vector<html::Row> rows;
    for (const ExplainedKind& kind : kinds_of(explanation.nodes)) {
        rows.push_back({kind.node.op, kind.node.pass, fmt::format("{}", kind.count), kind.node.storage,
                        arithmetic_of(kind.node), or_dash(kind.node.sum), kind.node.output,
                        gigas(kind.node.flops), megas(kind.node.bytes), kind.node.rule});
        for (const PartKind& part : part_kinds_of(kind.node))
            rows.push_back({"in it", "", "", part.part.storage, arithmetic_of(part.part),
                            or_dash(part.part.sum), part.part.output, "", "",
                            part.part.rule + ": " + part.ops});
    }
    return "<h2>Operations by kind</h2>\n" +
           html::table(
               {"operation", "pass", "nodes", "stored", "multiplied", "sum", "output", "GFLOP", "MB", "rule"},
               rows);
}

std::string casts(const Explanation& explanation) {
    if (explanation.casts.empty()) return "<h2>Casts</h2>\n<p>None.</p>\n";
    std::vector<html::Row> rows;
    for (const CastKind& kind : kinds_of(explanation.casts))
        rows.push_back({kind.cast.from + " to " + kind.cast.to, kind.cast.pass, fmt::format("{}", kind.count),
                        megas(kind.cast.bytes), kind.cast.rule});
    return "<h2>Casts</h2>\n" + html::table({"formats", "pass", "casts", "MB", "rule"}, rows);
}

std::string attentions(const Explanation& explanation) {
    if (explanation.attentions.empty()) return "";
    std::vector<html::Row> rows;
    for (const auto& [attention, count] : kinds_of(explanation.attentions))
        rows.push_back({attention.form, fmt::format("{}", count), attention.name, attention.formula,
                        fmt::format("{} of {}", attention.blocks, attention.all_blocks), attention.why});
    return "<h2>Attention</h2>\n" +
           html::table({"form", "nodes", "the first", "f of the scaled product s", "blocks computed", "why"},
                       rows);
}

std::string refusals(const Explanation& explanation) {
    if (explanation.refused.empty()) return "";
    std::vector<html::Row> rows;
    for (const RefusalKind& kind : kinds_of(explanation.refused))
        rows.push_back({kind.refusal.pass, kind.refusal.op, fmt::format("{}", kind.count), kind.refusal.place,
                        kind.refusal.reason});
    return "<h2>What passes left as it was</h2>\n" +
           html::table({"pass", "operation", "times", "the first", "why"}, rows);
}

std::string nodes(const Explanation& explanation) {
    std::vector<html::Row> rows;
    for (const ExplainedNode& node : explanation.nodes) {
        rows.push_back({node.name, node.op, node.pass, node.storage, arithmetic_of(node), or_dash(node.sum),
                        node.output, gigas(node.flops), megas(node.bytes), node.rule, node.kernel});
        for (const ExplainedNode& part : node.parts)
            rows.push_back({"", "in it: " + part.op, "", part.storage, arithmetic_of(part), or_dash(part.sum),
                            part.output, "", "", part.rule, ""});
    }
    return fmt::format(
               "<h2>Every operation</h2>\n<details><summary>{} operations, in the order in which they run"
               "</summary>\n",
               explanation.nodes.size()) +
           html::table({"where", "operation", "pass", "stored", "multiplied", "sum", "output", "GFLOP", "MB",
                        "rule", "kernel"},
                       rows) +
           "</details>\n";
}

}  // namespace

std::string explain_html(const Explanation& explanation, const Roofline* roofline,
                         const std::string& command) {
    std::string body =
        "<p>What each operation is stored, multiplied and summed in, and the rule that chose it, read off "
        "the plan that runs. Times are in the roofline, where one was measured.</p>\n<p class='note'>" +
        html::escaped(explanation.passes_text()) + "</p>\n" + arithmetic_bars(explanation) +
        kinds(explanation) + attentions(explanation) + casts(explanation) + refusals(explanation);
    if (roofline) body += "<h2>Roofline</h2>\n" + roofline_section(*roofline);
    return html::page(explanation.title(), body + nodes(explanation) + html::footer(command));
}

}  // namespace mantissa
