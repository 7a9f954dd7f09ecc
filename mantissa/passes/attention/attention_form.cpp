#include "mantissa/passes/attention/attention_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"

namespace mantissa::inline v0 {

namespace {

/// Keys or values before they were repeated for heads of queries that share them:
///
///   %1 = reshape(%k) [B, G, 1, S, D], %2 = broadcast(%1) [B, G, R, S, D], %3 = reshape(%2) [B, G R, S, D]
/// is %k, each of its heads once for R heads of queries.
struct BeforeRepeat {
    AttentionOperand operand;  ///< without views
    AxisAtoms repeated;        ///< parts of the softmax's axes along which they are equal, in row-major order
};

/// Maps the axes of a view to the axes of the viewed value; false where it is no movement of whole parts.
bool undo(const Graph& graph, const Node& view, AxisMap& axes) {
    if (view.op->name == "transpose") {
        axes.undo_transpose(view.attributes.list("order"));
        return true;
    }
    return view.op->name == "reshape" && axes.reshape(graph.type(view.inputs[0]).shape);
}

/// Nothing if the operand is no repetition.
std::optional<BeforeRepeat> before_repeat(const Graph& graph, const AttentionOperand& operand) {
    AxisMap axes = operand.axes;
    for (auto view = operand.views.rbegin(); view != operand.views.rend(); ++view)
        if (!undo(graph, graph.node(*view), axes)) return std::nullopt;
    Value value = operand.base;
    while (graph.node(value.node).op->name != "broadcast") {
        const Node& node = graph.node(value.node);
        if (node.inputs.size() != 1 || !undo(graph, node, axes)) return std::nullopt;
        value = node.inputs[0];
    }
    const Value base = graph.node(value.node).inputs[0];
    const Shape &from = graph.type(base).shape, &to = graph.type(value).shape;
    const int missing = to.rank() - from.rank();
    BeforeRepeat before{.operand = {.base = base, .factor = operand.factor}, .repeated = {}};
    std::vector<AxisAtoms> kept;
    for (int axis = 0; axis < to.rank(); ++axis) {
        const AxisAtoms& atoms = axes[axis];
        const bool is_stretched = axis < missing || from[axis - missing] != to[axis];
        if (is_stretched) before.repeated.insert(before.repeated.end(), atoms.begin(), atoms.end());
        if (axis >= missing) kept.push_back(is_stretched ? AxisAtoms{} : atoms);
    }
    before.operand.axes = AxisMap(std::move(kept));
    return before;
}

/// Whether these parts are the innermost ones of the heads, which are all axes of the batch but the first: so
/// that heads in a row are equal.
bool are_innermost_heads(const AttentionForm& form, const AxisAtoms& parts) {
    std::vector<AxisAtoms> axes;
    std::int64_t heads = 1, equal = 1;
    for (std::size_t i = 1; i < form.batch_axes.size(); ++i) {
        const int axis = form.batch_axes[i];
        if (form.shape[axis] == 1) continue;
        axes.push_back({{.axis = axis, .stride = 1, .extent = form.shape[axis]}});
        heads *= form.shape[axis];
    }
    for (const AxisAtom& part : parts) equal *= part.extent;
    if (heads % equal != 0) return false;
    AxisMap cut(std::move(axes));
    return cut.reshape({heads / equal, equal}) && cut[1] == parts;
}

/// A finite score that stands for a hidden one must lie this far below the others: exp of -104 is already 0
/// in FP32, and scores of a model that trains differ by hundreds at most.
constexpr double min_gap = 1000;

/// Between a sum over the keys and its logarithm, as it is read elsewhere, stand a few nodes at most.
constexpr int max_steps_to_logarithm = 5;

bool is_floating_cast(const Graph& graph, const Node& node) {
    return node.op->name == "cast" && is_floating(graph.type(node.inputs[0]).dtype);
}

/// The number that a value is everywhere, where it is made of constants alone.
std::optional<double> one_number(const Graph& graph, Value value) {
    const Node& node = graph.node(value.node);
    if (node.op->name == "constant") return node.attributes.number("value");
    const bool moves = node.op->fuser == FuserClass::movement && node.inputs.size() == 1;
    const bool computes = node.op->meaning || node.op->name == "cast";
    if (!moves && !computes) return std::nullopt;
    std::vector<double> numbers;
    for (const Value& input : node.inputs) {
        const std::optional<double> number = one_number(graph, input);
        if (!number) return std::nullopt;
        numbers.push_back(*number);
    }
    return moves ? numbers[0] : evaluate_on_numbers(node, graph.input_types(node), numbers);
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
    AttentionRecognition(const SearchedGraph& searched, NodeId core)
        : graph_(searched.graph),
          live_(searched.live),
          uses_(searched.uses),
          numbers_(searched.numbers),
          core_(core) {}

    AttentionSearch run() {
        const bool found = follow_weights() && take_values() && read_weights() && take_queries_and_keys() &&
                           take_mask() && take_scale() && check_uses() && check_sizes();
        const bool summed = graph_.node(core_).op->name == "softmax" || is_summed_;
        const bool meets_product = reader_ && reader_->product().node >= 0;
        if (!found) return {why_not_.none(), product_, summed || meets_product};
        share_heads();
        return {form_, product_, true};
    }

  private:
    template <class... Args>
    bool refuse(fmt::format_string<Args...> message, Args&&... args) {
        return why_not_.refuse(fmt::format(message, std::forward<Args>(args)...));
    }

    const Node& node(Value value) const { return graph_.node(value.node); }
    /// Readers of a value that are read themselves.
    std::vector<NodeId> users_of(Value value) const {
        std::vector<NodeId> users = uses_.of(value);
        std::erase_if(users, [&](NodeId user) { return user >= 0 && !live_[user]; });
        return users;
    }
    std::int64_t extent(int axis) const { return axis < 0 ? 1 : form_.shape[axis]; }
    bool is_whole_of(const AxisAtoms& atoms, int axis) const { return is_whole(atoms, axis, extent(axis)); }

    // Follows the graph from the softmax to the product with the values.

    bool follow_weights() {
        const Value first{core_, 0};
        std::vector<Value> found{first};
        std::map<Value, Value> came_from;
        std::vector<std::pair<NodeId, Value>> roots;
        std::string goes_into;
        for (std::size_t i = 0; i < found.size(); ++i) {
            const Value at = found[i];
            for (const NodeId user : users_of(at)) {
                if (user < 0) {
                    if (goes_into.empty()) goes_into = "the weights are a result of the graph";
                    continue;
                }
                const Node& next = graph_.node(user);
                const std::string_view op = next.op->name;
                is_summed_ = is_summed_ || op == "sum";
                if (op == "matmul") {
                    if (roots.empty() || roots.back().first != user) roots.emplace_back(user, at);
                } else if (passes_weights(next)) {
                    if (came_from.try_emplace({user, 0}, at).second) found.push_back({user, 0});
                } else if (goes_into.empty() || op != "sum") {
                    goes_into = fmt::format("the weights go into '{}', not into a product with values", op);
                }
            }
        }
        if (roots.empty()) return refuse("{}", goes_into.empty() ? "nothing reads the weights" : goes_into);
        std::vector<NodeId> users;
        for (const auto& [root, from] : roots) users.push_back(root);
        if (roots.size() > 1) return refuse("the weights are used elsewhere too, by {}", names_of(users));
        form_.root = product_ = roots[0].first;
        weights_ = roots[0].second;
        for (Value at = weights_; at != first; at = came_from.at(at)) path_.insert(path_.begin(), at.node);
        return follow_axes();
    }

    bool passes_weights(const Node& next) const {
        const std::string_view op = next.op->name;
        return op == "transpose" || op == "reshape" || op == "mul" || op == "div" || op == "select" ||
               op == "dropout" || op == "slice" || is_floating_cast(graph_, next);
    }

    /// The axes of the weights as they meet the values, in terms of the frame's.
    bool follow_axes() {
        form_.shape = graph_.type({core_, 0}).shape;
        axes_ = AxisMap(form_.shape);
        for (const NodeId id : path_) {
            const Node& next = graph_.node(id);
            const std::string_view op = next.op->name;
            const Shape& shape = next.outputs[0].shape;
            if (op == "transpose") {
                axes_.transpose(next.attributes.list("order"));
            } else if (op == "reshape") {
                if (!axes_.reshape(shape)) return refuse("a reshape of the weights cuts across their axes");
            } else if (op == "slice") {  // the frame is the slice
                form_.shape = shape;
                axes_ = AxisMap(shape);
            } else if (shape.elements() != form_.shape.elements() || shape.rank() != axes_.rank()) {
                return refuse("'{}' stretches the weights", op);
            }
        }
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
        if (summed.size() > 1 || (!summed.empty() && !is_whole_of(summed, summed[0].axis)))
            return refuse(
                "the softmax does not run over the positions that the product with the values sums over");
        form_.key_axis = summed.empty() ? unit_axis() : summed[0].axis;
        if (form_.key_axis < 0) return refuse("there is no axis of keys");
        form_.keys = form_.shape[form_.key_axis];
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

    /// The last axis of extent 1, for a single key.
    int unit_axis() const {
        int axis = form_.shape.rank() - 1;
        while (axis >= 0 && form_.shape[axis] != 1) --axis;
        return axis;
    }

    bool find_query_axis(const AxisAtoms& rows) {
        const int rank = form_.shape.rank();
        // Where there is one query, any axis of extent 1 would do. This takes the one beside the keys.
        for (int axis = rank - 1; axis >= 0 && form_.query_axis < 0; --axis)
            if (axis != form_.key_axis && is_whole_of(rows, axis)) form_.query_axis = axis;
        // Else the rows may belong to all heads that share keys, one head after another.
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

    /// Whether these are the queries, alone or of all heads that share keys.
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

    // Follows the graph from the product with the values back to the product of queries and keys.

    bool read_weights() {
        const PairFrame frame{form_.shape, form_.query_axis, form_.key_axis, form_.batch_axes};
        extents_ = frame.pairs();
        reader_.emplace(graph_, numbers_, *expressions_, frame, shared_rows_);
        const PairId id =
            reader_->find_product(weights_, axes_) ? reader_->read(weights_, PairPlace::whole(axes_)) : -1;
        if (id < 0) return refuse("{}", reader_->reason());
        if (reader_->product().node < 0 && !expressions_->contains(id, "product"))
            return refuse("{}", reader_->no_product());
        WeightProduct product = algebra_.product_of(id);
        Expected<SoftmaxWeights> weights = algebra_.weights(product);
        if (!weights) {
            const std::string reason = weights.reason();
            if (!normalised_afterwards(product, weights)) return refuse("{}", reason);
        }
        softmax_ = *weights;
        if (!expressions_->contains(softmax_.score, "product")) return refuse("{}", reader_->no_product());
        if (expressions_->contains(softmax_.multiplier, "product"))
            return refuse("the weights are multiplied by something of the scores");
        return true;
    }

    /// Follows the product with the values to the division behind it.
    bool normalised_afterwards(WeightProduct& product, Expected<SoftmaxWeights>& weights) {
        NodeId last = form_.root;
        AxisMap axes = form_.output;
        std::vector<NodeId> passed;
        while (!weights) {
            const std::vector<NodeId> users = users_of({last, 0});
            if (users.size() != 1 || users[0] < 0) return false;
            const Node& next = graph_.node(users[0]);
            const std::string_view op = next.op->name;
            if (op == "transpose") {
                axes.transpose(next.attributes.list("order"));
            } else if (op == "reshape") {
                if (!axes.reshape(next.outputs[0].shape)) return false;
            } else if (op == "mul" || op == "div") {
                const std::size_t other = next.inputs[0] == Value{last, 0} ? 1 : 0;
                if (next.inputs[0] == next.inputs[1] || (op == "div" && other == 0)) return false;
                if (next.outputs[0].shape != graph_.type({last, 0}).shape) return false;
                const auto by = read_beside(next, other, axes);
                if (!by) return false;
                algebra_.multiply(product, *by, op == "mul" ? 1 : -1);
            } else if (!is_floating_cast(graph_, next)) {
                return false;
            }
            last = users[0];
            passed.push_back(last);
            weights = algebra_.weights(product);
        }
        form_.replaced.insert(form_.root);
        form_.replaced.insert(passed.begin(), passed.end());
        form_.root = last;
        form_.output = axes;
        return true;
    }

    /// The factor or divisor of the result, if all elements of a head share it.
    std::optional<PairId> read_beside(const Node& made, std::size_t input, const AxisMap& axes) {
        const Shape &from = graph_.type(made.inputs[input]).shape, &to = made.outputs[0].shape;
        std::vector<AxisAtoms> own;
        for (int axis = 0; axis < from.rank(); ++axis) {
            const int at = axis + to.rank() - from.rank();
            own.push_back(from[axis] == to[at] ? axes[at] : AxisAtoms{});
        }
        const PairId id = reader_->read(made.inputs[input], PairPlace::whole(AxisMap(std::move(own))));
        return id < 0 ? std::nullopt : std::optional(id);
    }

    bool take_queries_and_keys() {
        const Node& made = node(reader_->product());
        axes_ = reader_->product_axes();
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
                const bool second = one_number(graph_, made.inputs[1]).has_value();
                const std::optional<double> factor = one_number(graph_, made.inputs[second ? 1 : 0]);
                if (!factor || *factor == 0 || !std::isfinite(*factor) || (op == "div" && !second)) break;
                x = made.inputs[second ? 0 : 1];
                if (graph_.type(x).shape != made.outputs[0].shape) break;
                operand.factor *= op == "mul" ? *factor : 1 / *factor;
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

    // The mask, and the scale of the product.

    bool take_mask() {
        PairExpressions& x = *expressions_;
        PairId visible = softmax_.visible;
        PairSum dropped;
        const auto parts = algebra_.unmasked(softmax_.score, 1, -min_gap);
        const PairId both = x.make("logical_and", {visible, parts.visible});
        if (both != visible) {
            const PairId written = softmax_.score;
            softmax_.score = algebra_.changing(parts.score, dropped);
            is_shifted_ = !dropped.empty();
            if (every_query_sees_a_key(both))
                visible = both;
            else if (!see_finite_scores(written, both, parts, visible))
                return false;
        }
        std::vector<PairId> rest;
        for (const PairId condition : x.conjuncts(visible)) {
            const auto border = border_of(condition);
            if (border && border->holds_everywhere) continue;
            if (border && border->holds_nowhere) return refuse("no query sees a key");
            if (border && border->is_causal && form_.keys >= form_.queries)
                form_.causal = true;
            else
                rest.push_back(condition);
        }
        softmax_.visible = x.conjunction(rest);
        if (softmax_.sink) {
            sink_ = algebra_.expression_of(*softmax_.sink);
            // A sink stands beside the scores as they were before anything was taken from all of them.
            if (!dropped.empty()) sink_ = x.make("sub", {*sink_, algebra_.expression_of(dropped)});
            for (const char* const op : {"row", "product", "sum", "random"})
                if (x.contains(*sink_, op)) return refuse("the logit that is no key's depends on the scores");
        }
        for (const PairId part : {softmax_.score, softmax_.visible, softmax_.multiplier})
            if (expressions_->contains(part, "row") || expressions_->contains(part, "sum"))
                return refuse("the scores depend on all scores of their query, and not by a sum with it");
        return true;
    }

    /// Finite scores stand for hidden ones only where a query sees any key. A query that sees none weighs its
    /// scores as they are written, without the number that hides: beside it the log-sum-exp could not tell
    /// how many scores are equal.
    bool see_finite_scores(PairId written, PairId both, const SoftmaxAlgebra::Masked& parts,
                           PairId& visible) {
        PairExpressions& x = *expressions_;
        if (parts.fills.size() != 1)
            return refuse("hidden scores are of {} finite numbers, and a query may see no key",
                          parts.fills.size());
        if (softmax_.sink)
            return refuse("hidden scores are finite, a query may see no key, and a logit is no key's");
        for (const char* const op : {"row", "product", "sum", "random"})
            if (x.contains(both, op)) return refuse("which pairs are visible depends on the scores");
        if (reads_distances(both))
            return refuse(
                "hidden scores are finite, a query may see no key, and a table of distances hides them");
        const PairId seen = x.most(x.cast(both, DType::f32));
        const PairId sees_none = x.make("less", {seen, x.number(0.5)});
        const PairId shifted = x.make("add", {written, x.number(-*parts.fills.begin())});
        softmax_.score = x.make("select", {sees_none, shifted, softmax_.score});
        visible =
            x.make("logical_and", {visible, x.make("select", {sees_none, x.truth(true), parts.visible})});
        is_shifted_ = true;
        return true;
    }

    bool reads_distances(PairId id) const {
        const PairTerm& term = (*expressions_)[id];
        return (term.op == "operand" &&
                reader_->operands()[static_cast<std::size_t>(term.index)].rows >= 0) ||
               std::ranges::any_of(term.in, [&](PairId in) { return reads_distances(in); });
    }

    struct Border {
        bool holds_everywhere = false;
        bool holds_nowhere = false;
        bool is_causal = false;  ///< as attention's own mask
    };
    /// A condition that compares positions.
    std::optional<Border> border_of(PairId condition) const {
        const PairTerm& term = (*expressions_)[condition];
        if (term.op != "less" && term.op != "less_equal") return std::nullopt;
        const auto a = expressions_->linear(term.in[0]), b = expressions_->linear(term.in[1]);
        if (!a || !b) return std::nullopt;
        // a - b < 0, or <= 0.
        double offset = a->offset - b->offset, most = offset, least = offset, step = 0;
        std::array<double, 4> weights = {};
        for (std::size_t axis = 0; axis < 4; ++axis) {
            if (extents_[static_cast<int>(axis)] == 1) continue;  // there is no other index
            weights[axis] = a->weights[axis] - b->weights[axis];
            most += std::max(0.0, weights[axis] * static_cast<double>(extents_[static_cast<int>(axis)] - 1));
            least += std::min(0.0, weights[axis] * static_cast<double>(extents_[static_cast<int>(axis)] - 1));
            if (weights[axis] != 0) step = std::max(step, std::abs(weights[axis]));
        }
        Border border{.holds_everywhere = term.op == "less" ? most < 0 : most <= 0,
                      .holds_nowhere = term.op == "less" ? least >= 0 : least > 0};
        if (weights[0] != 0 || weights[1] != 0 || weights[3] <= 0) return border;
        // One query has no axis to compare with, and sees all keys under the causal mask.
        if (weights[2] != -weights[3]) return border;
        offset /= step;
        const double last = term.op == "less" ? std::ceil(-offset) - 1 : std::floor(-offset);
        border.is_causal = last == static_cast<double>(form_.keys - form_.queries);
        return border;
    }

    /// Whether the condition shows it, at the key of the query's own position, the first or the last key.
    bool every_query_sees_a_key(PairId visible) {
        PairExpressions& x = *expressions_;
        for (const int which : {0, 1, 2}) {
            std::map<PairId, PairId> by;
            for (const DType dtype : {DType::f32, DType::i32, DType::i64}) {
                const auto number = [&](std::int64_t value) {
                    return x.number(static_cast<double>(value), dtype);
                };
                const PairId own = x.make("add", {x.position(2, dtype), number(form_.keys - form_.queries)});
                by[x.position(3, dtype)] = which == 0 ? own : number(which == 1 ? 0 : form_.keys - 1);
            }
            if (which == 0 && form_.keys < form_.queries) continue;
            if (which == 0 && form_.keys == form_.queries) add_operands_at_queries(by);
            bool holds = true;
            for (const PairId condition : x.conjuncts(x.replaced(visible, by))) {
                const auto border = border_of(condition);
                holds = holds && border && border->holds_everywhere;
            }
            if (holds) return true;
        }
        return false;
    }

    /// The value at the key of the query's own position: the same value along the queries.
    void add_operands_at_queries(std::map<PairId, PairId>& by) {
        const auto& operands = reader_->operands();
        for (std::size_t i = 0; i < operands.size(); ++i)
            for (std::size_t j = 0; j < operands.size(); ++j) {
                std::string letters = operands[i].letters;
                const std::size_t at = letters.find('s');
                if (at == std::string::npos || letters.find('t') != std::string::npos) continue;
                letters[at] = 't';
                if (letters != operands[j].letters ||
                    !reader_->same_value(operands[i].value, operands[j].value))
                    continue;
                by[reader_->leaf(i)] = reader_->leaf(j);
            }
    }

    /// The number that the product is multiplied with wherever it stands: attention's scale.
    bool take_scale() {
        PairExpressions& x = *expressions_;
        std::set<double> factors;
        find_factors(softmax_.score, factors);
        if (factors.size() == 1 && *factors.begin() != 0 && std::isfinite(*factors.begin())) {
            const double factor = *factors.begin();
            if (factor != 1)
                softmax_.score = x.replaced(softmax_.score,
                                            {{x.make("mul", {x.product(), x.number(factor)}), x.product()}});
            form_.scale *= factor;
        }
        if (!std::isfinite(form_.scale) || form_.scale == 0)
            return refuse("the scores are multiplied by {}", form_.scale);
        const bool plain = softmax_.score == x.product() && x.is_number(softmax_.visible, 1) &&
                           x.is_number(softmax_.multiplier, 1) && !sink_;
        if (x.is_number(softmax_.visible, 0)) return refuse("no query sees a key");
        if (!plain)
            form_.score = ScoreForm{expressions_, softmax_.score,      softmax_.visible,  softmax_.multiplier,
                                    sink_,        reader_->operands(), reader_->randoms()};
        return true;
    }

    void find_factors(PairId id, std::set<double>& factors) const {
        const PairTerm& term = (*expressions_)[id];
        if (term.op == "product") {
            factors.insert(1);
        } else if (term.op == "mul" && expressions_->is_number(term.in[1]) &&
                   (*expressions_)[term.in[0]].op == "product") {
            factors.insert((*expressions_)[term.in[1]].value);
        } else {
            for (const PairId in : term.in) find_factors(in, factors);
        }
    }

    /// Nobody else may read a value that attention does not compute.
    bool check_uses() {
        form_.replaced.insert(reader_->passed().begin(), reader_->passed().end());
        form_.replaced.insert(path_.begin(), path_.end());
        form_.replaced.insert({core_, form_.root});
        const std::set<NodeId> inside = form_.replaced;
        for (const NodeId id : inside) {
            if (id == form_.root) continue;
            const auto outputs = static_cast<std::int32_t>(graph_.node(id).outputs.size());
            for (std::int32_t output = 0; output < outputs; ++output)
                if (!is_known_outside({id, output}, max_steps_to_logarithm)) return false;
        }
        return true;
    }

    /// Whether the values that others read are the log-sum-exp.
    bool is_known_outside(Value value, int steps) {
        std::vector<NodeId> others;
        for (const NodeId user : users_of(value))
            if (!form_.replaced.contains(user)) others.push_back(user);
        if (others.empty()) return true;
        if (const auto place = reader_->rows().find(value); place != reader_->rows().end()) {
            const PairPlace at = place->second;
            if (!is_shifted_ && algebra_.is_log_of(reader_->read(value, at), log_sum())) {
                form_.log_sums.push_back({value, at.axes});
                return true;
            }
            const std::size_t known = form_.log_sums.size();
            if (steps > 0 && std::ranges::all_of(others, [&](NodeId user) {
                    return goes_on_to_logarithm(user, at, value, steps - 1);
                }))
                return true;
            form_.log_sums.resize(known);
        }
        const bool of_weights = value.node == core_ || std::ranges::find(path_, value.node) != path_.end();
        if (of_weights) return refuse("the weights are used elsewhere too, by {}", names_of(users_of(value)));
        return refuse("the output of '{}' is used elsewhere too, by {}", node(value).op->name,
                      names_of(others));
    }

    /// The sum over keys alone; attention gives its logarithm.
    KeySum log_sum() const {
        KeySum sum = softmax_.sum;
        sum.sinks.clear();
        return sum;
    }

    /// Whether a node works element by element on values that do not change along the keys.
    bool goes_on_to_logarithm(NodeId user, const PairPlace& at, Value from, int steps) {
        if (user < 0) return false;
        if (form_.replaced.contains(user)) return true;
        const Node& next = graph_.node(user);
        const Shape &shape = graph_.type(from).shape, &to = next.outputs[0].shape;
        PairPlace place = at;
        if (next.op->name == "reshape") {
            if (!place.axes.reshape(to)) return false;
            place = PairPlace::whole(place.axes);
        } else if (next.op->fuser != FuserClass::elementwise || next.op->composite() || shape != to) {
            return false;
        }
        if (reader_->read({user, 0}, place) < 0) return false;
        form_.replaced.insert(user);
        return is_known_outside({user, 0}, steps);
    }

    bool check_sizes() {
        if (form_.keys < 1 || form_.shape.elements() == 0) return refuse("there are no scores");
        if (form_.causal && form_.keys < form_.queries)
            return refuse("{} queries have only {} keys", form_.queries, form_.keys);
        return true;
    }

    /// Lets keys and values that were repeated for neighbouring heads be read without the repetition.
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
    const std::vector<bool>& live_;
    const Uses& uses_;
    const ValueNumbers& numbers_;
    NodeId core_;
    NodeId product_ = -1;  // with the values
    FirstReason why_not_;
    AttentionForm form_;
    bool is_summed_ = false;    // whether the core's values are
    Value weights_;             // as they meet the values
    std::vector<NodeId> path_;  // from the core to the weights
    AxisMap axes_;              // of the tensor at hand, in terms of the frame's
    AxisAtoms shared_rows_;     // parts of the heads that are rows of the products
    std::shared_ptr<PairExpressions> expressions_ = std::make_shared<PairExpressions>();
    SoftmaxAlgebra algebra_{*expressions_};
    std::optional<PairReader> reader_;
    Shape extents_;
    SoftmaxWeights softmax_;
    std::optional<PairId> sink_;
    bool is_shifted_ =
        false;  // whether the scores differ from the sum's, by a term that is constant along the keys
};

}  // namespace

AttentionSearch attention_around(const SearchedGraph& searched, NodeId core) {
    return AttentionRecognition(searched, core).run();
}

}  // namespace mantissa
