#include "mantissa/passes/simplify.h"

#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/recompute.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// Whether the value lies in the memory of an input or a state.
bool is_given(const Graph& graph, Value value) {
    while (is_view(graph, graph.node(value.node))) value = graph.node(value.node).inputs[0];
    return is_from_outside(graph.node(value.node));
}

/// Whether the value is a scalar constant of this number, its sign included: x - -0 is not x where x is -0.
bool is_number(const Graph& graph, Value value, double number) {
    const Node& node = graph.node(value.node);
    if (node.op->name != "constant" || node.outputs[0].shape.rank() != 0) return false;
    const double constant = node.attributes.number("value");
    return constant == number && std::signbit(constant) == std::signbit(number);
}

class Simplifier {
  public:
    Simplifier(const Graph& source, MergeStages merge)
        : source_(source), gives_(holds_what_a_run_gives(source)), rewriter_(source), merge_(merge) {}

    Graph run() {
        const std::vector<bool> live = live_nodes(source_);
        for (NodeId id = 0; id < source_.end(); ++id) {
            if (is_from_outside(source_.node(id)))
                rewriter_.copy(id);
            else if (live[id])
                visit(id);
        }
        return rewriter_.finish();
    }

  private:
    Graph& target() { return rewriter_.target(); }

    void visit(NodeId id) {
        const Node& node = source_.node(id);
        const std::vector<Value> inputs = rewriter_.map(node.inputs);
        // The result of a run is computed, even where that changes nothing: a state may be replaced by then,
        // and the body of a fused node consists of its computations.
        const bool may_be_given = !gives_[id];
        if (const auto value = shorter(node, inputs); value && (may_be_given || !is_given(target(), *value)))
            return rewriter_.place({id, 0}, *value);
        const auto [entry, is_new] =
            known_.try_emplace({node.op, merge_ == MergeStages::no ? node.origin.stage : Stage{},
                                is_recomputed(node) ? node.origin.rule : "", inputs, node.attributes.text()},
                               id);
        if (is_new) return rewriter_.copy(id);
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i)
            rewriter_.place({id, i}, rewriter_.map(Value{entry->second, i}));
    }

    /// A value of the target that equals the node's, where the node itself does nothing.
    std::optional<Value> shorter(const Node& node, const std::vector<Value>& inputs) {
        const std::string_view op = node.op->name;
        if (op == "stop_gradient") return inputs[0];
        if (op == "reshape" || op == "broadcast" || op == "cast") {
            if (target().type(inputs[0]) == node.outputs[0]) return inputs[0];
        }
        if (op == "reshape") return shorter_reshape(node, inputs[0]);
        if (op == "transpose") return shorter_transpose(node, inputs[0]);
        if ((op == "mul" || op == "div") && is_number(target(), inputs[1], 1.0))
            return same_type(node, inputs[0]);
        if (op == "mul" && is_number(target(), inputs[0], 1.0)) return same_type(node, inputs[1]);
        if (op == "sub" && is_number(target(), inputs[1], 0.0)) return same_type(node, inputs[0]);
        if (op == "neg" && target().node(inputs[0].node).op->name == "neg")
            return target().node(inputs[0].node).inputs[0];
        if (op == "select" && inputs[1] == inputs[2]) return same_type(node, inputs[1]);
        return std::nullopt;
    }

    std::optional<Value> same_type(const Node& node, Value value) {
        if (target().type(value) == node.outputs[0]) return value;
        return std::nullopt;
    }

    std::optional<Value> shorter_reshape(const Node& node, Value input) {
        const Node& inner = target().node(input.node);
        if (inner.op->name != "reshape") return std::nullopt;
        const Value origin = inner.inputs[0];
        if (target().type(origin) == node.outputs[0]) return origin;
        const OriginScope scope(target(), node.origin);
        return Value{target().add("reshape", {origin}, node.attributes), 0};
    }

    /// Two transpositions are one, or none.
    std::optional<Value> shorter_transpose(const Node& node, Value input) {
        std::vector<std::int64_t> order = node.attributes.list("order");
        Value origin = input;
        if (const Node& inner = target().node(input.node); inner.op->name == "transpose") {
            origin = inner.inputs[0];
            for (std::int64_t& axis : order) axis = inner.attributes.list("order")[axis];
        }
        std::vector<std::int64_t> identity(order.size());
        std::iota(identity.begin(), identity.end(), 0);
        if (order == identity) return origin;
        if (origin == input) return std::nullopt;
        const OriginScope scope(target(), node.origin);
        return Value{target().add("transpose", {origin}, {{"order", order}}), 0};
    }

    const Graph& source_;
    std::vector<bool> gives_;  // by node of the source: whether it holds a result or an update
    Rewriter rewriter_;
    MergeStages merge_;
    // Nodes that were kept, by operation, stage (where that counts), the rule that marks them as recomputed,
    // operands (in the target) and attributes.
    std::map<std::tuple<const Op*, Stage, std::string, std::vector<Value>, std::string>, NodeId> known_;
};

}  // namespace

Graph simplify(const Graph& graph, MergeStages merge) {
    Graph current = Simplifier(graph, merge).run();
    // Nodes that a rule made unused or equal are found by the next round; every round removes a node or is
    // the last.
    for (std::size_t size = graph.size() + 1; current.size() < size;) {
        size = current.size();
        current = Simplifier(current, merge).run();
    }
    return current;
}

}  // namespace mantissa
