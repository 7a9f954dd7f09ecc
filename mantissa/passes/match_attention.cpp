#include "mantissa/passes/match_attention.h"

#include <algorithm>
#include <map>
#include <set>

#include "mantissa/graph/tensor.h"
#include "mantissa/passes/attention_form.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// Forms by their roots.
using Forms = std::map<NodeId, AttentionForm>;

/// Nodes that nothing reads once the forms are replaced: what they computed, and what only that read.
std::set<NodeId> unread_nodes(const Graph& graph, const Uses& uses, const Forms& forms) {
    std::set<NodeId> unread;
    std::set<Value> operands;
    for (const auto& [root, form] : forms) {
        unread.insert(form.replaced.begin(), form.replaced.end());
        for (const AttentionOperand* operand : {&form.q, &form.k, &form.v}) operands.insert(operand->base);
    }
    for (NodeId id = static_cast<NodeId>(graph.size()) - 1; id >= 0; --id) {
        const Node& node = graph.node(id);
        if (node.op->name == "input" || node.op->name == "state") continue;
        bool read = false, lost = false;
        for (std::int32_t output = 0; output < static_cast<std::int32_t>(node.outputs.size()); ++output) {
            read = read || operands.contains({id, output});
            for (const NodeId user : uses.of({id, output})) {
                const bool gone = unread.contains(user);
                lost = lost || gone;
                read = read || !gone;
            }
        }
        if (lost && !read) unread.insert(id);
    }
    return unread;
}

/// The order of an operand's axes: batch, positions, head; by name.
std::vector<int> wanted_order(const AttentionForm& form, int positions) {
    std::vector<int> order = form.batch_axes;
    order.push_back(positions);
    order.push_back(AttentionOperand::head_axis);
    return order;
}

/// The place in `atoms` of each atom when they stand in the order of their axes, outermost part first.
std::vector<std::int64_t> sorted_places(const AxisAtoms& atoms, const std::vector<int>& order) {
    std::vector<std::int64_t> places(atoms.size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int64_t>(i);
    const auto rank = [&](std::int64_t place) {
        const AxisAtom& atom = atoms[static_cast<std::size_t>(place)];
        const auto at = std::find(order.begin(), order.end(), atom.axis) - order.begin();
        return std::pair(at, -atom.stride);
    };
    std::ranges::sort(places, [&](auto a, auto b) { return rank(a) < rank(b); });
    return places;
}

Shape extents_of(const AxisAtoms& atoms, const std::vector<std::int64_t>& places) {
    std::vector<std::int64_t> extents;
    for (const std::int64_t place : places) extents.push_back(atoms[static_cast<std::size_t>(place)].extent);
    return Shape(extents);
}

Tensor transposed(Tensor x, const std::vector<std::int64_t>& order) {
    return std::ranges::is_sorted(order) ? x : transpose(x, order);
}

class AttentionReplacement {
  public:
    AttentionReplacement(const Graph& source, Rewriter& rewriter, const AttentionForm& form)
        : source_(source), rewriter_(rewriter), form_(form) {
        // [B, H]: the first axis of the batch, and all others.
        for (std::size_t i = 0; i < form.batch_axes.size(); ++i)
            (i == 0 ? batch_ : heads_) *= form.shape[form.batch_axes[i]];
    }

    void run() {
        const Node& root = source_.node(form_.root);
        const OriginScope scope(rewriter_.target(), root.origin);
        const Tensor q = operand(form_.q, form_.query_axis, form_.queries);
        const Tensor k = operand(form_.k, form_.key_axis, form_.keys);  // [B, heads / group, keys, D]
        const Tensor v = operand(form_.v, form_.key_axis, form_.keys);
        const Tensor o = call1("attention", {q, k, v}, {{"causal", form_.causal}, {"scale", form_.scale}});
        rewriter_.place({form_.root, 0}, as_root(o, root.outputs[0]).value());
    }

  private:
    /// [B, heads, positions, D], in the widest type of the three.
    Tensor operand(const AttentionOperand& operand, int axis, std::int64_t positions) {
        Graph& target = rewriter_.target();
        Value value = rewriter_.map(operand.base);
        for (const NodeId view : operand.views) {
            const Node& node = source_.node(view);
            value = {target.add(node.op->name, {value}, node.attributes), 0};
        }
        const AxisAtoms atoms = operand.axes.flattened();
        const std::vector<std::int64_t> places = sorted_places(atoms, wanted_order(form_, axis));
        std::vector<std::int64_t> stored(atoms.size());
        for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::int64_t>(i);
        const Tensor parts = reshape(Tensor(target, value), extents_of(atoms, stored));
        const std::int64_t heads = axis == form_.query_axis ? heads_ : heads_ / form_.group;
        return cast(reshape(transposed(parts, places), {batch_, heads, positions, form_.head_size}),
                    form_.dtype);
    }

    /// What the product with the values gave, in its axes and type.
    Tensor as_root(Tensor o, const Type& type) {
        const AxisAtoms atoms = form_.output.flattened();
        const std::vector<std::int64_t> places = sorted_places(atoms, wanted_order(form_, form_.query_axis));
        std::vector<std::int64_t> back(places.size());
        for (std::size_t i = 0; i < places.size(); ++i)
            back[static_cast<std::size_t>(places[i])] = static_cast<std::int64_t>(i);
        const Tensor parts = reshape(o, extents_of(atoms, places));
        return cast(reshape(transposed(parts, back), type.shape), type.dtype);
    }

    const Graph& source_;
    Rewriter& rewriter_;
    const AttentionForm& form_;
    std::int64_t batch_ = 1, heads_ = 1;
};

}  // namespace

AttentionMatch match_attention(const Graph& graph, std::span<Value> kept) {
    const Uses uses(graph, kept);
    PatternReader patterns(graph);
    AttentionMatch match;
    Forms forms;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
        const auto softmax = softmax_at(graph, id);
        if (!softmax) continue;
        const std::string& scope = graph.node(id).origin.scope;
        const auto form = attention_around(graph, uses, patterns, *softmax);
        if (!form) {
            match.refused.push_back({"match_attention", "softmax", scope, form.reason()});
            continue;
        }
        if (!form->copies.empty())
            match.refused.push_back({"match_attention", "broadcast", scope, form->copies});
        forms.emplace(form->root, *form);
    }
    match.matched = static_cast<int>(forms.size());
    const std::set<NodeId> unread = unread_nodes(graph, uses, forms);
    Rewriter rewriter(graph);
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
        const auto form = forms.find(id);
        if (form != forms.end())
            AttentionReplacement(graph, rewriter, form->second).run();
        else if (!unread.contains(id))
            rewriter.copy(id);
    }
    for (Value& value : kept) value = rewriter.map(value);
    match.graph = rewriter.finish();
    return match;
}

}  // namespace mantissa
