#include "mantissa/passes/pad.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "mantissa/graph/tensor.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa {

namespace {

/// Rows of zeros are work. A contraction that ends inside a tile loses at most the rest of that tile, and
/// what ugly ends cost in all was never more than a few percent; so more zeros than this share cannot win.
constexpr std::int64_t least_rows_a_zero = 16;

struct NotThis {
    std::string reason;
};

/// A node of which some operands are longer than they were: `axes[i]` says along which axis, -1 for none.
struct LongerOperands {
    const Graph& graph;
    const Node& node;
    std::vector<int> axes;
    std::int64_t rows = 0;       ///< as they were
    std::int64_t zero_rows = 0;  ///< that were added

    const Type& type(std::size_t operand) const { return graph.type(node.inputs[operand]); }
};

/// What an operation makes of them: along which axes its outputs are longer, zeros there again, or -1.
struct LongerOutputs {
    std::vector<int> axes;
    Attributes attributes;
    bool longer_bias = false;  ///< operand 2 must be longer, too
};

/// Nothing where the operation does not know what to do with them.
using Rule = std::optional<LongerOutputs> (*)(const LongerOperands&);

/// Of zero it makes zero, whatever the axis.
std::optional<LongerOutputs> pass_zeros(const LongerOperands& x) {
    return LongerOutputs{{x.axes[0]}, x.node.attributes};
}

/// x times, or divided by, a number.
std::optional<LongerOutputs> pass_scaled_zeros(const LongerOperands& x) {
    const Node& by = x.graph.node(x.node.inputs[1].node);
    if (x.axes[0] < 0 || by.op->name != "constant" || by.outputs[0].shape.rank() != 0) return std::nullopt;
    const double number = by.attributes.number("value");
    if (!std::isfinite(number) || number == 0) return std::nullopt;
    return pass_zeros(x);
}

std::optional<LongerOutputs> pass_reshape(const LongerOperands& x) {
    const Shape &from = x.type(0).shape, &to = x.node.outputs[0].shape;
    std::int64_t before = 1, passed = 1;
    for (int axis = 0; axis < x.axes[0]; ++axis) before *= from[axis];
    for (int axis = 0; axis < to.rank(); passed *= to[axis++]) {
        if (passed != before || to[axis] != x.rows) continue;
        Shape longer = to;
        longer[axis] += x.zero_rows;
        return LongerOutputs{{axis}, x.node.attributes.with("shape", longer.extents())};
    }
    return std::nullopt;
}

std::optional<LongerOutputs> pass_transpose(const LongerOperands& x) {
    const auto& order = x.node.attributes.list("order");
    const auto axis = std::find(order.begin(), order.end(), x.axes[0]) - order.begin();
    return LongerOutputs{{static_cast<int>(axis)}, x.node.attributes};
}

std::optional<LongerOutputs> pass_sum(const LongerOperands& x) {
    int axis = x.axes[0];
    for (const std::int64_t summed : x.node.attributes.list("axes")) {
        if (summed == x.axes[0]) return LongerOutputs{{-1}, x.node.attributes};
        if (summed < x.axes[0] && !x.node.attributes.flag("keep")) --axis;
    }
    return LongerOutputs{{axis}, x.node.attributes};
}

/// Zeros in rows of one side make rows or columns of zeros, unless a bias is added to them that is none;
/// zeros on both sides of the sum add nothing.
std::optional<LongerOutputs> pass_matmul(const LongerOperands& x) {
    const int last = x.type(0).shape.rank() - 1;
    const bool ta = x.node.attributes.flag("transpose_a"), tb = x.node.attributes.flag("transpose_b");
    const int m = ta ? last : last - 1, k_of_a = ta ? last - 1 : last;
    const int n = tb ? last - 1 : last, k_of_b = tb ? last : last - 1;
    const int a = x.axes[0], b = x.axes[1];
    const bool bias = x.node.inputs.size() == 3, longer_bias = bias && x.axes[2] >= 0;
    if (a == k_of_a && b == k_of_b && !longer_bias) return LongerOutputs{{-1}, x.node.attributes};
    if (a == m && b < 0 && !bias) return LongerOutputs{{last - 1}, x.node.attributes};
    if (a < 0 && b == n) return LongerOutputs{{last}, x.node.attributes, bias && !longer_bias};
    return std::nullopt;
}

/// The attributes of a loss whose logits are padded.
Attributes with_classes(const LongerOperands& x) {
    return x.node.attributes.has("classes") ? x.node.attributes : x.node.attributes.with("classes", x.rows);
}

/// Along which axis operand `index` is longer, if it alone is.
int axis_of_only(const LongerOperands& x, std::size_t index) {
    for (std::size_t i = 0; i < x.axes.size(); ++i)
        if (i != index && x.axes[i] >= 0) return -1;
    return x.axes[index];
}

std::optional<LongerOutputs> pass_cross_entropy(const LongerOperands& x) {
    if (axis_of_only(x, 0) != x.type(0).shape.rank() - 1) return std::nullopt;
    return LongerOutputs{{-1, -1}, with_classes(x)};
}

std::optional<LongerOutputs> pass_cross_entropy_grad(const LongerOperands& x) {
    const int last = x.type(1).shape.rank() - 1;
    if (axis_of_only(x, 1) != last) return std::nullopt;
    return LongerOutputs{{last}, with_classes(x)};
}

std::optional<LongerOutputs> pass_linear_cross_entropy(const LongerOperands& x) {
    if (axis_of_only(x, 1) != 0) return std::nullopt;
    LongerOutputs longer{{-1}, with_classes(x)};
    if (x.node.outputs.size() == 3) longer.axes = {-1, -1, 0};
    return longer;
}

const std::map<std::string_view, Rule> rules = {
    {"cast", pass_zeros},
    {"neg", pass_zeros},
    {"stop_gradient", pass_zeros},
    {"mul", pass_scaled_zeros},
    {"div", pass_scaled_zeros},
    {"reshape", pass_reshape},
    {"transpose", pass_transpose},
    {"sum", pass_sum},
    {"matmul", pass_matmul},
    {"cross_entropy", pass_cross_entropy},
    {"cross_entropy_grad", pass_cross_entropy_grad},
    {"linear_cross_entropy", pass_linear_cross_entropy},
};

/// What padding one parameter changes.
struct PaddingForm {
    std::int64_t rows = 0, zero_rows = 0;
    std::set<int> states = {};                   ///< that keep rows of zeros
    std::map<Value, int> axes = {};              ///< values that get longer, and along which axis
    std::map<NodeId, LongerOutputs> nodes = {};  ///< that take longer operands as they are
};

std::string name_of(const Node& node) {
    return node.origin.scope.empty() ? fmt::format("'{}'", node.op->name)
                                     : fmt::format("'{}' in {}", node.op->name, node.origin.scope);
}

/// Follows the zeros of one parameter through the graph.
class Recognition {
  public:
    Recognition(const Graph& graph, int state, std::int64_t zero_rows) : graph_(graph) {
        const State& parameter = graph.states()[static_cast<std::size_t>(state)];
        form_ = {.rows = parameter.type.shape[0], .zero_rows = zero_rows};
        form_.states.insert(state);
        form_.axes[{parameter.node, 0}] = 0;
    }

