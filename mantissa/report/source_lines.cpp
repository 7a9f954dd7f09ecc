#include "mantissa/report/source_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "mantissa/base/printable.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

/// The work of one line.
struct OnLine {
    std::string line;
    std::vector<std::string> places = {};  ///< modules, each once
    std::vector<std::string> arithmetic = {};
    std::int64_t nodes = 0, flops = 0, bytes = 0;
    double seconds = 0;

    std::string places_text() const { return places.empty() ? "-" : names_text(places, 1); }
    std::string arithmetic_text() const { return fmt::format("{}", fmt::join(arithmetic, " ")); }
};

void add_once(std::vector<std::string>& to, const std::string& text) {
    if (!text.empty() && std::ranges::find(to, text) == to.end()) to.push_back(text);
}

/// Entries by line, in order of first use; entries without a line come last.
template <class Entry, class Add>
std::vector<OnLine> by_line(const std::vector<Entry>& entries, const Add& add) {
    std::vector<OnLine> lines;
    std::map<std::string, std::size_t> known;
    for (const Entry& entry : entries) {
        const auto [found, is_new] = known.try_emplace(entry.line, lines.size());
        if (is_new) lines.push_back({.line = entry.line.empty() ? "-" : entry.line});
        OnLine& line = lines[found->second];
        add_once(line.places, entry.name);
        ++line.nodes;
        add(line, entry);
    }
    std::ranges::stable_partition(lines, [](const OnLine& line) { return line.line != "-"; });
    return lines;
}

}  // namespace

Grid lines_of(const Explanation& explanation) {
    Grid grid{{"line", "where", "nodes", "GFLOP", "MB", "arithmetic"}};
    const std::vector<OnLine> lines = by_line(explanation.nodes, [](OnLine& line, const ExplainedNode& node) {
        line.flops += node.flops;
        line.bytes += node.bytes;
        if (const std::string arithmetic = arithmetic_of(node); arithmetic != "-")
            add_once(line.arithmetic, arithmetic);
    });
    for (const OnLine& line : lines)
        grid.rows.push_back({line.line, line.places_text(), std::to_string(line.nodes),
                             with_decimals(gigaflops(line.flops), 3), with_decimals(megabytes(line.bytes), 2),
                             line.arithmetic_text()});
    return grid;
}

Grid source_lines_of(const Roofline& roofline) {
    Grid grid{{"line", "where", "launches", "ms", "time", "GFLOP/s", "GB/s"}};
    std::vector<OnLine> lines = by_line(roofline.entries, [](OnLine& line, const RooflineEntry& entry) {
        line.flops += entry.cost.flops;
        line.bytes += entry.cost.bytes;
        line.seconds += entry.seconds;
    });
    std::ranges::stable_sort(lines, std::greater{}, &OnLine::seconds);
    const auto rate = [](std::int64_t count, double seconds) {
        return seconds > 0 ? with_decimals(static_cast<double>(count) / seconds / 1e9, 1) : std::string("-");
    };
    for (const OnLine& line : lines)
        grid.rows.push_back({line.line, line.places_text(), std::to_string(line.nodes),
                             with_decimals(1e3 * line.seconds, 2),
                             percent(line.seconds / roofline.wall_seconds), rate(line.flops, line.seconds),
                             rate(line.bytes, line.seconds)});
    return grid;
}

Grid source_lines_of(const LadderReport& ladder) {
    Grid grid{{"line", "where"}};
    std::vector<RooflineEntry> all;
    for (const RungReport& rung : ladder.rungs) {
        grid.headings.push_back(rung.name);
        all.insert(all.end(), rung.roofline.entries.begin(), rung.roofline.entries.end());
    }
    const auto add = [](OnLine& line, const RooflineEntry& entry) { line.seconds += entry.seconds; };
    std::map<std::string, std::vector<double>> seconds;  // by line, of each rung
    const std::vector<OnLine> lines = by_line(all, add);
    for (const OnLine& line : lines) seconds[line.line].resize(ladder.rungs.size());
    for (std::size_t rung = 0; rung < ladder.rungs.size(); ++rung)
        for (const OnLine& line : by_line(ladder.rungs[rung].roofline.entries, add))
            seconds[line.line][rung] = line.seconds;
    for (const OnLine& line : lines) {
        Grid::Row& row = grid.rows.emplace_back(Grid::Row{line.line, line.places_text()});
        for (const double each : seconds[line.line])
            row.push_back(each > 0 ? with_decimals(1e3 * each, 2) : "-");
    }
    std::ranges::stable_sort(grid.rows, std::greater{},
                             [&](const Grid::Row& row) { return seconds[row[0]].front(); });
    return grid;
}

}  // namespace mantissa
