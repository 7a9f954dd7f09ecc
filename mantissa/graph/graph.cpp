#include "mantissa/graph/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/name_pattern.h"
#include "mantissa/numerics/coded_weights.h"

namespace mantissa::inline v0 {

std::string_view name_of(Stage stage) {
    static constexpr std::array<std::string_view, 3> names = {"forward", "backward", "update"};
    return names.at(static_cast<std::size_t>(stage));
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

bool is_from_outside(const Node& node) { return node.op->name == "input" || node.op->name == "state"; }

bool is_source(const Node& node) { return is_from_outside(node) || is_constant(node); }

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

namespace {

std::string value_text(const Graph& graph, Value value) {
    const Node& node = graph.node(value.node);
    if (is_from_outside(node)) return "%" + node.attributes.word("name");
    if (node.op->name == "constant" && node.outputs[0].shape.rank() == 0)
        return fmt::format("{}", node.attributes.number("value"));
    return node.outputs.size() == 1 ? fmt::format("%{}", value.node)
                                    : fmt::format("%{}.{}", value.node, value.output);
}

/// Attributes on the node's line; a body below it, indented.
std::string attribute_text(const Attributes& attributes) {
    std::string text;
    for (char c : attributes.text()) text += c == '\n' ? std::string("\n    ") : std::string(1, c);
    return text;
}

}  // namespace

std::string print(const Graph& graph, NodeId id) {
    const Node& node = graph.node(id);
    std::vector<std::string> inputs, types;
    for (const Value& input : node.inputs) inputs.push_back(value_text(graph, input));
    for (const Type& type : node.outputs) types.push_back(type.text());
    std::string line =
        fmt::format("%{}: {} = {}({})", id, fmt::join(types, ", "), node.op->name, fmt::join(inputs, ", "));
    if (!node.attributes.empty()) line += " " + attribute_text(node.attributes);
    std::string origin = node.origin.scope;
    if (node.origin.stage != Stage::forward)
        origin += fmt::format("{}({})", origin.empty() ? "" : " ", name_of(node.origin.stage));
    return origin.empty() ? line : line + "  # " + origin;
}

std::string print(const Graph& graph) {
    std::string text;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        const bool inlined = node.op->name == "constant" && node.outputs[0].shape.rank() == 0;
        if (!inlined) text += print(graph, id) + "\n";
    }
    for (const Result& result : graph.results())
        text += fmt::format("result {} = {}\n", result.name, value_text(graph, result.value));
    for (const Update& update : graph.updates())
        text +=
            fmt::format("update {} = {}\n", graph.state(update.state).name, value_text(graph, update.value));
    return text;
}

namespace {

class Verifier {
  public:
    Verifier(const Graph& graph, std::string_view after) : graph_(graph), after_(after) {}

    void run() const {
        for (NodeId id = 0; id < graph_.end(); ++id) node(id);
        for (const Result& result : graph_.results())
            require(exists(result.value, graph_.size()), "result '{}' names no value", result.name);
        std::set<int> updated;
        for (const Update& update : graph_.updates()) {
            const State& state = graph_.states().at(static_cast<std::size_t>(update.state));
            require(exists(update.value, graph_.size()), "the update of '{}' names no value", state.name);
            if (graph_.type(update.value) != state.type)
                fail("the update of '{}' is {}, the state is {}", state.name,
                     graph_.type(update.value).text(), state.type.text());
            require(!state.frozen, "'{}' is frozen and updated", state.name);
            require(updated.insert(update.state).second, "'{}' is updated twice", state.name);
        }
        for (const State& state : graph_.states())
            require(exists({state.node, 0}, graph_.size()) && graph_.node(state.node).op->name == "state",
                    "state '{}' has no node", state.name);
    }

  private:
    template <class... Args>
    [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
        throw InternalError(
            fmt::format("graph after {}: {}", after_, fmt::format(message, std::forward<Args>(args)...)));
    }

    /// For arguments that cost nothing: the text of a node takes longer than all that is verified of it.
    template <class... Args>
    void require(bool holds, fmt::format_string<Args...> message, Args&&... args) const {
        if (!holds) fail(message, std::forward<Args>(args)...);
    }

    bool exists(Value value, std::size_t before) const {
        return value.node >= 0 && static_cast<std::size_t>(value.node) < before && value.output >= 0 &&
               static_cast<std::size_t>(value.output) < graph_.node(value.node).outputs.size();
    }

    void node(NodeId id) const {
        const Node& node = graph_.node(id);
        for (const Value& input : node.inputs)
            require(exists(input, static_cast<std::size_t>(id)), "an operand of %{} is no earlier value", id);
        const int count = static_cast<int>(node.inputs.size());
        if (count < node.op->min_inputs || count > node.op->max_inputs)
            fail("{} has {} operands", print(graph_, id), count);
        const std::vector<Type> types = graph_.input_types(node);
        if (node.op->types({*node.op, types, node.attributes}) != node.outputs)
            fail("the types of {} are wrong", print(graph_, id));
    }

    const Graph& graph_;
    std::string_view after_;
};

}  // namespace

void verify(const Graph& graph, std::string_view after) { Verifier(graph, after).run(); }

}  // namespace mantissa
