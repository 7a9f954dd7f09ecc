#include "mantissa/passes/attention/attention_policy.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/graph/attention_layout.h"
#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/autocast.h"
#include "mantissa/passes/pipeline.h"

namespace mantissa::inline v0 {

namespace {

/// By node: whether a parameter that is trained is behind it.
std::vector<bool> behind_parameters(const Graph& graph) {
    std::vector<bool> behind(graph.size());
    for (const State& state : graph.states())
        if (state.kind == State::Kind::parameter && !state.frozen) behind[state.node] = true;
    for (NodeId id = 0; id < graph.end(); ++id)
        for (const Value& input : graph.node(id).inputs)
            if (behind[input.node]) behind[id] = true;
    return behind;
}

/// By node: whether an input is behind it.
std::vector<bool> behind_inputs(const Graph& graph) {
    std::vector<bool> behind(graph.size());
    for (const NodeId input : graph.inputs()) behind[input] = true;
    for (NodeId id = 0; id < graph.end(); ++id)
        for (const Value& input : graph.node(id).inputs)
            if (behind[input.node]) behind[id] = true;
    return behind;
}

/// Operands of the score whose numbers reach it by arithmetic: operands that only choose are boolean by now.
std::vector<bool> that_are_numbers(const AttentionScore& score) {
    const Graph& body = score.body->graph();
    std::vector<bool> needed(body.size());
    for (const auto& result : body.results())
        if (result.name == "score") needed[result.value.node] = true;
    for (NodeId id = body.end(); id-- > 0;) {
        if (!needed[id]) continue;
        for (const Value& input : body.node(id).inputs)
            if (body.type(input).dtype != DType::boolean) needed[input.node] = true;
    }
    std::vector<bool> numbers;
    for (std::size_t i = 0; i < score.operands.size(); ++i) numbers.push_back(needed[body.inputs()[i + 1]]);
    return numbers;
}

/// Why numbers of a batch may hide all keys of a query by a finite score, as masks of the least number do.
/// Such large equal scores weigh alike, but their log-sum-exp is too large to tell how many they are, and the
/// gradient computes weights from it. Empty: there is no such number.
std::string why_a_batch_may_hide_all(const Graph& graph, const Node& attention,
                                     const std::vector<bool>& behind_parameters) {
    if (!attention.attributes.has("score")) return {};
    const std::vector<bool> given = behind_inputs(graph);
    const std::vector<bool> numbers = that_are_numbers(attention_score(attention.attributes));
    const std::size_t first = attention_layout(attention.attributes).operands.size();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const Value operand = attention.inputs[first + i];
        if (numbers[i] && given[operand.node] && !behind_parameters[operand.node])
            return fmt::format(
                "{} follows from inputs and is added to scores: it may hide all keys of a query by a finite "
                "number, and the log-sum-exp could not tell how many. Give a mask of booleans",
                graph.type(operand).text());
    }
    return {};
}

/// A graph of one attention, in the formats of a policy.
struct LoneAttention {
    Graph graph = {};
    NodeId node = -1;

    LoneAttention(const std::vector<Type>& types, const Attributes& attributes, const Policy& policy) {
        std::vector<Tensor> operands;
        for (std::size_t i = 0; i < types.size(); ++i)
            operands.emplace_back(graph, graph.add_input(fmt::format("x{}", i), types[i]));
        Value result = call(graph, "attention", operands, attributes)[0].value();
        if (!policy.changes_nothing()) graph = autocast(graph, policy, result);
        node = last_of("attention");
    }

    /// Adds its gradient by the operands that are wanted, as differentiation will; -1 if there is none.
    NodeId add_gradient(const std::vector<bool>& wanted) {
        std::vector<Tensor> outputs, by;
        const std::vector<Value> inputs = graph.node(node).inputs;
        for (std::int32_t output = 0; output < 2; ++output) outputs.emplace_back(graph, Value{node, output});
        for (std::size_t i = 0; i < inputs.size(); ++i)
            if (wanted[i] && is_floating(graph.type(inputs[i]).dtype)) by.emplace_back(graph, inputs[i]);
        const std::vector<Tensor> cotangents{Tensor(graph, graph.add_input("do", outputs[0].type())),
                                             Tensor{}};
        backpropagate(graph, outputs, cotangents, by);
        return last_of("attention_grad");
    }

