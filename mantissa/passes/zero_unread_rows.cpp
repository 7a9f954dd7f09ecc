#include "mantissa/passes/zero_unread_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/ignored_targets.h"
#include "mantissa/graph/inline_body.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// The rows of a value that the loss may depend on: where one of `live`, each bool [count], is true.
struct Rows {
    bool all = false;
    std::int64_t count = 0;  ///< 0: none is read
    std::set<Value> live = {};

    bool some() const { return !all && count > 0; }
};

/// The first axis behind rows of so many, which all axes before it make; -1: there is none.
int axis_behind_rows(const Shape& shape, std::int64_t count) {
    std::int64_t rows = 1;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        rows *= shape[axis];
        if (rows == count) return axis + 1;
    }
    return -1;
}

bool begin_alike(const Shape& a, const Shape& b, int axes) {
    if (a.rank() < axes || b.rank() < axes) return false;
    for (int axis = 0; axis < axes; ++axis)
        if (a[axis] != b[axis]) return false;
    return true;
}

/// Whether a row of each output follows from the same row of this operand, whose rows end before `axis`, and
/// from no other of it.
bool keeps_rows(const Graph& graph, const Node& node, std::size_t operand, int axis) {
    const std::string_view op = node.op->name;
    const Shape &from = graph.type(node.inputs[operand]).shape, &to = node.outputs[0].shape;
    if (op == "reshape") return true;
    if (node.op->fuser == FuserClass::elementwise || op == "broadcast")
        return from.rank() == to.rank() && begin_alike(from, to, axis);
    if (op == "slice" || op == "concat" || op == "split" || op == "pad")
        return node.attributes.integer("axis") >= axis;
    if (op == "sum" || op == "max")
        return std::ranges::all_of(node.attributes.list("axes"), [&](auto each) { return each >= axis; });
    if (operand > 0) return false;
    if (op == "transpose") {
        const auto& order = node.attributes.list("order");
        for (int i = 0; i < axis; ++i)
            if (order[static_cast<std::size_t>(i)] != i) return false;
        return true;
    }
    if (op == "layer_norm" || op == "rms_norm" || op == "softmax") return axis < from.rank();
    if (op == "rotary") return axis <= 2;
    return op == "matmul" && !node.attributes.flag("transpose_a") && axis < from.rank();
}

class Reader {
  public:
    /// Adds to `graph` the nodes that tell which rows are read.
    Reader(Graph& graph, std::span<const Value> kept) : graph_(graph) {
        for (const Value& value : kept) rows_[value].all = true;
        for (const Result& result : graph.results()) rows_[result.value].all = true;
        for (const Update& update : graph.updates()) rows_[update.value].all = true;
        for (NodeId id = graph.end() - 1; id >= 0; --id) visit(id);
    }

    const Rows& of(Value value) const {
        static const Rows none;
        const auto found = rows_.find(value);
        return found == rows_.end() ? none : found->second;
    }

  private:
    Tensor tensor(Value value) const { return {graph_, value}; }

    void read(Value value, const Rows& more) {
        Rows& rows = rows_[value];
        if (more.all || axis_behind_rows(graph_.type(value).shape, more.count) < 0 ||
            (rows.count != 0 && rows.count != more.count))
            rows.all = true;
        else
            rows.live.insert(more.live.begin(), more.live.end());
        rows.count = more.count;
    }
    void read_all(Value value) { rows_[value].all = true; }
    /// Notes that rows are read where a tensor, one number a row, is true.
    void read_where(Value value, Tensor live) {
        const std::int64_t count = live.shape().elements();
        if (const std::optional<NodeId> id = of_inputs(reshape(live, {count}).value().node))
            read(value, {.count = count, .live = {{*id, 0}}});
        else
            read_all(value);
    }

    /// The first node that computes the same from inputs alone; nothing where a state or a random number has
    /// a part in it.
    std::optional<NodeId> of_inputs(NodeId id) {
        if (const auto found = of_inputs_.find(id); found != of_inputs_.end()) return found->second;
        const Node& node = graph_.node(id);
        bool does = node.op->name != "state" && node.op->name != "random_uniform";
        std::string text(node.op->name);
        for (const Value& input : node.inputs) {
            const std::optional<NodeId> first = of_inputs(input.node);
            does = does && first;
            text += fmt::format(" {}.{}", first.value_or(-1), input.output);
        }
        if (!does) return of_inputs_[id] = std::nullopt;
        return of_inputs_[id] = first_.try_emplace(text + node.attributes.text(), id).first->second;
    }

