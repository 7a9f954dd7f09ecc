#include "mantissa/runtime/non_finite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "mantissa/base/plain_nan.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

std::string element_text(const Shape& shape, std::int64_t element) {
    std::vector<std::int64_t> index(shape.rank());
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        index[axis] = element % shape[axis];
        element /= shape[axis];
    }
    return fmt::format("[{}]", fmt::join(index, ", "));
}

bool has_infinity(const SharedData& data) {
    if (!is_floating(data.dtype())) return false;
    for (std::int64_t i = 0; i < data.elements(); ++i)
        if (std::isinf(data.number(i))) return true;
    return false;
}

/// Adds the values that may hold intended infinities to the values already known to. The body of a fused node
/// is looked into: a mask may be one of its constants.
void add_meant_infinities(const Graph& graph, std::set<Value>& meant) {
    const auto add_outputs = [&](NodeId id) {
        const auto outputs = static_cast<std::int32_t>(graph.node(id).outputs.size());
        for (std::int32_t i = 0; i < outputs; ++i) meant.insert({id, i});
    };
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        if (node.op->name == "constant") {
            if (std::isinf(node.attributes.number("value"))) add_outputs(id);
        } else if (node.op->name == "literal") {
            if (has_infinity(node.attributes.data("values"))) add_outputs(id);
        } else if (node.op->name == "fused") {
            const Graph& body = node.attributes.body("body").graph();
            std::set<Value> inside;
            for (std::size_t i = 0; i < node.inputs.size(); ++i)
                if (meant.contains(node.inputs[i])) inside.insert({body.inputs()[i], 0});
            add_meant_infinities(body, inside);
            for (std::size_t i = 0; i < body.results().size(); ++i)
                if (inside.contains(body.results()[i].value))
                    meant.insert({id, static_cast<std::int32_t>(i)});
        } else if (node.op->fuser == FuserClass::elementwise || node.op->fuser == FuserClass::movement) {
            if (std::any_of(node.inputs.begin(), node.inputs.end(),
                            [&](Value input) { return meant.contains(input); }))
                add_outputs(id);
        }
    }
}

/// Whether the node, of the forward pass, made this as a gradient: the fused linear cross-entropy makes them
/// beside the loss.
bool is_gradient(const Node& node, Value value, NodeId maker) {
    return node.op->name == "linear_cross_entropy" && node.inputs.size() > 3 && value.node == maker &&
           (value.output == 1 || value.output == 2);
}

/// Walks beside a run and looks at each operation's operands and results.
class Search {
  public:
    Search(Execution& execution, Stage last)
        : execution_(execution), graph_(execution.plan().graph()), last_(last) {
        add_meant_infinities(graph_, meant_);
    }

    std::optional<NonFinite> run() {
        execution_.run_while(
            [&](NodeId id) { return graph_.node(id).origin.stage <= last_ && reads_finite(id); },
            [&](NodeId id) { return makes_finite(id); });
        return found_;
    }

  private:
    /// The values that a run is given: states, inputs and views of them, each looked at before it is first
    /// read.
    bool reads_finite(NodeId id) {
        for (Value input : graph_.node(id).inputs) {
            const Place::Kind kind = execution_.plan().memory().place(input).kind;
            Value root = input;
            while (is_view(graph_, graph_.node(root.node))) root = graph_.node(root.node).inputs[0];
            const std::string_view source = graph_.node(root.node).op->name;
            if (kind == Place::Kind::none || (source != "state" && source != "input")) continue;
            if (!seen_.insert(input).second || !look_at(input, id)) continue;
            found_->source = source == "state" ? NonFinite::Source::state : NonFinite::Source::input;
            found_->tensor = graph_.node(root.node).attributes.word("name");
            return false;
        }
        return true;
    }

    bool makes_finite(NodeId id) {
        const auto outputs = static_cast<std::int32_t>(graph_.node(id).outputs.size());
        for (std::int32_t i = 0; i < outputs; ++i)
            if (look_at({id, i}, id)) return false;
        return true;
    }

