#include "mantissa/passes/attention/match_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "mantissa/base/function_ref.h"
#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/attention/attention_form.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// Forms by their roots.
using Forms = std::map<NodeId, AttentionForm>;

/// Nodes that nothing reads once the forms are replaced: their parts, and nodes that only these read.
std::set<NodeId> unread_nodes(const Graph& graph, const Uses& uses, const std::vector<bool>& live,
                              const Forms& forms) {
    std::set<NodeId> unread;
    if (forms.empty()) return unread;
    std::set<Value> operands;
    for (const auto& [root, form] : forms) {
        unread.insert(form.replaced.begin(), form.replaced.end());
        for (const AttentionOperand* operand : {&form.q, &form.k, &form.v}) operands.insert(operand->base);
        if (!form.score) continue;
        for (const PairOperand& operand : form.score->operands) operands.insert(operand.value);
        for (const PairRandom& random : form.score->randoms) operands.insert({random.seed, random.step});
    }
    for (NodeId id = graph.end() - 1; id >= 0; --id) {
        const Node& node = graph.node(id);
        if (is_from_outside(node)) continue;
        if (!live[id]) unread.insert(id);
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
        const AxisAtom& atom = atoms[place];
        const auto at = std::find(order.begin(), order.end(), atom.axis) - order.begin();
        return std::pair(at, -atom.stride);
    };
    std::ranges::sort(places, [&](auto a, auto b) { return rank(a) < rank(b); });
    return places;
}

