#include "mantissa/passes/softmax_form.h"

namespace mantissa::inline v0 {

namespace {

/// The one axis of a reduction that keeps it, or whose result is reshaped to keep it; -1 otherwise.
int reduced_axis(const Node& node) {
    const auto& axes = node.attributes.list("axes");
    return axes.size() == 1 ? static_cast<int>(axes[0]) : -1;
}

/// Goes back over what does not change numbers: a reduction's reshape or broadcast, stop_gradient.
Value before_views(const Graph& graph, Value value, std::set<NodeId>& passed) {
    for (;;) {
        const Node& node = graph.node(value.node);
        if (node.op->name != "reshape" && node.op->name != "broadcast" && node.op->name != "stop_gradient")
            return value;
        passed.insert(value.node);
        value = node.inputs[0];
    }
}

/// The reduction of `x` over one axis, by this operation, that `value` is; -1 if it is none. Its shape must
/// be that of x with the axis at extent 1.
int reduction_of(const Graph& graph, Value value, std::string_view op, Value x, std::set<NodeId>& passed) {
    Shape kept = graph.type(value).shape;
    const Value reduction = before_views(graph, value, passed);
    const Node& node = graph.node(reduction.node);
    if (node.op->name != op || node.inputs[0] != x) return -1;
    passed.insert(reduction.node);
    const int axis = reduced_axis(node);
    if (axis < 0) return -1;
    Shape wanted = graph.type(x).shape;
    if (kept == wanted) return axis;
    wanted[axis] = 1;
    return kept == wanted ? axis : -1;
}

}  // namespace

std::optional<SoftmaxForm> softmax_at(const Graph& graph, NodeId id) {
    const Node& node = graph.node(id);
    if (node.op->name == "softmax")
        return SoftmaxForm{node.inputs[0], id, graph.type(node.inputs[0]).shape.rank() - 1, {id}};
    if (node.op->name != "div" || graph.node(node.inputs[0].node).op->name != "exp") return std::nullopt;
    SoftmaxForm form{.last = id, .nodes = {id, node.inputs[0].node}};
    form.axis = reduction_of(graph, node.inputs[1], "sum", node.inputs[0], form.nodes);
    if (form.axis < 0) return std::nullopt;
    form.scores = graph.node(node.inputs[0].node).inputs[0];
    const Node& shifted = graph.node(form.scores.node);
    if (shifted.op->name != "sub") return form;
    std::set<NodeId> nodes = form.nodes;
    if (reduction_of(graph, shifted.inputs[1], "max", shifted.inputs[0], nodes) != form.axis) return form;
    nodes.insert(form.scores.node);
    return SoftmaxForm{shifted.inputs[0], id, form.axis, nodes};
}

}  // namespace mantissa