    PaddingForm run() {
        for (NodeId id = 0; id < static_cast<NodeId>(graph_.size()); ++id) visit(id);
        for (const Result& result : graph_.results()) require_view(result.value, "the run reads");
        for (const Update& update : graph_.updates()) require_view(update.value, "the update reads");
        if (!contracted_) throw NotThis{not_contracted_};
        return form_;
    }

  private:
    void visit(NodeId id) {
        const Node& node = graph_.node(id);
        LongerOperands operands{graph_, node, {}, form_.rows, form_.zero_rows};
        for (const Value& input : node.inputs) {
            const auto axis = form_.axes.find(input);
            operands.axes.push_back(axis == form_.axes.end() ? -1 : axis->second);
        }
        if (std::all_of(operands.axes.begin(), operands.axes.end(), [](int axis) { return axis < 0; }))
            return;
        const bool contracts = node.op->name == "matmul" || node.op->name == "linear_cross_entropy";
        if (std::optional<LongerOutputs> outputs = pass(operands)) {
            take(id, std::move(*outputs));
            contracted_ = contracted_ || contracts;
            return;
        }
        for (const Value& input : node.inputs) require_view(input, name_of(node) + " reads");
        if (contracts)
            not_contracted_ =
                fmt::format("{} sums over its rows, and the other operand has no zeros there", name_of(node));
    }

    static std::optional<LongerOutputs> pass(const LongerOperands& operands) {
        const auto rule = rules.find(operands.node.op->name);
        return rule == rules.end() ? std::nullopt : rule->second(operands);
    }

    void take(NodeId id, LongerOutputs outputs) {
        for (std::size_t i = 0; i < outputs.axes.size(); ++i)
            if (outputs.axes[i] >= 0) form_.axes[{id, static_cast<std::int32_t>(i)}] = outputs.axes[i];
        if (outputs.longer_bias)
            if (const int state = graph_.state_of(graph_.node(id).inputs[2].node); state >= 0)
                form_.states.insert(state);
        form_.nodes.emplace(id, std::move(outputs));
    }

    /// A reader that knows nothing of the zeros is given the rows before them: a view, if nothing but extents
    /// of 1 lies outside the axis.
    void require_view(Value value, const std::string& reader) const {
        const auto axis = form_.axes.find(value);
        if (axis == form_.axes.end()) return;
        const Type& type = graph_.type(value);
        for (int outer = 0; outer < axis->second; ++outer)
            if (type.shape[outer] != 1)
                throw NotThis{
                    fmt::format("its rows become axis {} of {}, which {}: zeros there would have to be cut "
                                "out by a copy",
                                axis->second, type.text(), reader)};
    }