Shape extents_of(const AxisAtoms& atoms, const std::vector<std::int64_t>& places) {
    std::vector<std::int64_t> extents;
    for (const std::int64_t place : places) extents.push_back(atoms[place].extent);
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
        const std::vector<Tensor> inputs = operands();
        const std::vector<Tensor> outputs = call(rewriter_.target(), "attention", inputs, attributes_);
        Tensor o = outputs[0];
        if (form_.score && form_.score->sink) o = after_sink(o, outputs[1]);
        rewriter_.place({form_.root, 0}, in_axes(o, form_.output, root.outputs[0]).value());
        for (const LogSumExp& sum : form_.log_sums)
            rewriter_.place(sum.value, in_axes(outputs[1], sum.axes, source_.type(sum.value)).value());
    }

    /// The node as it will be, in a graph that is given up.
    static std::string refusal(const Graph& source, Rewriter& rewriter, const AttentionForm& form,
                               const AcceptAttention& accept) {
        AttentionReplacement replacement(source, rewriter, form);
        const std::vector<Tensor> inputs = replacement.operands();
        const std::vector<Tensor> outputs =
            call(rewriter.target(), "attention", inputs, replacement.attributes_);
        return accept(rewriter.target(), rewriter.target().node(outputs[0].value().node));
    }

  private:
    std::vector<Tensor> operands() {
        std::vector<Tensor> all{operand(form_.q, form_.query_axis, form_.queries),
                                operand(form_.k, form_.key_axis, form_.keys),  // [B, heads / group, keys, D]
                                operand(form_.v, form_.key_axis, form_.keys)};
        attributes_ = {{"causal", form_.causal}, {"scale", form_.scale}};
        if (form_.score && has_body()) add_score(all);
        return all;
    }

    bool has_body() const {
        const PairExpressions& x = *form_.score->expressions;
        return x[form_.score->score].op != "product" || !x.is_number(form_.score->visible, 1) ||
               !x.is_number(form_.score->multiplier, 1);
    }

    // The score.

    AttentionExtents extents() const {
        return {batch_, heads_, form_.queries, form_.keys, form_.head_size, heads_ / form_.group};
    }
    Shape pairs() const { return {batch_, heads_, form_.queries, form_.keys}; }
    DType floating() const { return form_.dtype == DType::f64 ? DType::f64 : DType::f32; }

    /// The leaves of this kind that stand in an expression.
    void find_leaves(PairId id, std::string_view op, std::map<int, PairId>& found,
                     bool in_body = false) const {
        const PairTerm& term = (*form_.score->expressions)[id];
        if (in_body && is_hoisted(id)) return;
        if (term.op == op) found.emplace(term.index, id);
        for (const PairId in : term.in) find_leaves(in, op, found, in_body);
    }

    void add_score(std::vector<Tensor>& operands) {
        const ScoreForm& form = *form_.score;
        const PairExpressions& x = *form.expressions;
        Graph body;
        AttentionScore score;
        std::map<PairId, Tensor> made;
        const Tensor product(body, body.add_input("s", {floating(), pairs()}));
        std::map<int, PairId> leaves, drawn;
        for (const PairId part : {form.score, form.visible, form.multiplier}) {
            find_leaves(part, "operand", leaves, true);
            find_leaves(part, "random", drawn, true);
        }
        const auto add = [&](Tensor stored, const std::string& letters) {
            operands.push_back(stored);
            score.operands.push_back(letters);
            const Type type{stored.dtype(), score_operand_shape(letters, extents())};
            return Tensor(body, body.add_input(fmt::format("x{}", score.operands.size()), type));
        };
        for (const auto& [index, id] : leaves) {
            const PairOperand& operand = form.operands[index];
            made.emplace(id, widened(add(score_operand(operand), letters_of(operand))));
        }
        for (const auto& [index, id] : drawn) {
            const PairRandom& random = form.randoms[index];
            const Tensor seed = add(mapped(random.seed), ""), step = add(mapped(random.step), "");
            made.emplace(
                id, widened(random_uniform(reshape(seed, {}), reshape(step, {}), random.operation, pairs())));
        }
        for (PairId id = 0; id < x.size(); ++id)
            if (x[id].op == "product") made.emplace(id, product);
        for (const PairId part : {form.score, form.visible, form.multiplier})
            hoist(part, [&](PairId id) {
                if (made.contains(id)) return;
                const Tensor stored = outside(id, pairs());
                const std::string letters = letters_along(x[id].axes);
                made.emplace(id, add(reshape(stored, stored_score_operand(letters, extents())), letters));
            });
        const auto emit = [&](PairId id) { return x.emit(body, id, made, floating(), pairs()).value(); };
        body.add_result("score", emit(form.score));
        if (!x.is_number(form.visible, 1)) body.add_result("visible", emit(form.visible));
        if (!x.is_number(form.multiplier, 1)) body.add_result("multiplier", emit(form.multiplier));
        score.body = Body(std::move(body));
        attributes_ = with_score(attributes_, score);
    }

    /// A value that all pairs of a head share is computed once, outside; so is the greatest of a query's.
    bool is_hoisted(PairId id) const {
        const PairExpressions& x = *form_.score->expressions;
        if (x[id].op == "most") return true;
        return !x[id].in.empty() && (x[id].axes & (along_queries | along_keys)) == 0 &&
               x.contains(id, "operand");
    }
    void hoist(PairId id, FunctionRef<void(PairId)> found) const {
        if (is_hoisted(id)) return found(id);
        for (const PairId in : (*form_.score->expressions)[id].in) hoist(in, found);
    }
    static std::string letters_along(unsigned axes) {
        std::string letters;
        for (std::size_t axis = 0; axis < 4; ++axis)
            if ((axes >> axis & 1) != 0) letters += "bhts"[axis];
        return letters;
    }

    /// An expression without a product, beside the scores: of rank 4.
    Tensor outside(PairId id, const Shape& extents_of_positions) {
        const ScoreForm& form = *form_.score;
        std::map<int, PairId> leaves;
        find_leaves(id, "operand", leaves);
        std::map<PairId, Tensor> made;
        for (const auto& [index, leaf] : leaves) {
            const PairOperand& operand = form.operands[index];
            made.emplace(leaf, widened(ordered(score_operand(operand), letters_of(operand))));
        }
        return form.expressions->emit(rewriter_.target(), id, made, floating(), extents_of_positions);
    }

    Tensor mapped(Value value) { return {rewriter_.target(), rewriter_.map(value)}; }
    Tensor widened(Tensor x) const { return is_floating(x.dtype()) ? cast(x, floating()) : x; }

    /// The axes of an operand of the score as `score_operand` stores it.
    static std::string letters_of(const PairOperand& operand) {
        if (!operand.needs_order) return operand.letters;
        std::string letters;
        for (const char letter : {'b', 'h', 't', 's'})
            if (operand.letters.find(letter) != std::string::npos) letters += letter;
        return letters;
    }

    Tensor score_operand(const PairOperand& operand) {
        if (operand.rows >= 0) return rows_by_distance(operand);
        const Tensor value = mapped(operand.value);
        const AxisAtoms atoms = operand.axes.flattened();
        std::vector<std::int64_t> order(atoms.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
        const Shape stored = stored_score_operand(letters_of(operand), extents());
        if (!operand.needs_order) return reshape(value, stored);
        // Heads that are cut: all parts in order, spread along the parts on which the value does not depend.
        std::vector<int> axes = form_.batch_axes;
        axes.push_back(form_.query_axis);
        axes.push_back(form_.key_axis);
        const std::vector<std::int64_t> places = sorted_places(atoms, axes);
        Tensor x = transposed(reshape(value, extents_of(atoms, order)), places);
        std::vector<std::int64_t> own, all;
        std::size_t next = 0;
        for (std::size_t i = 0; i < axes.size(); ++i) {
            const int axis = axes[i];
            const bool of_heads = i > 0 && i + 2 < axes.size();
            std::int64_t left = axis < 0 ? 1 : form_.shape[axis];
            for (; next < places.size() && atoms[places[next]].axis == axis; ++next) {
                const AxisAtom& atom = atoms[places[next]];
                if (const std::int64_t outer = left / atom.stride / atom.extent; outer > 1) {
                    own.push_back(1);
                    all.push_back(outer);
                }
                own.push_back(atom.extent);
                all.push_back(atom.extent);
                left = atom.stride;
            }
            if (of_heads && left > 1) {
                own.push_back(1);
                all.push_back(left);
            }
        }
        return reshape(broadcast_to(reshape(x, Shape(own)), Shape(all)), stored);
    }

    /// Rows of a table for each distance of a key from a query, from 1 - queries on.
    Tensor rows_by_distance(const PairOperand& operand) {
        Graph& target = rewriter_.target();
        const PairExpressions& x = *form_.score->expressions;
        const std::int64_t distances = form_.queries + form_.keys - 1;
        std::map<PairId, Tensor> made;
        const auto make = [&](auto&& self, PairId id) -> void {
            if (const auto form = x.linear(id)) {
                const DType dtype = x[id].dtype;
                const Tensor from_first = iota(target, {distances}, 0, dtype);
                const double step = form->weights[3];
                const double first = form->offset - step * static_cast<double>(form_.queries - 1);
                made.emplace(id, (step == 1 ? from_first : from_first * step) + first);
                return;
            }
            for (const PairId in : x[id].in) self(self, in);
        };
        make(make, operand.rows);
        const Tensor ids = x.emit(target, operand.rows, made, DType::f32, {1, 1, distances, 1});
        const Tensor rows = embedding(mapped(operand.value), ids);  // [S + T - 1, H]
        return operand.letters == "r" ? reshape(rows, {distances}) : rows;
    }

    /// exp(logit) is added to the sum of a query's weights: all of them become less by one factor.
    Tensor after_sink(Tensor o, Tensor log_sum_exp) {
        const Tensor logit = outside(*form_.score->sink, {batch_, heads_, form_.queries, 1});
        const Tensor of_keys = reshape(log_sum_exp, {batch_, heads_, form_.queries, 1});
        return cast(cast(o, floating()) * sigmoid(of_keys - logit), o.dtype());
    }

    /// As it looks beside the scores.
    Tensor ordered(Tensor stored, const std::string& letters) const {
        std::vector<std::int64_t> places;
        for (const char letter : {'b', 'h', 't', 's'})
            if (const auto at = letters.find(letter); at != std::string::npos)
                places.push_back(static_cast<std::int64_t>(at));
        return reshape(transposed(stored, places), score_operand_shape(letters, extents()));
    }

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

    /// [B, heads, positions, ...] in these axes and this type.
    Tensor in_axes(Tensor o, const AxisMap& axes, const Type& type) {
        const AxisAtoms atoms = axes.flattened();
        const std::vector<std::int64_t> places = sorted_places(atoms, wanted_order(form_, form_.query_axis));
        std::vector<std::int64_t> back(places.size());
        for (std::size_t i = 0; i < places.size(); ++i) back[places[i]] = static_cast<std::int64_t>(i);
        const Tensor parts = reshape(o, extents_of(atoms, places));
        return cast(reshape(transposed(parts, back), type.shape), type.dtype);
    }

    const Graph& source_;
    Rewriter& rewriter_;
    const AttentionForm& form_;
    Attributes attributes_;
    std::int64_t batch_ = 1, heads_ = 1;
};

