#include "mantissa/passes/analysis/fuse_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/nest.h"
#include "mantissa/passes/recompute.h"

namespace mantissa::inline v0 {

namespace {

/// A tree of constants and counters of up to so many operations is made again by each user: about the cost of
/// loading its value.
constexpr int max_source_operations = 4;

}  // namespace

Grouping::Grouping(const Graph& graph, const FusionCosts& costs, std::vector<PassRefusal>& refused)
    : graph_(graph),
      costs_(costs),
      refused_(refused),
      uses_(graph),
      source_operations_(graph.size(), -1),
      group_of_(graph.size(), -1),
      stamp_(graph.size()) {
    run();
}

void Grouping::run() {
    for (NodeId id = 0; id < graph_.end(); ++id) {
        last_grouped_ = id;
        visit(id);
    }
    join_stages();
    for (Nodes& group : groups_) drop_unless_worth_it(group);
}

Border Grouping::border(const Nodes& group) const {
    Border border;
    const auto inside = [&](NodeId id) { return std::binary_search(group.begin(), group.end(), id); };
    for (NodeId id : group) {
        for (const Value& input : graph_.node(id).inputs)
            if (!inside(input.node) && !from_source(input) &&
                std::find(border.inputs.begin(), border.inputs.end(), input) == border.inputs.end())
                border.inputs.push_back(input);
        if (std::ranges::all_of(uses_.of(id), inside)) continue;
        NodeId root = id;
        if (graph_.node(id).op->name == "reshape") border.reshapes.push_back(id);
        while (graph_.node(root).op->name == "reshape") root = graph_.node(root).inputs[0].node;
        if (std::find(border.outputs.begin(), border.outputs.end(), Value{root, 0}) == border.outputs.end())
            border.outputs.push_back({root, 0});
    }
    return border;
}

std::int64_t Grouping::bytes_saved(const Nodes& group, const Border& border) const {
    std::int64_t before = 0, after = 0;
    for (NodeId id : group) {
        const Node& node = graph_.node(id);
        if (node.op->name == "reshape") continue;
        for (const Value& input : node.inputs)
            if (graph_.node(input.node).op->name != "constant") before += graph_.type(input).bytes();
        before += node.outputs[0].bytes();
    }
    for (const Value& value : border.inputs) after += graph_.type(value).bytes();
    for (const Value& value : border.outputs) after += graph_.type(value).bytes();
    return before - after;
}

void Grouping::refuse(NodeId id, std::string reason) {
    refused_.push_back({"fuse", std::string(graph_.node(id).op->name), print(graph_, id), std::move(reason)});
}

/// Inputs and states run nothing, a contraction is a kernel of its own, and the update moves each byte once
/// by its own kernels: none of them is refused.
void Grouping::refuse_alone(NodeId id, std::string reason) {
    const Node& node = graph_.node(id);
    if (!node.inputs.empty() && node.op->fuser != FuserClass::contraction &&
        node.origin.stage != Stage::update)
        refuse(id, std::move(reason));
}

void Grouping::visit(NodeId id) {
    const Node& node = graph_.node(id);
    if (note_source(id)) return;
    Nodes group{id};
    std::string alone = refuse_in_nest(graph_, node);
    if (alone.empty() && node.op->name != "reshape") alone = nest_reason(group);
    if (!alone.empty()) return refuse_alone(id, std::move(alone));
    std::vector<int> joined;
    for (int candidate : groups_beside(id)) {
        Nodes together = merged(group, groups_[candidate]);
        if (std::string reason = refuse_group(together); reason.empty()) {
            group = std::move(together);
            joined.push_back(candidate);
        } else {
            refuse(id, std::move(reason));
        }
    }
    if (node.op->name == "reshape" && joined.empty()) return;
    for (int other : joined) groups_[other].clear();
    for (NodeId member : group) group_of_[member] = static_cast<int>(groups_.size());
    groups_.push_back(std::move(group));
}

Nodes Grouping::merged(const Nodes& a, const Nodes& b) {
    Nodes together;
    std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(together));
    return together;
}

void Grouping::join_stages() {
    for (std::size_t later = 0; later < groups_.size(); ++later)
        for (std::size_t i = 0; i < groups_[later].size(); ++i)
            for (int other : groups_of_another_stage(groups_[later][i])) {
                Nodes& earlier = groups_[other];
                // Made together, a recomputed value would be kept from one pass to the other after all.
                if (any_recomputed(groups_[later]) || any_recomputed(earlier)) continue;
                Nodes together = merged(groups_[later], earlier);
                if (!refuse_group(together).empty()) continue;
                for (NodeId member : earlier) group_of_[member] = static_cast<int>(later);
                earlier.clear();
                groups_[later] = std::move(together);
            }
}

bool Grouping::any_recomputed(const Nodes& group) const {
    return std::any_of(group.begin(), group.end(), [&](NodeId id) { return is_recomputed(graph_.node(id)); });
}

/// None of or for the update: a step that stops at its gradients has the loss (train/gradients.h).
std::set<int> Grouping::groups_of_another_stage(NodeId id) const {
    std::set<int> found;
    const Stage stage = graph_.node(id).origin.stage;
    const auto note = [&](NodeId other) {
        const int group = group_of(other);
        if (group < 0 || group == group_of(id)) return;
        const Stage another = graph_.node(other).origin.stage;
        if (another != stage && another != Stage::update && stage != Stage::update) found.insert(group);
    };
    for (const Value& input : graph_.node(id).inputs) {
        if (from_source(input)) continue;
        note(input.node);
        for (NodeId user : uses_.of(input.node)) note(user);
    }
    return found;
}

