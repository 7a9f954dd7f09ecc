#include "mantissa/graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/name_pattern.h"
#include "mantissa/numerics/coded_weights.h"

namespace mantissa::inline v0 {

std::string_view name_of(Stage stage) {
    switch (stage) {
        case Stage::forward:
            return "forward";
        case Stage::backward:
            return "backward";
        case Stage::update:
            return "update";
    }
    throw InternalError("a stage has a name");
}

Line::Line(std::string_view path, std::uint32_t number_in_it)
    : file(path.substr(path.rfind('/') + 1)), number(number_in_it) {}

std::string Line::text() const { return number == 0 ? "" : fmt::format("{}:{}", file, number); }

namespace {

/// " (traced in h.0.attn at gpt2.cpp:42)", as far as it is known.
std::string traced_in(const Origin& origin) {
    std::string text;
    if (!origin.scope.empty()) text += " in " + origin.scope;
    if (origin.line) text += " at " + origin.line.text();
    return text.empty() ? text : " (traced" + text + ")";
}

/// Attributes of an input or a state.
Attributes declaration_of(const std::string& name, const Type& type) {
    Attributes attributes{{"name", name}, {"dtype", type.dtype}, {"shape", type.shape.extents()}};
    if (type.layout == Layout::row_major) return attributes;
    return attributes.with("layout", std::string(name_of(type.layout)));
}

}  // namespace

void refuse(std::string_view op, const Origin& origin, std::string_view what) {
    throw UserError(fmt::format("{}{}: {}", op, traced_in(origin), what));
}

bool is_constant(const Node& node) { return node.op->name == "constant" || node.op->name == "literal"; }

bool is_source(const Node& node) {
    return node.op->name == "input" || node.op->name == "state" || is_constant(node);
}

NodeId Graph::add(std::string_view name, std::vector<Value> inputs, Attributes attributes) {
    const Op& op = find_op(name);
    Node node{.op = &op,
              .inputs = std::move(inputs),
              .outputs = {},
              .attributes = std::move(attributes),
              .origin = origin};
    for (const Value& input : node.inputs)
        check(input.node >= 0 && static_cast<std::size_t>(input.node) < nodes_.size() &&
                  static_cast<std::size_t>(input.output) < this->node(input.node).outputs.size(),
              "operands are values of earlier nodes");
    const std::vector<Type> types = input_types(node);
    try {
        const int count = static_cast<int>(types.size());
        if (count < op.min_inputs || count > op.max_inputs)
            throw UserError(
                fmt::format("expected {} to {} operands, got {}", op.min_inputs, op.max_inputs, count));
        for (int i = 0; i < count; ++i)
            if (has_codes(types[i].layout) && (op.reads_codes >> std::min(i, 31) & 1) == 0)
                throw UserError(
                    fmt::format("operand {} is {}; only products widen such", i, types[i].text()));
        node.outputs = op.types({op, types, node.attributes});
    } catch (const UserError& error) {
        refuse(op.name, origin, error.what());
    }
    nodes_.push_back(std::move(node));
    return static_cast<NodeId>(nodes_.size() - 1);
}

Value Graph::add_input(const std::string& name, Type type) {
    const NodeId id = add("input", {}, declaration_of(name, type));
    inputs_.push_back(id);
    return {id, 0};
}

std::int64_t State::stored_bytes() const {
    if (zero_rows == 0) return type.bytes();
    Type stored = type;
    stored.shape[0] += zero_rows;
    return stored.bytes();
}

Value Graph::add_state(State state) {
    if (const int first = find_state(state.name); first >= 0) {
        const Origin& there = node(states_[first].node).origin;
        throw UserError(
            fmt::format("there are two states named '{}': the first{}, the second{}; give the layers "
                        "different names, or an nn::Scope around one (nn.scope in Python)",
                        state.name, traced_in(there), traced_in(origin)));
    }
    check(state.zero_rows == 0 || (state.zero_rows > 0 && state.type.shape.rank() > 0),
          "rows of zeros lie behind rows");
    Attributes attributes = declaration_of(state.name, state.type);
    if (state.zero_rows > 0) attributes = attributes.with("zero_rows", state.zero_rows);
    state.node = add("state", {}, std::move(attributes));
    const auto is_named = [&](const std::string& pattern) { return matches(pattern, state.name); };
    if (is_weight(state) && std::ranges::any_of(frozen_, is_named)) state.frozen = true;
    states_.push_back(std::move(state));
    return {states_.back().node, 0};
}

void Graph::add_result(std::string name, Value value) { results_.push_back({std::move(name), value}); }

void Graph::add_update(int state, Value value) {
    if (state < 0 || static_cast<std::size_t>(state) >= states_.size())
        refuse("update", origin,
               fmt::format("there is no state {}; the graph has {}", state, states_.size()));
    const State& updated = states_[state];
    if (updated.frozen)
        refuse("update", origin, fmt::format("state '{}' is frozen, so nothing updates it", updated.name));
    if (type(value) != updated.type)
        refuse("update", origin,
               fmt::format("state '{}' is {}, its update is {}", updated.name, updated.type.text(),
                           type(value).text()));
    for (const Update& other : updates_)
        if (other.state == state)
            refuse("update", origin, fmt::format("state '{}' is updated twice", updated.name));
    updates_.push_back({state, value});
}

void Graph::replace_update(int state, Value value) {
    drop_update(state);
    add_update(state, value);
}

void Graph::drop_update(int state) {
    const auto dropped = std::erase_if(updates_, [&](const Update& update) { return update.state == state; });
    check(dropped == 1, "an update that is dropped was there");
}

std::vector<Type> Graph::input_types(const Node& node) const {
    std::vector<Type> types;
    types.reserve(node.inputs.size());
    for (const Value& input : node.inputs) types.push_back(type(input));
    return types;
}

int Graph::state_of(NodeId id) const {
    for (std::size_t i = 0; i < states_.size(); ++i)
        if (states_[i].node == id) return static_cast<int>(i);
    return -1;
}

int Graph::find_state(std::string_view name) const {
    for (std::size_t i = 0; i < states_.size(); ++i)
        if (states_[i].name == name) return static_cast<int>(i);
    return -1;
}

void Graph::replace_uses(Value from, Value to, NodeId first) {
    check(type(from) == type(to), "a value is replaced by one of its own type");
    for (std::size_t id = static_cast<std::size_t>(first); id < nodes_.size(); ++id)
        std::replace(nodes_[id].inputs.begin(), nodes_[id].inputs.end(), from, to);
}

OriginScope::OriginScope(Graph& graph, std::string_view name) : graph_(graph), saved_(graph.origin) {
    graph_.origin.scope += (saved_.scope.empty() ? "" : ".") + std::string(name);
}

OriginScope::OriginScope(Graph& graph, Origin origin)
    : graph_(graph), saved_(std::exchange(graph.origin, std::move(origin))) {}

OriginScope::~OriginScope() { graph_.origin = std::move(saved_); }

PrecisionScope::PrecisionScope(Graph& graph, DType precision)
    : graph_(graph), saved_(graph.origin.precision) {
    if (precision != DType::f32 && precision != DType::bf16 && precision != DType::f16)
        throw UserError(fmt::format("a precision scope{} must force f32, bf16 or f16, got {}",
                                    traced_in(graph.origin), name_of(precision)));
    graph_.origin.precision = precision;
}

PrecisionScope::~PrecisionScope() { graph_.origin.precision = saved_; }

}  // namespace mantissa