/// A softmax, or an exponential that may be made a softmax.
struct Core {
    NodeId id = -1;
    NodeId product = -1;  // with the values
    std::string reason;
};

/// Copies the nodes before the forms, so that each may be tried in its place.
std::string refusal(const Graph& graph, const AttentionForm& form, const AcceptAttention& accept) {
    if (!accept) return {};
    Rewriter rewriter(graph);
    for (NodeId id = 0; id < form.root; ++id) rewriter.copy(id);
    return AttentionReplacement::refusal(graph, rewriter, form, accept);
}

}  // namespace

AttentionMatch match_attention(const Graph& graph, std::span<Value> kept, const AcceptAttention& accept) {
    const Uses uses(graph, kept);
    const std::vector<bool> live = live_nodes(graph, kept);
    const ValueNumbers numbers(graph);
    AttentionMatch match;
    Forms forms;
    std::vector<Core> left;
    std::set<NodeId> inside;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const std::string_view op = graph.node(id).op->name;
        if ((op != "softmax" && op != "exp") || !live[id]) continue;
        const AttentionSearch search = attention_around({graph, uses, live, numbers}, id);
        if (!search.form) {
            if (search.is_softmax) left.push_back({id, search.product, search.form.reason()});
            continue;
        }
        const AttentionForm& form = *search.form;
        if (forms.contains(form.root)) continue;
        const std::string& scope = graph.node(id).origin.scope;
        inside.insert(form.replaced.begin(), form.replaced.end());
        if (const std::string reason = refusal(graph, form, accept); !reason.empty()) {
            match.refused.push_back({"match_attention", "attention", scope, reason});
            continue;
        }
        if (!form.copies.empty())
            match.refused.push_back({"match_attention", "broadcast", scope, form.copies});
        forms.emplace(form.root, form);
    }
    // Exponentials of one written-out softmax count once: the one that meets the values reports it.
    std::set<std::string> met, said;
    for (const Core& core : left)
        if (core.product >= 0) met.insert(graph.node(core.id).origin.scope);
    for (const Core& core : left) {
        const Node& node = graph.node(core.id);
        if (inside.contains(core.id) || (core.product >= 0 && inside.contains(core.product))) continue;
        if (node.op->name == "exp" && core.product < 0 && met.contains(node.origin.scope)) continue;
        const PassRefusal refused{"match_attention", "softmax", node.origin.scope, core.reason,
                                  node.origin.line.text()};
        if (node.op->name == "softmax" || said.insert(refused.text()).second)
            match.refused.push_back(refused);
    }
    match.matched = static_cast<int>(forms.size());
    const std::set<NodeId> unread = unread_nodes(graph, uses, live, forms);
    Rewriter rewriter(graph);
    for (NodeId id = 0; id < graph.end(); ++id) {
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