    void visit(NodeId id) {
        const Node& node = graph_.node(id);
        Rows rows;
        bool is_read = false;
        for (std::size_t i = 0; i < node.outputs.size(); ++i) {
            const Rows& output = of({id, static_cast<std::int32_t>(i)});
            if (!output.all && output.count == 0) continue;
            is_read = true;
            rows.all = rows.all || output.all || (rows.count != 0 && rows.count != output.count);
            rows.count = output.count;
            rows.live.insert(output.live.begin(), output.live.end());
        }
        if (!is_read) return;
        const std::string_view op = node.op->name;
        if (op == "cross_entropy" && ignores_negative(node.attributes) && !is_read_at(id, 1)) {
            read_where(node.inputs[0], less_equal(constant(graph_, 0.0, DType::i32), tensor(node.inputs[1])));
            read_all(node.inputs[1]);
        } else if (op == "attention") {
            if (is_read_at(id, 1)) rows.all = true;
            visit_attention(node, rows);
        } else if (op == "mul" && rows.all) {
            for (const std::size_t i : {0u, 1u}) visit_factor(node, i);
        } else {
            for (std::size_t i = 0; i < node.inputs.size(); ++i) {
                const int axis =
                    rows.all ? -1 : axis_behind_rows(graph_.type(node.inputs[i]).shape, rows.count);
                if (axis >= 0 && keeps_rows(graph_, node, i, axis))
                    read(node.inputs[i], rows);
                else
                    read_all(node.inputs[i]);
            }
        }
    }

    bool is_read_at(NodeId id, std::int32_t output) const {
        const Rows& rows = of({id, output});
        return rows.all || rows.count > 0;
    }

    /// A factor is not read where the other one, a number a row, is zero.
    void visit_factor(const Node& node, std::size_t i) {
        const Value value = node.inputs[i];
        const Shape& shape = graph_.type(value).shape;
        Value other = node.inputs[1 - i];
        const int rank = shape.rank();
        if (rank < 2 || graph_.type(other).shape.rank() != rank || !of_inputs(other.node) ||
            !begin_alike(shape, graph_.type(other).shape, rank - 1))
            return read_all(value);
        const std::int64_t count = shape.elements() / std::max<std::int64_t>(1, shape[-1]);
        while (graph_.type(other).shape.elements() != count) {
            const Node& made = graph_.node(other.node);
            const bool widens = made.op->name == "broadcast" &&
                                begin_alike(made.outputs[0].shape, graph_.type(made.inputs[0]).shape,
                                            made.outputs[0].shape.rank() - 1);
            if (!widens && made.op->name != "cast") return read_all(value);
            other = made.inputs[0];
        }
        const Tensor mask = tensor(other);
        read_where(value, mask.dtype() == DType::boolean
                              ? mask
                              : logical_not(equal(mask, constant(graph_, 0.0, mask.dtype()))));
    }

    /// Queries are read where the result is, keys and values where a query may see them.
    void visit_attention(const Node& node, const Rows& result) {
        const AttentionLayout layout = attention_layout(node.attributes);
        const std::vector<Type> types = graph_.input_types(node);
        const AttentionExtents extents = attention_extents(layout, types);
        const std::size_t tensors = layout.operands.size();
        for (std::size_t i = tensors; i < node.inputs.size(); ++i) read_all(node.inputs[i]);
        const Tensor seen = keys_seen(node, tensors, extents);
        for (std::size_t i = 0; i < tensors; ++i) {
            const auto& [holds, axes] = layout.operands[i];
            const bool are_rows = axes.starts_with("bt") && layout.result.starts_with("bt");
            if (!are_rows || (holds != "q" && !seen)) {
                read_all(node.inputs[i]);
                continue;
            }
            if (holds.find('q') != std::string::npos) {
                if (result.count == extents.sequences * extents.queries)
                    read(node.inputs[i], result);
                else
                    read_all(node.inputs[i]);
            }
            if (holds != "q") read_where(node.inputs[i], seen);
        }
    }