  private:
    NodeId last_of(std::string_view op) const {
        for (NodeId id = graph.end(); id-- > 0;)
            if (graph.node(id).op->name == op) return id;
        return -1;
    }
};

/// Estimates are right within a fifth: an attention must lose by more than they may be wrong.
constexpr double min_loss = 1.25;

/// Why attention is better left as separate operations: they take less time, and the scores that they keep
/// are no more memory than queries, keys, values and result, which exist either way. Longer texts take one
/// operation in any case. Empty if it is not better, where the operations would not be fused, or where nobody
/// measured. `gradient`: -1 if there is none.
std::string why_it_loses(const LoneAttention& alone, NodeId gradient, const PipelineOptions& options,
                         const Machine& machine) {
    const Graph& graph = alone.graph;
    const Node& node = graph.node(alone.node);
    const Shape &q = graph.type(node.inputs[0]).shape, &k = graph.type(node.inputs[1]).shape;
    const std::int64_t queries = q[2], keys = k[2], head_size = q[3];
    if (!options.fuse || !options.simplify || queries * keys > 2 * (queries + keys) * head_size) return {};
    std::optional<TimeBesideParts> time = machine.kernel_of(graph, node).time;
    if (!time) return {};
    if (gradient >= 0) {
        const auto of_gradient = machine.kernel_of(graph, graph.node(gradient)).time;
        if (!of_gradient) return {};
        time->whole += of_gradient->whole;
        time->parts += of_gradient->parts;
    }
    if (time->whole <= min_loss * time->parts) return {};
    return fmt::format(
        "as one operation it takes {:.1f} times as long as its lines: about {:.1f} us of one thread beside "
        "{:.1f} for {} x {} scores of heads of {}, {}, by {}",
        time->whole / time->parts, time->whole / 1e3, time->parts / 1e3, queries, keys, head_size,
        gradient >= 0 ? "forward and backward" : "forward", time->kernel);
}

/// Why the device does not run an attention in the policy's formats, or its gradient by the operands that are
/// wanted, if any are, or would lose by it; empty if it does.
std::string why_not_one(const Graph& graph, const Node& attention, const std::vector<bool>& wanted,
                        const PipelineOptions& options, const Machine& machine) {
    const bool plain = !attention.attributes.has("score");
    LoneAttention alone(graph.input_types(attention), attention.attributes, options.policy);
    const Node& node = alone.graph.node(alone.node);
    const std::string of_what =
        fmt::format("attention of {}{}", name_of(alone.graph.type(node.inputs[0]).dtype),
                    plain ? "" : " and of such a score");
    if (const std::string why = machine.kernel_of(alone.graph, node).why_none; !why.empty())
        return fmt::format("the device has no kernel for {}: {}", of_what, why);
    const NodeId gradient = wanted.empty() ? -1 : alone.add_gradient(wanted);
    if (gradient >= 0)
        if (const std::string why = machine.kernel_of(alone.graph, alone.graph.node(gradient)).why_none;
            !why.empty())
            return fmt::format("the device has no kernel for the gradient of {}: {}", of_what, why);
    return why_it_loses(alone, gradient, options, machine);
}

}  // namespace

AcceptAttention attention_policy(const PipelineOptions& options, const Machine& machine,
                                 Differentiated differentiated) {
    // Layers are alike, and a kernel may have to be compiled.
    return [&options, &machine, differentiated, known = std::map<std::string, std::string>()](
               const Graph& graph, const Node& attention) mutable {
        std::string what = attention.attributes.text();
        std::vector<bool> wanted;
        const std::vector<bool> behind = behind_parameters(graph);
        for (const Value& input : attention.inputs) {
            const bool asked = behind[input.node];
            what += (asked ? " by " : " ") + graph.type(input).text();
            if (differentiated == Differentiated::yes) wanted.push_back(asked);
        }
        if (differentiated == Differentiated::yes)
            if (std::string why = why_a_batch_may_hide_all(graph, attention, behind); !why.empty())
                return why;
        const auto [entry, is_new] = known.try_emplace(what);
        if (is_new) entry->second = why_not_one(graph, attention, wanted, options, machine);
        return entry->second;
    };
}

}  // namespace mantissa
