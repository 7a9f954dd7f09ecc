#include "mantissa/passes/attention/attention_groups.h"

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

namespace {

/// Maps the axes of a view to those of what it views; false where it is no movement of whole parts.
bool undo(const Graph& graph, const Node& view, AxisMap& axes) {
    if (view.op->name == "transpose") {
        axes.undo_transpose(view.attributes.list("order"));
        return true;
    }
    return view.op->name == "reshape" && axes.reshape(graph.type(view.inputs[0]).shape);
}

}  // namespace

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

}  // namespace mantissa