    /// Whether any query may see a key, bool [B, 1, 1, S], as far as that is a factor of the mask; else
    /// empty.
    Tensor keys_seen(const Node& node, std::size_t tensors, const AttentionExtents& extents) {
        const AttentionScore score = attention_score(node.attributes);
        if (score.plain()) return {};
        const Graph& body = score.body->graph();
        std::vector<Tensor> operands(1);  // no scores
        for (std::size_t i = 0; i < score.operands.size(); ++i)
            operands.push_back(
                reshape(tensor(node.inputs[tensors + i]), score_operand_shape(score.operands[i], extents)));
        std::vector<Value> factors;
        for (const Result& result : body.results())
            if (result.name == "visible") factors.push_back(result.value);
        Tensor seen;
        while (!factors.empty()) {
            const Value factor = factors.back();
            factors.pop_back();
            const Node& made = body.node(factor.node);
            if (made.op->name == "logical_and")
                factors.insert(factors.end(), made.inputs.begin(), made.inputs.end());
            if (body.type(factor).shape != Shape{extents.sequences, 1, 1, extents.keys}) continue;
            Graph alone = body;
            alone.take_results();
            alone.add_result("seen", factor);
            const Tensor one = inline_body(graph_, alone, operands)[0];
            if (one) seen = seen ? logical_and(seen, one) : one;
        }
        return seen;
    }

    Graph& graph_;
    std::map<Value, Rows> rows_;
    std::map<NodeId, std::optional<NodeId>> of_inputs_;
    std::map<std::string, NodeId> first_;
};

/// The value that a product multiplies, before views.
Value before_views(const Graph& graph, Value value) {
    while (graph.node(value.node).op->name == "reshape") value = graph.node(value.node).inputs[0];
    return value;
}

class Zeroer {
  public:
    Zeroer(const Graph& graph, const Reader& reader, NodeId end)
        : graph_(graph), reader_(reader), end_(end), rewriter_(graph) {
        for (NodeId id = 0; id < end; ++id) {
            const Node& node = graph.node(id);
            if (node.op->name != "matmul" || node.attributes.flag("transpose_a")) continue;
            const Value from = before_views(graph, node.inputs[0]);
            const Op& made = *graph.node(from.node).op;
            if (from.output != 0 || !reader.of(from).some() || !is_floating(graph.type(from).dtype) ||
                (made.fuser != FuserClass::elementwise && made.fuser != FuserClass::row_reduction &&
                 made.name != "attention"))
                continue;
            zeroed_.insert(from);
            products_.insert(id);
        }
    }

    bool finds_some() const { return !products_.empty(); }

    Graph run(std::span<Value> kept) {
        for (NodeId id = 0; id < end_; ++id)
            if (is_from_outside(graph_.node(id))) rewriter_.copy(id);
        for (NodeId id = 0; id < end_; ++id) {
            place(id);
            const Value value{id, 0};
            if (zeroed_.contains(value)) rewriter_.place(value, zeroed(value));
        }
        for (Value& value : kept) value = rewriter_.map(value);
        return rewriter_.finish();
    }

  private:
    void place(NodeId id) {
        if (rewriter_.placed({id, 0})) return;
        const Node& node = graph_.node(id);
        for (const Value& input : node.inputs)
            if (!rewriter_.placed(input)) place(input.node);
        if (!products_.contains(id)) return rewriter_.copy(id);
        const OriginScope scope(rewriter_.target(), node.origin);
        const NodeId product = rewriter_.target().add("matmul", rewriter_.map(node.inputs),
                                                      node.attributes.with("leaves_zeros_out", true));
        rewriter_.place({id, 0}, {product, 0});
    }

    Value zeroed(Value value) {
        Graph& target = rewriter_.target();
        const OriginScope scope(target, graph_.node(value.node).origin);
        const Rows& rows = reader_.of(value);
        Tensor live;
        for (const Value& each : rows.live) {
            place(each.node);
            const Tensor one{target, rewriter_.map(each)};
            live = live ? logical_or(live, one) : one;
        }
        const Tensor x{target, rewriter_.map(value)};
        std::vector<std::int64_t> extents(static_cast<std::size_t>(x.rank()), 1);
        for (int axis = 0; axis < axis_behind_rows(x.shape(), rows.count); ++axis)
            extents[static_cast<std::size_t>(axis)] = x.dim(axis);
        return select(reshape(live, Shape(extents)), x, constant(target, 0.0, x.dtype())).value();
    }

    const Graph& graph_;
    const Reader& reader_;
    NodeId end_;
    Rewriter rewriter_;
    std::set<Value> zeroed_;
    std::set<NodeId> products_;
};

}  // namespace

Graph zero_unread_rows(const Graph& graph, std::span<Value> kept) {
    Graph with_conditions = graph;
    const Reader reader(with_conditions, kept);
    Zeroer zeroer(with_conditions, reader, graph.end());
    return zeroer.finds_some() ? zeroer.run(kept) : graph;
}

}  // namespace mantissa
