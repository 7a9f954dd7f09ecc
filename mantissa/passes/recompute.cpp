#include "mantissa/passes/recompute.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// The operations whose outputs a name stands for; operations of one name stand together.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> operations = {
    {{"gelu", "gelu"},
     {"gelu", "erf_gelu"},
     {"norm", "layer_norm"},
     {"norm", "rms_norm"},
     {"softmax", "softmax"}}};

/// "h.3" of "h.3.mlp.c_fc": the scope up to its first number; empty if it has none.
std::string_view block_of(std::string_view scope) {
    for (std::size_t begin = 0; begin < scope.size();) {
        const std::size_t end = std::min(scope.find('.', begin), scope.size());
        const std::string_view part = scope.substr(begin, end - begin);
        if (std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
            return scope.substr(0, end);
        begin = end + 1;
    }
    return {};
}

class Recompute {
  public:
    Recompute(const Graph& graph, const std::set<std::string>& what)
        : graph_(graph), rewriter_(graph), chosen_(graph.size()) {
        for (const auto& [name, op] : operations)
            if (what.contains(std::string(name))) choose_outputs_of(op);
        if (what.contains("block")) choose_blocks();
        for (const std::string& name : what)
            if (!has(name)) done_.refused.push_back({"recompute", name, "", "the forward pass has none"});
    }

    Recomputation run() {
        for (NodeId id = 0; id < graph_.end(); ++id) {
            const std::vector<Value>& inputs = graph_.node(id).inputs;
            if (forward(id) ||
                std::none_of(inputs.begin(), inputs.end(), [&](Value input) { return chosen(input); })) {
                rewriter_.copy(id);
                continue;
            }
            rewriter_.place(id, copy(id, graph_.node(id).origin));
        }
        done_.graph = rewriter_.finish();
        return std::move(done_);
    }

  private:
    bool forward(NodeId id) const { return graph_.node(id).origin.stage == Stage::forward; }
    bool chosen(Value value) const { return chosen_[value.node]; }

    bool is_source(const Node& node) const { return node.inputs.empty(); }

    /// The operation's nodes, and element-wise work and casts on their outputs.
    void choose_outputs_of(std::string_view op) {
        for (NodeId id = 0; id < graph_.end(); ++id) {
            const Node& node = graph_.node(id);
            if (!forward(id)) continue;
            const bool follows = (node.op->fuser == FuserClass::elementwise || node.op->name == "reshape") &&
                                 std::any_of(node.inputs.begin(), node.inputs.end(),
                                             [&](Value input) { return chosen(input); });
            if (node.op->name == op || follows) chosen_[id] = true;
        }
    }

    /// Whether the forward pass has values that the name stands for.
    bool has(const std::string& name) const {
        for (NodeId id = 0; id < graph_.end(); ++id) {
            const Node& node = graph_.node(id);
            if (!forward(id)) continue;
            if (name == "block" && !block_of(node.origin.scope).empty()) return true;
            for (const auto& [named, op] : operations)
                if (named == name && node.op->name == op) return true;
        }
        return false;
    }

    /// Chooses everything inside a block but the values read outside it in the forward pass.
    void choose_blocks() {
        std::vector<bool> read_outside(graph_.size());
        for (const Result& result : graph_.results()) read_outside[result.value.node] = true;
        for (const Update& update : graph_.updates()) read_outside[update.value.node] = true;
        const auto block = [&](NodeId id) { return block_of(graph_.node(id).origin.scope); };
        for (NodeId id = 0; id < graph_.end(); ++id)
            for (const Value& input : graph_.node(id).inputs)
                if (forward(id) && block(id) != block(input.node)) read_outside[input.node] = true;
        for (NodeId id = 0; id < graph_.end(); ++id)
            if (forward(id) && !is_source(graph_.node(id)) && !block(id).empty() && !read_outside[id])
                chosen_[id] = true;
    }

    /// Copies a node that reads recomputed values, after placing these.
    NodeId copy(NodeId id, Origin origin) {
        const Node& node = graph_.node(id);
        std::vector<Value> inputs;
        for (const Value& input : node.inputs)
            inputs.push_back(chosen(input) ? Value{again(input.node), input.output} : rewriter_.map(input));
        const OriginScope scope(rewriter_.target(), std::move(origin));
        return rewriter_.target().add(node.op->name, std::move(inputs), node.attributes);
    }

    NodeId again(NodeId id) {
        if (const auto known = again_.find(id); known != again_.end()) return known->second;
        const Node& node = graph_.node(id);
        Origin origin = node.origin;
        origin.stage = Stage::backward;
        ++done_.nodes;
        done_.flops += node.op->cost(graph_.input_types(node), node.outputs, node.attributes).flops;
        origin.rule = recomputed_rule;
        const NodeId made = copy(id, std::move(origin));
        return again_[id] = made;
    }

    const Graph& graph_;
    Rewriter rewriter_;
    Recomputation done_;
    std::vector<bool> chosen_;        // by node: whether later passes compute it again
    std::map<NodeId, NodeId> again_;  // in the target, by node of the source
};

}  // namespace

bool is_recomputed(const Node& node) {
    return node.origin.rule == recomputed_rule || node.origin.rule == second_walk_rule ||
           node.origin.rule == third_walk_rule;
}

std::vector<std::string> recomputable() {
    std::vector<std::string> names;
    for (const auto& [name, op] : operations)
        if (names.empty() || names.back() != name) names.emplace_back(name);
    names.emplace_back("block");
    return names;
}

void check_recomputable(const std::set<std::string>& what) {
    const std::vector<std::string> names = recomputable();
    for (const std::string& name : what)
        if (std::find(names.begin(), names.end(), name) == names.end())
            throw UserError(
                fmt::format("'{}' cannot be recomputed; what can: {}", name, fmt::join(names, ", ")));
}

Recomputation recompute(const Graph& graph, const std::set<std::string>& what) {
    check_recomputable(what);
    return Recompute(graph, what).run();
}

}  // namespace mantissa