bool Grouping::note_source(NodeId id) {
    const Node& node = graph_.node(id);
    int& operations = source_operations_[id];
    if (node.op->name == "constant" || node.op->name == "iota") {
        operations = 0;
    } else if (node.op->fuser == FuserClass::elementwise && refuse_in_nest(graph_, node).empty()) {
        int total = 1;
        for (const Value& input : node.inputs) {
            if (!from_source(input)) return false;
            total += source_operations_[input.node];
        }
        if (total <= max_source_operations) operations = total;
    }
    return operations >= 0;
}

std::vector<int> Grouping::groups_beside(NodeId id) const {
    std::map<int, std::int64_t> bytes;
    const auto note = [&](NodeId other, std::int64_t saved) {
        const int group = group_of(other);
        if (group >= 0 && graph_.node(other).origin.stage == graph_.node(id).origin.stage)
            bytes[group] += saved;
    };
    for (const Value& input : graph_.node(id).inputs) {
        if (from_source(input)) continue;
        const std::int64_t saved = graph_.type(input).bytes();
        note(input.node, 2 * saved);
        for (NodeId user : uses_.of(input.node))
            if (user < id) note(user, saved);
    }
    std::vector<int> order;
    for (const auto& [group, saved] : bytes) order.push_back(group);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return bytes[a] > bytes[b]; });
    return order;
}

std::string Grouping::nest_reason(const Nodes& group) const {
    return make_nest(graph_, group, [&](Value value) { return from_source(value); }).reason();
}

/// Whether a node of a later walk over memory stands beside its twin of another walk, which would write the
/// value for the later one after all.
bool Grouping::joins_two_walks(const Nodes& group) const {
    const auto is_twin = [&](const Node& later, NodeId id) {
        const Node& node = graph_.node(id);
        return node.origin.rule != later.origin.rule && node.op == later.op && node.inputs == later.inputs &&
               node.attributes == later.attributes;
    };
    return std::any_of(group.begin(), group.end(), [&](NodeId id) {
        const Node& node = graph_.node(id);
        return (node.origin.rule == second_walk_rule || node.origin.rule == third_walk_rule) &&
               std::any_of(group.begin(), group.end(), [&](NodeId other) { return is_twin(node, other); });
    });
}

std::string Grouping::refuse_group(const Nodes& group) {
    if (joins_two_walks(group)) return "it is computed again in a later walk, not beside an earlier one";
    if (depends_on_itself(group)) return "something between it and the nodes beside it is no part of a nest";
    const Expected<Nest> nest = make_nest(graph_, group, [&](Value value) { return from_source(value); });
    if (!nest) return nest.reason();
    const auto sums_columns = [&](NodeId id) { return reduces(graph_, graph_.node(id)) == Reduces::columns; };
    if (nest->columns > costs_.max_columns_summed && std::ranges::any_of(group, sums_columns))
        return fmt::format("sums over rows of {} columns do not stay on the chip", nest->columns);
    const Border border = this->border(group);
    for (const Value& output : border.outputs) {
        const Varies varies = nest->values.at(output);
        const bool row_sum = reduces(graph_, graph_.node(output.node)) != Reduces::nothing;
        if (!row_sum && (varies == Varies::by_column || varies == Varies::not_at_all))
            return "a value without rows is read elsewhere, too";
    }
    if (const std::size_t count = border.inputs.size() + border.outputs.size(); count > costs_.max_operands)
        return fmt::format("{} operands and outputs; up to {} have addresses in registers", count,
                           costs_.max_operands);
    return "";
}

bool Grouping::depends_on_itself(const Nodes& group) {
    ++now_;
    const auto inside = [&](NodeId id) { return std::binary_search(group.begin(), group.end(), id); };
    Nodes open;
    bool found = false;
    const auto leave = [&](NodeId from, bool from_inside) {
        for (NodeId user : uses_.of(from)) {
            if (user < 0 || user > last_grouped_ || stamp_[user] == now_) continue;
            if (inside(user)) {
                found = found || !from_inside;
                continue;
            }
            stamp_[user] = now_;
            open.push_back(user);
        }
    };
    for (NodeId member : group) leave(member, true);
    while (!open.empty() && !found) {
        const NodeId id = open.back();
        open.pop_back();
        leave(id, false);
        if (const int other = group_of_[id]; other >= 0)
            for (NodeId member : groups_[other])
                if (!inside(member)) leave(member, false);
    }
    return found;
}

void Grouping::drop_unless_worth_it(Nodes& group) {
    if (group.empty()) return;
    const Border border = this->border(group);
    const std::int64_t saved = bytes_saved(group, border);
    if (saved >= costs_.min_bytes_saved && !border.outputs.empty()) return;
    refuse(group.back(),
           fmt::format("a kernel would save {} bytes, less than the {} that compiling it is worth", saved,
                       costs_.min_bytes_saved));
    for (NodeId member : group) group_of_[member] = -1;
    group.clear();
}

}  // namespace mantissa