    const Graph& graph_;
    PaddingForm form_;
    bool contracted_ = false;
    std::string not_contracted_ = "no contraction reads it";
};

class Replacement {
  public:
    Replacement(const Graph& source, const PaddingForm& form)
        : source_(source), rewriter_(source), form_(form) {}

    Graph run() {
        for (NodeId id = 0; id < static_cast<NodeId>(source_.size()); ++id) {
            const auto taken = form_.nodes.find(id);
            if (taken != form_.nodes.end())
                lengthen(id, taken->second);
            else if (const int state = source_.state_of(id); form_.states.contains(state))
                keep_zeros(state);
            else
                copy(id);
        }
        for (const Result& result : source_.results()) require_plain(result.value);
        for (const Update& update : source_.updates()) require_plain(update.value);
        return rewriter_.finish();
    }

  private:
    Graph& target() { return rewriter_.target(); }

    void keep_zeros(int index) {
        State state = source_.states()[static_cast<std::size_t>(index)];
        const Value value{state.node, 0};
        const OriginScope scope(target(), source_.node(state.node).origin);
        state.zero_rows = form_.zero_rows;
        rewriter_.place(value, target().add_state(std::move(state)));
    }

    void lengthen(NodeId id, const LongerOutputs& outputs) {
        const Node& node = source_.node(id);
        std::vector<Value> inputs;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            const bool longer = form_.axes.contains(node.inputs[i]);
            inputs.push_back(longer || (i == 2 && outputs.longer_bias) ? longer_of(node.inputs[i])
                                                                       : rewriter_.map(node.inputs[i]));
        }
        const OriginScope scope(target(), node.origin);
        const NodeId added = target().add(node.op->name, std::move(inputs), outputs.attributes);
        for (std::size_t i = 0; i < outputs.axes.size(); ++i) {
            const Value from{id, static_cast<std::int32_t>(i)}, to{added, static_cast<std::int32_t>(i)};
            if (outputs.axes[i] >= 0)
                longer_[from] = to;
            else
                rewriter_.place(from, to);
        }
    }

    /// A parameter is padded where it is first needed longer.
    Value longer_of(Value value) {
        const auto known = longer_.find(value);
        if (known != longer_.end()) return known->second;
        const OriginScope scope(target(), source_.node(value.node).origin);
        const Tensor plain(target(), rewriter_.map(value));
        return longer_[value] = pad(plain, 0, 0, form_.zero_rows).value();
    }

    void copy(NodeId id) {
        for (const Value& input : source_.node(id).inputs) require_plain(input);
        rewriter_.copy(id);
    }

    /// Cuts the zeros off, for a reader that knows nothing of them.
    void require_plain(Value value) {
        if (rewriter_.placed(value)) return;
        const OriginScope scope(target(), source_.node(value.node).origin);
        const Tensor longer(target(), longer_.at(value));
        rewriter_.place(value, slice(longer, form_.axes.at(value), 0, form_.rows).value());
    }

    const Graph& source_;
    Rewriter rewriter_;
    const PaddingForm& form_;
    std::map<Value, Value> longer_;
};

/// How many rows of zeros a parameter should have, or why none.
std::int64_t zero_rows_for(const State& parameter, std::int64_t multiple) {
    if (parameter.type.shape.rank() != 2)
        throw NotThis{fmt::format("{} is no matrix", parameter.type.text())};
    const std::int64_t rows = parameter.type.shape[0];
    if (parameter.zero_rows > 0)
        throw NotThis{fmt::format("{} rows of zeros lie behind it already", parameter.zero_rows)};
    if (rows % multiple == 0) throw NotThis{fmt::format("its {} rows are a multiple of {}", rows, multiple)};
    const std::int64_t zero_rows = multiple - rows % multiple;
    if (zero_rows * least_rows_a_zero > rows)
        throw NotThis{fmt::format("{} rows of zeros behind its {} are more than one in {}", zero_rows, rows,
                                  least_rows_a_zero)};
    return zero_rows;
}

}  // namespace

Padded pad_parameters(const Graph& graph, const PadOptions& options) {
    Padded padded{.graph = graph, .padded = {}, .refused = {}};
    for (std::size_t i = 0; i < graph.states().size(); ++i) {
        const State& state = padded.graph.states()[i];  // a rewrite keeps their order
        if (state.kind != State::Kind::parameter) continue;
        try {
            const std::int64_t zero_rows = zero_rows_for(state, options.multiple);
            const PaddingForm form = Recognition(padded.graph, static_cast<int>(i), zero_rows).run();
            padded.padded.push_back({state.name, state.type.shape[0], zero_rows});
            padded.graph = Replacement(padded.graph, form).run();
        } catch (const NotThis& refusal) {
            padded.refused.push_back({"pad", "parameter", state.name, refusal.reason});
        }
    }
    return padded;
}

}  // namespace mantissa
