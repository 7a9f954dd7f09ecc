#include "mantissa/passes/attention_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "mantissa/passes/attention_groups.h"

namespace mantissa::inline v0 {

namespace {

/// A masked score must lie this far below the others: exp of -104 is already 0 in FP32, and scores of a model
/// that trains differ by hundreds at most.
constexpr double least_gap = 1000;

bool is_floating_cast(const Graph& graph, const Node& node) {
    return node.op->name == "cast" && is_floating(graph.type(node.inputs[0]).dtype);
}

/// Matrix axes as they are stored: of the rows and of the columns of the operand as it is multiplied.
struct MatrixAxes {
    int rows, columns;
};
MatrixAxes stored_axes(bool transposed) { return transposed ? MatrixAxes{-1, -2} : MatrixAxes{-2, -1}; }

DType wider(DType a, DType b) {
    if (a == b) return a;
    return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

/// Each step tells whether the search goes on.
class AttentionRecognition {
  public:
    AttentionRecognition(const Graph& graph, const Uses& uses, PatternReader& patterns,
                         const SoftmaxForm& softmax)
        : graph_(graph), uses_(uses), patterns_(patterns), softmax_(softmax) {
        form_.shape = graph.type(softmax.scores).shape;
        form_.key_axis = softmax.axis;
        form_.keys = form_.shape[softmax.axis];
        form_.replaced = softmax.nodes;
    }

    OrReason<AttentionForm> run() {
        if (follow_weights() && take_values() && follow_scores() && check_factors() && check_uses() &&
            check_sizes()) {
            share_heads();
            return form_;
        }
        return why_not_.none();
    }

  private:
    template <class... Args>
    bool refuse(fmt::format_string<Args...> message, Args&&... args) {
        return why_not_.refuse(fmt::format(message, std::forward<Args>(args)...));
    }

    const Node& node(Value value) const { return graph_.node(value.node); }
    std::int64_t extent(int axis) const { return axis < 0 ? 1 : form_.shape[axis]; }
    bool is_whole_of(const AxisAtoms& atoms, int axis) const { return is_whole(atoms, axis, extent(axis)); }

    // From the softmax to the product with the values.

    bool follow_weights() {
        weights_ = {softmax_.last, 0};
        axes_ = AxisMap(form_.shape);
        for (;;) {
            const std::vector<NodeId>& users = uses_.of(weights_);
            if (users.empty()) return refuse("nothing reads the weights");
            if (users.size() > 1) return refuse("the weights are used elsewhere too, by {}", names_of(users));
            if (users[0] < 0) return refuse("the weights are a result of the graph");
            form_.replaced.insert(users[0]);
            const Node& next = graph_.node(users[0]);
            if (next.op->name == "matmul") {
                form_.root = users[0];
                return true;
            }
            if (!pass_weights(next)) return false;
            weights_ = {users[0], 0};
        }
    }

    bool pass_weights(const Node& next) {
        const std::string_view op = next.op->name;
        if (op == "dropout")
            return refuse("the weights pass a dropout of rate {}, and attention draws no random numbers",
                          next.attributes.number("rate"));
        if (op == "transpose")
            axes_.transpose(next.attributes.list("order"));
        else if (op == "reshape" && !axes_.reshape(next.outputs[0].shape))
            return refuse("a reshape of the weights cuts across their axes");
        else if (op != "reshape" && !is_floating_cast(graph_, next))
            return refuse("the weights go into '{}', not into a product with values", op);
        return true;
    }

    std::string names_of(const std::vector<NodeId>& users) const {
        std::string names;
        for (NodeId user : users)
            names += (names.empty() ? "'" : ", '") +
                     std::string(user < 0 ? std::string_view("result") : graph_.node(user).op->name) + "'";
        return names;
    }

    bool take_values() {
        const Node& root = graph_.node(form_.root);
        if (root.inputs.size() != 2) return refuse("a bias is added to the product with the values");
        const bool weights_first = root.inputs[0] == weights_;
        const bool ta = root.attributes.flag("transpose_a"), tb = root.attributes.flag("transpose_b");
        const MatrixAxes a = stored_axes(ta), b = stored_axes(tb);
        const AxisAtoms& rows = axes_[weights_first ? a.rows : b.columns];
        const AxisAtoms& summed = axes_[weights_first ? a.columns : b.rows];
        if (!is_whole_of(summed, form_.key_axis))
            return refuse(
                "the softmax does not run over the positions that the product with the values sums over");
        if (!find_query_axis(rows)) return false;

        form_.v.base = root.inputs[weights_first ? 1 : 0];
        const Shape& v = graph_.type(form_.v.base).shape;
        const MatrixAxes of_v = stored_axes(weights_first ? tb : ta);
        form_.head_size = v[weights_first ? of_v.columns : of_v.rows];
        form_.v.axes = operand_axes(axes_, weights_first ? of_v.rows : of_v.columns, summed);
        std::vector<AxisAtoms> output = batch_of(axes_);
        output.push_back(weights_first ? rows : head_atoms());
        output.push_back(weights_first ? head_atoms() : rows);
        form_.output = AxisMap(output);
        form_.dtype = graph_.type(form_.v.base).dtype;
        return true;
    }

    bool find_query_axis(const AxisAtoms& rows) {
        const int rank = form_.shape.rank();
        // Where there is one query, any axis of extent 1 would do; the one beside the keys is meant.
        for (int axis = rank - 1; axis >= 0 && form_.query_axis < 0; --axis)
            if (axis != form_.key_axis && is_whole_of(rows, axis)) form_.query_axis = axis;
        // Else the rows may be those of all heads that share keys, one head after another.
        for (int axis = rank - 1; axis >= 0 && form_.query_axis < 0 && rows.size() > 1; --axis)
            if (axis != form_.key_axis && is_whole_of({rows.back()}, axis)) {
                form_.query_axis = axis;
                shared_rows_.assign(rows.begin(), rows.end() - 1);
            }
        if (form_.query_axis < 0 && !rows.empty())
            return refuse("the rows of the product with the values are not one axis of the softmax");
        form_.queries = extent(form_.query_axis);
        for (int axis = 0; axis < rank; ++axis)
            if (axis != form_.query_axis && axis != form_.key_axis) form_.batch_axes.push_back(axis);
        for (const AxisAtom& atom : shared_rows_) form_.group *= atom.extent;
        return shared_rows_.empty() || are_innermost_heads(form_, shared_rows_) ||
               refuse("the rows of the product with the values are not one axis of the softmax");
    }

    /// Whether these are the queries, or those of all heads that share keys.
    bool are_queries(const AxisAtoms& rows) const {
        AxisAtoms wanted = shared_rows_;
        const std::int64_t queries = extent(form_.query_axis);
        if (queries > 1) wanted.push_back({.axis = form_.query_axis, .stride = 1, .extent = queries});
        return rows == wanted;
    }

    static std::vector<AxisAtoms> batch_of(const AxisMap& axes) {
        std::vector<AxisAtoms> batch;
        for (int axis = 0; axis < axes.rank() - 2; ++axis) batch.push_back(axes[axis]);
        return batch;
    }

    AxisAtoms head_atoms() const {
        if (form_.head_size == 1) return {};
        return {{.axis = AttentionOperand::head_axis, .stride = 1, .extent = form_.head_size}};
    }

    /// Axes of a matrix whose axis `at` (-2 or -1) holds these positions and whose other holds the head's
    /// elements.
    AxisMap operand_axes(const AxisMap& product, int at, const AxisAtoms& positions) const {
        std::vector<AxisAtoms> axes = batch_of(product);
        axes.push_back(at == -2 ? positions : head_atoms());
        axes.push_back(at == -2 ? head_atoms() : positions);
        return AxisMap(axes);
    }

    // From the softmax back to the product of queries and keys. The softmax is taken of factor * x + addend,
    // element by element, both known patterns over the softmax's axes.

    bool follow_scores() {
        scores_ = softmax_.scores;
        axes_ = AxisMap(form_.shape);
        while (node(scores_).op->name != "matmul") {
            form_.replaced.insert(scores_.node);
            if (!pass_scores(node(scores_))) return false;
        }
        form_.replaced.insert(scores_.node);
        return take_queries_and_keys(node(scores_));
    }

    /// Goes on to what the scores are made of.
    bool pass_scores(const Node& made) {
        const std::string_view op = made.op->name;
        if (op == "select") return pass_select(made);
        if (op == "mul" || op == "div" || op == "add" || op == "sub") return pass_arithmetic(made);
        if (op == "transpose") {
            axes_.undo_transpose(made.attributes.list("order"));
        } else if (op == "reshape") {
            if (!axes_.reshape(graph_.type(made.inputs[0]).shape))
                return refuse("a reshape of the scores cuts across their axes");
        } else if (op == "neg") {
            if (!set(factor_, product(factor_, uniform_pattern(-1)))) return false;
        } else if (!is_floating_cast(graph_, made)) {
            return refuse("'{}' stands between the softmax and a product of queries and keys", op);
        }
        scores_ = made.inputs[0];
        return true;
    }

    /// A constant operand of `made`, over the softmax's axes.
    Pattern constant_operand(const Node& made, std::size_t index) {
        const Pattern& own = patterns_.of(made.inputs[index]);
        if (own.kind == Pattern::Kind::unknown || own.kind == Pattern::Kind::uniform) return own;
        Pattern p = own;
        p.weights.assign(static_cast<std::size_t>(form_.shape.rank()), 0);
        const int missing = axes_.rank() - static_cast<int>(own.weights.size());
        for (std::size_t i = 0; i < own.weights.size(); ++i) {
            const AxisAtoms& atoms = axes_[missing + static_cast<int>(i)];
            if (own.weights[i] == 0) continue;
            if (atoms.size() != 1 || !is_whole_of(atoms, atoms[0].axis))
                return unknown_pattern("depends on positions along an axis that is reshaped");
            p.weights[static_cast<std::size_t>(atoms[0].axis)] = own.weights[i];
        }
        return p.kind == Pattern::Kind::split ? with_canonical_border(p) : p;
    }

    /// Goes on to the scores' side of a node, which must not be stretched by it.
    bool go_to_side(const Node& made, std::size_t index) {
        scores_ = made.inputs[index];
        return graph_.type(scores_).shape == made.outputs[0].shape ||
               refuse("'{}' stretches the scores", made.op->name);
    }

    bool pass_arithmetic(const Node& made) {
        const bool multiplies = made.op->name == "mul" || made.op->name == "div";
        const Pattern first = constant_operand(made, 0), second = constant_operand(made, 1);
        const std::size_t side = first.known() && !second.known() ? 1 : 0;
        const Pattern& p = side == 0 ? second : first;
        if (!p.known())
            return refuse("the scores are {} something that {}",
                          multiplies ? "multiplied or divided by" : "added to", p.reason);
        if (multiplies && p.kind != Pattern::Kind::uniform && p.kind != Pattern::Kind::split)
            return refuse("the scale depends on the position");
        if (made.op->name == "div" && side == 1) return refuse("the scores are a divisor");
        return (multiplies ? scale_by(made, p) : add_term(made, p, side)) && go_to_side(made, side);
    }

    bool scale_by(const Node& made, const Pattern& p) {
        if (made.op->name == "mul") return set(factor_, product(factor_, p));
        return set(factor_, combined(factor_, p, [](double a, double b) { return a == 0 ? 0 : a / b; }));
    }

    /// `side`: that of the scores.
    bool add_term(const Node& made, const Pattern& p, std::size_t side) {
        const double sign = made.op->name == "sub" && side == 0 ? -1 : 1;
        Pattern term;
        if (!set(term, product(factor_, p)) ||
            !set(addend_, combined(addend_, term, [&](double c, double t) { return c + sign * t; })))
            return false;
        const bool from_term = made.op->name == "sub" && side == 1;
        return !from_term || set(factor_, product(factor_, uniform_pattern(-1)));
    }

    bool pass_select(const Node& made) {
        const Pattern condition = constant_operand(made, 0);
        if (!condition.known()) return refuse("the mask {}", condition.reason);
        const Pattern first = constant_operand(made, 1), second = constant_operand(made, 2);
        const bool takes_second = first.known() && !second.known();
        const Pattern& fill = takes_second ? first : second;
        if (!fill.known()) return refuse("what masked scores become {}", fill.reason);
        const auto taken = [&](double c) { return (c != 0) != takes_second; };
        const std::array<Pattern, 4> all{condition, fill, factor_, addend_};
        // c, fill, factor, addend; a factor of 0 says that an outer select took the other side already.
        const Pattern filled = combine(all, [&](std::span<const double> v) {
            return taken(v[0]) || v[2] == 0 ? v[3] : v[2] * v[1] + v[3];
        });
        const auto factor_where_taken = [&](double c, double f) { return taken(c) ? f : 0.0; };
        return set(addend_, filled) && set(factor_, combined(condition, factor_, factor_where_taken)) &&
               go_to_side(made, takes_second ? 2 : 1);
    }

    bool set(Pattern& to, Pattern p) {
        if (!p.known()) return refuse("the scale or the mask {}", p.reason);
        to = std::move(p);
        return true;
    }
    static Pattern combined(const Pattern& a, const Pattern& b,
                            FunctionRef<double(double, double)> function) {
        const std::array<Pattern, 2> both{a, b};
        return combine(both, [&](std::span<const double> v) { return function(v[0], v[1]); });
    }
    /// 0 times anything is 0: a factor of 0 means that the scores are not taken there.
    static Pattern product(const Pattern& a, const Pattern& b) {
        return combined(a, b, [](double x, double y) { return x == 0 || y == 0 ? 0 : x * y; });
    }

    bool take_queries_and_keys(const Node& made) {
        if (made.inputs.size() != 2) return refuse("a bias is added to the product of queries and keys");
        const AxisAtoms &rows = axes_[-2], &columns = axes_[-1];
        const bool queries_first = are_queries(rows) && is_whole_of(columns, form_.key_axis);
        if (!queries_first && !(are_queries(columns) && is_whole_of(rows, form_.key_axis)))
            return refuse("the scores' rows and columns are not the queries and keys of the weights");
        const MatrixAxes a = stored_axes(made.attributes.flag("transpose_a"));
        const MatrixAxes b = stored_axes(made.attributes.flag("transpose_b"));
        const Shape& first = graph_.type(made.inputs[0]).shape;
        if (first[a.columns] != form_.head_size)
            return refuse("queries and keys have {} elements, values {}", first[a.columns], form_.head_size);
        AttentionOperand left = peeled(made.inputs[0]), right = peeled(made.inputs[1]);
        left.axes = operand_axes(axes_, a.rows, rows);
        right.axes = operand_axes(axes_, b.columns, columns);
        form_.q = queries_first ? left : right;
        form_.k = queries_first ? right : left;
        form_.scale = left.factor * right.factor;
        form_.dtype = wider(form_.dtype, graph_.type(made.inputs[0]).dtype);
        return true;
    }

    /// Takes factors off queries or keys, also from below views and casts.
    AttentionOperand peeled(Value value) const {
        AttentionOperand whole{.base = value}, operand = whole;
        for (Value x = value;;) {
            const Node& made = node(x);
            const std::string_view op = made.op->name;
            if (op == "mul" || op == "div") {
                const bool second = patterns_.of(made.inputs[1]).kind == Pattern::Kind::uniform;
                const Pattern& p = patterns_.of(made.inputs[second ? 1 : 0]);
                if (p.kind != Pattern::Kind::uniform || (op == "div" && !second)) break;
                if (p.value == 0 || !std::isfinite(p.value)) break;
                x = made.inputs[second ? 0 : 1];
                if (graph_.type(x).shape != made.outputs[0].shape) break;
                operand.factor *= op == "mul" ? p.value : 1 / p.value;
                operand.base = x;
                whole = operand;
            } else if (op == "transpose" || op == "reshape" || is_floating_cast(graph_, made)) {
                operand.views.insert(operand.views.begin(), x.node);
                x = made.inputs[0];
                operand.base = x;
            } else {
                break;
            }
        }
        return whole;
    }

    // What the patterns must be for attention's own scale and mask.

    bool check_factors() {
        face_keys(factor_);
        face_keys(addend_);
        const bool split_factor = factor_.kind == Pattern::Kind::split;
        const Pattern& border = split_factor ? factor_ : addend_;
        if (border.kind != Pattern::Kind::split) return set_scale(factor_.value, addend_.value);
        const double outside_factor = split_factor ? factor_.outside : factor_.value;
        const double outside_addend = addend_.kind == Pattern::Kind::split ? addend_.outside : addend_.value;
        const bool hides_outside = hides(outside_factor, outside_addend, factor_.value, addend_.value);
        if (!hides_outside && hides(factor_.value, addend_.value, outside_factor, outside_addend))
            return refuse("the mask shows the later keys and hides the earlier");
        if (!hides_outside)
            return refuse(
                "scores on two sides of a border between positions differ, and neither side is masked: {} "
                "and {} are added, factors {} and {}",
                addend_.value, outside_addend, factor_.value, outside_factor);
        return check_border(border) && set_scale(factor_.value, addend_.value);
    }

    /// Turns a border so that later keys are outside.
    void face_keys(Pattern& p) const {
        if (p.kind != Pattern::Kind::split || p.weights[static_cast<std::size_t>(form_.key_axis)] >= 0)
            return;
        for (double& w : p.weights) w = w == 0 ? 0.0 : -w;
        p.offset = 1 - p.offset;
        std::swap(p.value, p.outside);
    }

    /// Whether scores with this factor and addend weigh nothing beside those of the other side.
    static bool hides(double factor, double addend, double other_factor, double other_addend) {
        return (factor == 0 || factor == other_factor) && addend <= other_addend - least_gap;
    }

    bool check_border(const Pattern& border) {
        for (int axis = 0; axis < form_.shape.rank(); ++axis) {
            const double weight = border.weights[static_cast<std::size_t>(axis)];
            const double wanted = axis == form_.key_axis ? 1 : axis == form_.query_axis ? -1 : 0;
            if (weight == wanted) continue;
            if (wanted == 0) return refuse("the mask differs along an axis of the batch");
            if (axis == form_.query_axis && weight == 0)
                return refuse("the mask hides the same keys from every query");
            return refuse("the mask is no causal one: its border does not run along equal positions");
        }
        const auto last = static_cast<std::int64_t>(-border.offset);  // query i sees keys up to i + last
        if (last >= form_.keys - 1) return true;
        if (last != form_.keys - form_.queries)
            return refuse(
                "query i sees keys up to i{:+}, where causal attention of {} queries to {} keys shows up "
                "to i{:+}",
                last, form_.queries, form_.keys, form_.keys - form_.queries);
        form_.causal = true;
        return true;
    }

    bool set_scale(double factor, double addend) {
        form_.scale *= factor;
        if (!std::isfinite(form_.scale) || form_.scale == 0 || !std::isfinite(addend))
            return refuse("the scores are multiplied by {}, and {} is added", form_.scale, addend);
        return true;
    }

    /// Nobody else may read what attention does not compute.
    bool check_uses() {
        for (const NodeId id : form_.replaced) {
            if (id == form_.root) continue;
            const auto outputs = static_cast<std::int32_t>(graph_.node(id).outputs.size());
            for (std::int32_t output = 0; output < outputs; ++output)
                for (const NodeId user : uses_.of({id, output}))
                    if (!form_.replaced.contains(user))
                        return refuse("the output of '{}' is used elsewhere too, by {}",
                                      graph_.node(id).op->name, names_of({user}));
        }
        return true;
    }

    bool check_sizes() {
        if (form_.keys < 1 || form_.shape.elements() == 0) return refuse("there are no scores");
        if (form_.causal && form_.keys < form_.queries)
            return refuse("{} queries have only {} keys", form_.queries, form_.keys);
        return true;
    }

    /// Keys and values that were repeated for heads in a row are read from before that.
    void share_heads() {
        const auto k = before_repeat(graph_, form_.k), v = before_repeat(graph_, form_.v);
        if (!k && !v) return;
        if (form_.group > 1 || !k || !v || k->repeated != v->repeated) {
            form_.copies = "keys and values are not repeated alike";
        } else if (!are_innermost_heads(form_, k->repeated)) {
            form_.copies = "keys and values are repeated along other axes than the innermost of the heads";
        } else {
            form_.k = k->operand;
            form_.v = v->operand;
            for (const AxisAtom& atom : k->repeated) form_.group *= atom.extent;
        }
    }

    const Graph& graph_;
    const Uses& uses_;
    PatternReader& patterns_;
    const SoftmaxForm& softmax_;
    FirstReason why_not_;
    AttentionForm form_;
    Value weights_, scores_;  // how far the search has come on both sides
    AxisMap axes_;            // of the tensor at hand, in terms of the softmax's
    AxisAtoms shared_rows_;   // parts of the heads that are rows of the products
    Pattern factor_ = uniform_pattern(1), addend_ = uniform_pattern(0);
};

}  // namespace

OrReason<AttentionForm> attention_around(const Graph& graph, const Uses& uses, PatternReader& patterns,
                                         const SoftmaxForm& softmax) {
    return AttentionRecognition(graph, uses, patterns, softmax).run();
}

}  // namespace mantissa
