#include "mantissa/graph/verifier.h"

#include <fmt/format.h>

#include <set>

#include "mantissa/base/error.h"
#include "mantissa/graph/printer.h"

namespace mantissa::inline v0 {

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

    /// For arguments that cost nothing: the text of a node takes longer than its whole verification.
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
