#include "mantissa/passes/pad.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "mantissa/base/expected.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// Rows of zeros are work. A contraction that ends inside a tile loses at most the rest of that tile. Such
/// ends never cost more than a few percent in all; so more zeros than this share cannot win.
constexpr std::int64_t min_rows_a_zero = 16;

/// The change that padding one parameter makes.
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
class PaddingRecognition {
  public:
    PaddingRecognition(const Graph& graph, int state, std::int64_t zero_rows) : graph_(graph) {
        const State& parameter = graph.state(state);
        form_ = {.rows = parameter.type.shape[0], .zero_rows = zero_rows};
        form_.states.insert(state);
        form_.axes[{parameter.node, 0}] = 0;
    }

    Expected<PaddingForm> run() {
        if (!follow_zeros()) return why_not_.none();
        if (!contracted_) return Unexpected{not_contracted_};
        return form_;
    }

  private:
    bool follow_zeros() {
        for (NodeId id = 0; id < graph_.end(); ++id)
            if (!visit(id)) return false;
        for (const Result& result : graph_.results())
            if (!require_view(result.value, "the run reads")) return false;
        for (const Update& update : graph_.updates())
            if (!require_view(update.value, "the update reads")) return false;
        return true;
    }

    /// Whether the node takes the zeros, or can be given its operand without them.
    bool visit(NodeId id) {
        const Node& node = graph_.node(id);
        LongerOperands operands{graph_, node, {}, form_.rows, form_.zero_rows};
        for (const Value& input : node.inputs) {
            const auto axis = form_.axes.find(input);
            operands.axes.push_back(axis == form_.axes.end() ? -1 : axis->second);
        }
        if (std::all_of(operands.axes.begin(), operands.axes.end(), [](int axis) { return axis < 0; }))
            return true;
        if (std::optional<LongerOutputs> outputs =
                node.op->padding ? node.op->padding(operands) : std::nullopt) {
            take(id, std::move(*outputs));
            contracted_ = contracted_ || node.op->gains_by_padding;
            return true;
        }
        for (const Value& input : node.inputs)
            if (!require_view(input, name_of(node) + " reads")) return false;
        if (node.op->gains_by_padding)
            not_contracted_ =
                fmt::format("{} sums over its rows, and the other operand has no zeros there", name_of(node));
        return true;
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
    bool require_view(Value value, const std::string& reader) {
        const auto axis = form_.axes.find(value);
        if (axis == form_.axes.end()) return true;
        const Type& type = graph_.type(value);
        for (int outer = 0; outer < axis->second; ++outer)
            if (type.shape[outer] != 1)
                return why_not_.refuse(fmt::format(
                    "its rows become axis {} of {}, which {}: zeros there would have to be cut out by a copy",
                    axis->second, type.text(), reader));
        return true;
    }

    const Graph& graph_;
    FirstReason why_not_;
    PaddingForm form_;
    bool contracted_ = false;
    std::string not_contracted_ = "no contraction reads it";
};

class PaddedCopy {
  public:
    PaddedCopy(const Graph& source, const PaddingForm& form)
        : source_(source), rewriter_(source), form_(form) {}

    Graph run() {
        for (NodeId id = 0; id < source_.end(); ++id) {
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
        State state = source_.state(index);
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
Expected<std::int64_t> zero_rows_for(const State& parameter, std::int64_t multiple) {
    if (parameter.type.shape.rank() != 2)
        return Unexpected{fmt::format("{} is no matrix", parameter.type.text())};
    const std::int64_t rows = parameter.type.shape[0];
    if (parameter.zero_rows > 0)
        return Unexpected{fmt::format("{} rows of zeros lie behind it already", parameter.zero_rows)};
    if (rows % multiple == 0)
        return Unexpected{fmt::format("its {} rows are a multiple of {}", rows, multiple)};
    const std::int64_t zero_rows = multiple - rows % multiple;
    if (zero_rows * min_rows_a_zero > rows)
        return Unexpected{fmt::format("{} rows of zeros behind its {} are more than one in {}", zero_rows,
                                      rows, min_rows_a_zero)};
    return zero_rows;
}

/// How that parameter can be padded, or why not.
Expected<PaddingForm> padding_of(const Graph& graph, int state, std::int64_t multiple) {
    const Expected<std::int64_t> zero_rows = zero_rows_for(graph.state(state), multiple);
    if (!zero_rows) return Unexpected{zero_rows.reason()};
    return PaddingRecognition(graph, state, *zero_rows).run();
}

}  // namespace

Padded pad_parameters(const Graph& graph, const PadOptions& options) {
    Padded padded{.graph = graph, .padded = {}, .refused = {}};
    for (std::size_t i = 0; i < graph.states().size(); ++i) {
        const State& state = padded.graph.states()[i];  // a rewrite keeps their order
        if (state.kind != State::Kind::parameter) continue;
        if (const auto form = padding_of(padded.graph, static_cast<int>(i), options.multiple)) {
            padded.padded.push_back({state.name, state.type.shape[0], form->zero_rows});
            padded.graph = PaddedCopy(padded.graph, *form).run();
        } else {
            padded.refused.push_back({"pad", "parameter", state.name, form.reason()});
        }
    }
    return padded;
}

}  // namespace mantissa
