// The differences between two policies, operation by operation.
#include <fmt/format.h>

#include <map>
#include <queue>
#include <tuple>

#include "mantissa/report/explain.h"
#include "mantissa/report/report.h"

namespace mantissa::inline v0 {

namespace {

/// Operations with those in fused kernels, which differ from policy to policy in what they hold.
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

/// Counts of what is alike: pass, operation, and its formats under either policy.
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
    std::map<Where, std::queue<std::size_t>> open;  // of the second, not yet paired
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

}  // namespace mantissa