    /// Whether the value has an element that is not finite and not meant to be so; `found_` then names it.
    bool look_at(Value value, NodeId reader) {
        const Type& type = graph_.type(value);
        if (!is_floating(type.dtype)) return false;
        return !execution_.read_in_pieces(value, [&](std::int64_t first, std::span<const std::byte> bytes) {
            const auto count = static_cast<std::int64_t>(bytes.size() / size_of(type.dtype));
            for (std::int64_t i = 0; i < count; ++i) {
                const double number = load_as_f64(bytes.data(), type.dtype, i);
                if (std::isfinite(number) || (std::isinf(number) && meant_.contains(value))) continue;
                const Node& node = graph_.node(reader);
                found_ = NonFinite{.tensor = fmt::format("%{}", reader),
                                   .type = type,
                                   .element = first + i,
                                   .value = plain_nan(number),
                                   .op = std::string(node.op->name),
                                   .origin = node.origin};
                if (is_gradient(node, value, reader)) found_->origin.stage = Stage::backward;
                return false;
            }
            return true;
        });
    }

    Execution& execution_;
    const Graph& graph_;
    Stage last_;
    std::set<Value> meant_;  ///< values that may hold intended infinities
    std::set<Value> seen_;
    std::optional<NonFinite> found_;
};

}  // namespace

std::string NonFinite::text() const {
    const std::string line = origin.line ? ", " + origin.line.text() : "";
    const std::string where = fmt::format("{}{} ({}{})", origin.scope.empty() ? "" : " in ", origin.scope,
                                          name_of(origin.stage), line);
    const std::string what =
        fmt::format("{}: element {} of {}", value, element_text(type.shape, element), type.text());
    if (source == Source::operation) return fmt::format("{} {}{} made {}", op, tensor, where, what);
    return fmt::format("{} holds {}, read first by {}{}", tensor, what, op, where);
}

std::optional<NonFinite> run_to_first_non_finite(Execution& execution, Stage last) {
    return Search(execution, last).run();
}

namespace {

void count(const Execution& execution, Value value, RoundedGradients& gradients) {
    const DType dtype = execution.plan().graph().type(value).dtype;
    execution.read_in_pieces(value, [&](std::int64_t, std::span<const std::byte> bytes) {
        const auto number = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
        gradients.elements += number;
        for (std::int64_t i = 0; i < number; ++i) {
            const double x = load_as_f64(bytes.data(), dtype, i);
            gradients.zeros += x == 0;
            gradients.finite = gradients.finite && std::isfinite(x);
        }
        return true;
    });
}

bool is_rounded(const Node& node, const Type& type) {
    return node.op->name == "round_to" || (is_floating(type.dtype) && size_of(type.dtype) == 2);
}

}  // namespace

RoundedGradients rounded_gradients(Execution& execution) {
    RoundedGradients gradients;
    const Graph& graph = execution.plan().graph();
    execution.run_while([&](NodeId id) { return graph.node(id).origin.stage != Stage::update; },
                        [&](NodeId id) {
                            const Node& node = graph.node(id);
                            if (node.origin.stage != Stage::backward) return true;
                            for (std::size_t i = 0; i < node.outputs.size(); ++i)
                                if (is_rounded(node, node.outputs[i]))
                                    count(execution, {id, static_cast<std::int32_t>(i)}, gradients);
                            return true;
                        });
    return gradients;
}

Underflow underflow_between(const RoundedGradients& step, const RoundedGradients& scaled_up) {
    if (!scaled_up.finite) return {};
    // A number that is zero at any scale, such as the gradient of a masked score, is not lost.
    return {.elements = step.elements - scaled_up.zeros,
            .lost = std::max<std::int64_t>(step.zeros - scaled_up.zeros, 0)};
}

}  // namespace mantissa
